"""Builds ONNX models node by node, making random choices: the tool that random rules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

OPSET = 21
IR_VERSION = 10
_LARGEST_SIZE = 4096


class Tensor(NamedTuple):
    """A value of the model under construction."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def rank(self) -> int:
        return len(self.shape)


class ModelMaker:
    """A model under construction and the choices that shape it.

    Attributes:
        rng: all choices come from here, so that a seed decides the model.
        inputs: arrays for the model's inputs, by name.
        tensors: inputs and results, in order, that further nodes may read: small ones of rank 1 to 5.
        byte_type: the one of quantised values, once there are any.
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.inputs: dict[str, Array] = {}
        self.tensors: list[Tensor] = []
        self.byte_type: str | None = None
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._unread: dict[str, Tensor] = {}
        self._count = 0

    def any(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def flip(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def draw(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def like(self, x: Tensor) -> list[Tensor]:
        """The other values of x's shape and type."""
        return [tensor for tensor in self.tensors if tensor[1:] == x[1:] and tensor != x]

    def input(self, array: Array) -> Tensor:
        tensor = Tensor(f"x{len(self.inputs)}", array.shape, array.dtype.name)
        self.inputs[tensor.name] = array
        self.tensors.append(tensor)
        return tensor

    def node(
        self,
        op_type: str,
        operands: Sequence[Tensor],
        shape: Sequence[int],
        *,
        dtype: str | None = None,
        **attributes: Any,
    ) -> Tensor:
        """A node with one result, of the first operand's type if none is given."""
        (result,) = self.nodes(op_type, operands, [shape], dtype=dtype, **attributes)
        return result

    def nodes(
        self,
        op_type: str,
        operands: Sequence[Tensor],
        shapes: Sequence[Sequence[int]],
        *,
        dtype: str | None = None,
        **attributes: Any,
    ) -> list[Tensor]:
        """A node with a result of each shape."""
        return self.typed(op_type, operands, [(shape, dtype or operands[0].dtype) for shape in shapes], **attributes)

    def typed(
        self, op_type: str, operands: Sequence[Tensor], wanted: Sequence[tuple[Sequence[int], str]], **attributes: Any
    ) -> list[Tensor]:
        """A node with a result of each shape and type."""
        results = [Tensor(self._fresh(), tuple(shape), dtype) for shape, dtype in wanted]
        names = [operand.name for operand in operands]
        outputs = [result.name for result in results]
        self._nodes.append(helper.make_node(op_type, names, outputs, name=outputs[0], **attributes))
        for name in names:
            self._unread.pop(name, None)
        for result in results:
            self._unread[result.name] = result
            if 0 < np.prod(result.shape) <= _LARGEST_SIZE and 1 <= result.rank <= 5:
                self.tensors.append(result)
        return results

    def inner(self, shape: Sequence[int], dtype: str = "float32") -> Tensor:
        """A value that a body gets."""
        return Tensor(self._fresh(), tuple(shape), dtype)

    def body(self, inputs: Sequence[Tensor], build: Callable[[], Sequence[Tensor]]) -> onnx.GraphProto:
        """A graph for an attribute: it sees the values around it, and nobody else sees its own."""
        nodes, tensors, unread = self._nodes, self.tensors, self._unread
        self._nodes, self._unread = [], dict(unread)
        self.tensors = [*tensors, *(value for value in inputs if value.rank)]
        results = build()
        made = helper.make_graph(
            self._nodes, self._fresh(), [_declared(value) for value in inputs], [_declared(value) for value in results]
        )
        read = unread.keys() - self._unread.keys()
        self._nodes, self.tensors, self._unread = nodes, tensors, unread
        for name in read:
            del unread[name]
        return made

    def weight(self, shape: Sequence[int], *, fan_in: int = 1, dtype: str = "float32") -> Tensor:
        """A constant: standard normal over the root of `fan_in`; small integers, or true and false."""
        if dtype == "bool":
            return self.constant(self.rng.random(shape) < 0.5, dtype)
        if "float" in dtype:
            return self.constant(self.rng.standard_normal(shape) / np.sqrt(fan_in), dtype)
        return self.constant(self.rng.integers(0 if dtype == "uint8" else -4, 5, shape), dtype)

    def number(self, value: float, dtype: str = "float32") -> Tensor:
        return self.constant(np.asarray(value), dtype)

    def indices(self, values: Sequence[int] | int) -> Tensor:
        return self.constant(np.asarray(values), "int64")

    def constant(self, array: Array, dtype: str) -> Tensor:
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array).astype(dtype), name))
        return Tensor(name, array.shape, dtype)

    def finish(self, name: str) -> onnx.ModelProto:
        """The model. Outputs are up to four values that nothing reads, perhaps with one that something reads."""
        outputs = list(self._unread.values())[-4:]
        inner = [tensor for tensor in self.tensors if tensor not in outputs and tensor.name not in self.inputs]
        if inner and self.flip(0.5):
            outputs.append(self.any(inner))
        graph = helper.make_graph(
            self._nodes,
            name,
            [_declared(Tensor(key, array.shape, array.dtype.name)) for key, array in self.inputs.items()],
            [_declared(tensor) for tensor in outputs],
            self._weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return model

    def _fresh(self) -> str:
        self._count += 1
        return f"t{self._count}"


def _declared(tensor: Tensor) -> onnx.ValueInfoProto:
    element_type = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return helper.make_tensor_value_info(tensor.name, element_type, tensor.shape)
