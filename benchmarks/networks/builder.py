"""A small typed layer over `onnx.helper` that builds one graph and knows the shape of every value.

Parameters are initialisers and carry the names of a PyTorch state dict; everything else that is constant
(shapes, axes, bounds) is a `Constant` node, as PyTorch's exporter writes it. So the initialisers of a model
are exactly its parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int, ...]
Float32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]
Attribute = int | float | str | Sequence[int]

OPSET = 22
"""The first in which all operators used here take bfloat16."""

INTEGERS = 64
"""Words and positions that every network knows, however small: integer inputs are below it."""

IR_VERSION = 10
"""The ONNX IR version that was published together with opset 22."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A float32, int64 or bool tensor of the graph: its name and its static shape."""

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

    def input(self, name: str, shape: Shape, dtype: npt.DTypeLike = np.float32) -> Value:
        """Declare a graph input."""
        element_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, element_type, shape))
        return Value(name=name, shape=shape)

    def parameter(self, name: str, array: Float32 | npt.NDArray[np.uint8]) -> Value:
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
        """Add a node with several outputs, given as name -> shape in the operator's order.

        What is not ONNX's own has its domain before its type: "com.microsoft.MatMulNBits".
        """
        input_names = ["" if value is None else value.name for value in inputs]
        domain, _, own_type = op_type.rpartition(".")
        node = helper.make_node(own_type, input_names, list(outputs), name=name, domain=domain)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in sorted(attributes.items()))
        self._nodes.append(node)
        return tuple(Value(name=output, shape=shape) for output, shape in outputs.items())

    def build(self, *outputs: Value) -> onnx.ModelProto:
        """The finished model with `outputs`, float32 values."""
        domains = sorted({node.domain for node in self._nodes} - {""})
        graph = helper.make_graph(
            nodes=self._nodes,
            name=self._name,
            inputs=self._inputs,
            outputs=[helper.make_tensor_value_info(value.name, TensorProto.FLOAT, value.shape) for value in outputs],
            initializer=self._initializers,
        )
        return helper.make_model(
            graph,
            producer_name="rammer-benchmarks",
            opset_imports=[helper.make_opsetid("", OPSET), *(helper.make_opsetid(name, 1) for name in domains)],
            ir_version=IR_VERSION,
        )


def random_inputs(model: onnx.ModelProto, seed: int) -> dict[str, Array]:
    """Inputs for a model: standard normal floats, integers from 0 to `INTEGERS` - 1, booleans of which half are true.

    They do not depend on the weights that the same seed gives a network.
    """
    rng = np.random.default_rng((seed, 1))
    return {
        value.name: _random_array(rng, value.type.tensor_type.elem_type, _shape(value)) for value in model.graph.input
    }


def _shape(value: onnx.ValueInfoProto) -> Shape:
    return tuple(dimension.dim_value for dimension in value.type.tensor_type.shape.dim)


def _random_array(rng: np.random.Generator, element_type: int, shape: Shape) -> Array:
    match element_type:
        case TensorProto.INT64:
            return rng.integers(INTEGERS, size=shape)
        case TensorProto.BOOL:
            return np.asarray(rng.integers(2, size=shape), np.bool_)
        case _:
            floats: Array = rng.standard_normal(shape, dtype=np.float32)
            return floats.astype(np.dtype(helper.tensor_dtype_to_np_dtype(element_type)), copy=False)
