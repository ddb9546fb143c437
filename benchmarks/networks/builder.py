"""A small typed layer over `onnx.helper` that builds one graph and knows the shape of every value.

Parameters are initialisers and carry the names of a PyTorch state dict; everything else that is constant
(shapes, axes, bounds) is a `Constant` node, as PyTorch's exporter writes it. So the initialisers of a model
are exactly its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
Float32 = npt.NDArray[np.float32]
Attribute = int | float | str | Sequence[int]

OPSET = 17
"""Old enough for every peer; no later opset changes what the operators used here mean."""

IR_VERSION = 8
"""The ONNX IR version that was published together with opset 17."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A float32 or int64 tensor of the graph: its name and its static shape."""

    name: str
    shape: Shape


class GraphBuilder:
    """Collects the inputs, parameters and nodes of one graph, in topological order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._inputs: list[onnx.ValueInfoProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._constants: dict[tuple[str, Shape, bytes], Value] = {}

    def input(self, name: str, shape: Shape) -> Value:
        """Declare a float32 graph input."""
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return Value(name=name, shape=shape)

    def parameter(self, name: str, array: Float32) -> Value:
        """Add `array` as an initialiser."""
        self._initializers.append(numpy_helper.from_array(array, name))
        return Value(name=name, shape=array.shape)

    def constant(self, array: npt.NDArray[np.int64] | Float32) -> Value:
        """A `Constant` node holding `array`; equal arrays share one node."""
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            value = Value(name=f"constant{len(self._constants)}", shape=array.shape)
            tensor = numpy_helper.from_array(array)
            self._nodes.append(helper.make_node("Constant", [], [value.name], name=value.name, value=tensor))
            self._constants[key] = value
        return self._constants[key]

    def integers(self, *values: int) -> Value:
        """An int64 vector constant, the form in which operators take shapes, axes and pads."""
        return self.constant(np.asarray(values, dtype=np.int64))

    def node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[Value | None],
        shape: Shape,
        **attributes: Attribute,
    ) -> Value:
        """Add a node with one output, named like the node. `None` stands for an omitted optional input."""
        return self.multi_output_node(op_type, name, inputs, {name: shape}, **attributes)[0]

    def multi_output_node(
        self,
        op_type: str,
        name: str,
        inputs: Sequence[Value | None],
        outputs: Mapping[str, Shape],
        **attributes: Attribute,
    ) -> tuple[Value, ...]:
        """Add a node with several outputs, given as name -> shape in the operator's order."""
        input_names = ["" if value is None else value.name for value in inputs]
        node = helper.make_node(op_type, input_names, list(outputs), name=name)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in sorted(attributes.items()))
        self._nodes.append(node)
        return tuple(Value(name=output, shape=shape) for output, shape in outputs.items())

    def build(self, output: Value) -> onnx.ModelProto:
        """The finished model with `output`, a float32 value, as its only output."""
        graph = helper.make_graph(
            nodes=self._nodes,
            name=self._name,
            inputs=self._inputs,
            outputs=[helper.make_tensor_value_info(output.name, TensorProto.FLOAT, output.shape)],
            initializer=self._initializers,
        )
        return helper.make_model(
            graph,
            producer_name="rammer-benchmarks",
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
        )


def random_inputs(shapes: Mapping[str, Shape], seed: int) -> dict[str, Float32]:
    """Standard normal float32 arrays; independent of the weights that the same seed gives a network."""
    rng = np.random.default_rng((seed, 1))
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def input_shapes(model: onnx.ModelProto) -> dict[str, Shape]:
    """The static shapes of a model's inputs."""
    return {
        value.name: tuple(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)
        for value in model.graph.input
    }
