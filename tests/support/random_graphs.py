"""Random ONNX models: chains, diamonds, many branches, shared inputs and several outputs over most operators.

`random_model` is a function of its seed. Models are small, valid, of static float32 shapes and well conditioned: values
stay near one, so that reordered sums agree to a few units in the last place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Float32 = npt.NDArray[np.float32]

OPSET = 21
IR_VERSION = 10
_LARGEST_SIZE = 4096


class Tensor(NamedTuple):
    """A value of the model under construction."""

    name: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


def random_model(seed: int, steps: int | None = None) -> tuple[onnx.ModelProto, dict[str, Float32]]:
    """A model and inputs for it; `steps` productions (4 to 16 by the seed if None), each of one to nine nodes."""
    generator = _Generator(np.random.default_rng(seed))
    for _ in range(steps or int(generator.rng.integers(4, 17))):
        generator.step()
    return generator.finish(f"random{seed}"), generator.inputs


class _Generator:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.inputs: dict[str, Float32] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._tensors: list[Tensor] = []
        self._unread: dict[str, Tensor] = {}
        self._count = 0
        shapes = [
            (1, int(rng.integers(1, 7)), int(rng.integers(3, 9)), int(rng.integers(3, 9))),
            (int(rng.integers(1, 6)), int(rng.integers(1, 9))),
            (int(rng.integers(1, 4)), int(rng.integers(1, 3)), int(rng.integers(2, 6))),
        ]
        for shape in (shapes[i] for i in rng.permutation(3)[: rng.integers(1, 4)]):
            name = f"x{len(self.inputs)}"
            self.inputs[name] = rng.standard_normal(shape, dtype=np.float32)
            self._tensors.append(Tensor(name, shape))

    def step(self) -> None:
        """Apply one production to a value, more often to a late one."""
        position = int(len(self._tensors) * self.rng.beta(2.5, 1))
        x = self._tensors[position]
        rules = [rule for rule, ranks in _RULES.items() if x.rank in ranks]
        rules[int(self.rng.integers(len(rules)))](self, x)

    def finish(self, name: str) -> onnx.ModelProto:
        """The model. Outputs are up to four values that nothing reads, perhaps with one that something reads."""
        outputs = list(self._unread.values())[-4:]
        inner = [tensor for tensor in self._tensors if tensor not in outputs and tensor.name not in self.inputs]
        if inner and self._flip(0.5):
            outputs.append(self._any(inner))
        graph = helper.make_graph(
            self._nodes,
            name,
            [self._declared(Tensor(key, array.shape)) for key, array in self.inputs.items()],
            [self._declared(tensor) for tensor in outputs],
            self._weights,
        )
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        onnx.checker.check_model(model)
        return model

    def unary(self, x: Tensor) -> Tensor:
        choices: Sequence[tuple[str, Mapping[str, float]]] = [
            ("Relu", {}),
            ("Relu", {}),
            ("Sigmoid", {}),
            ("Tanh", {}),
            ("Abs", {}),
            ("Neg", {}),
            ("Identity", {}),
            ("LeakyRelu", {"alpha": 0.1}),
            ("HardSigmoid", {}),
        ]
        op_type, attributes = self._any(choices)
        return self.node(op_type, [x], x.shape, **attributes)

    def clip(self, x: Tensor) -> Tensor:
        return self.node("Clip", [x, self.number(-0.5), self.number(1.5)], x.shape)

    def with_constant(self, x: Tensor) -> Tensor:
        shapes = [(), (1,), x.shape[-1:], x.shape, (x.shape[0], *[1] * (x.rank - 1))]
        if x.rank == 4:
            shapes.append((x.shape[1], 1, 1))
        constant = self.weight(self._any(shapes))
        op_type = self._any(("Add", "Mul", "Sub", "Max"))
        operands = [x, constant] if self._flip(0.7) else [constant, x]
        return self.node(op_type, operands, x.shape)

    def with_other(self, x: Tensor) -> Tensor:
        """A diamond: two values of equal shape meet, often both made from x."""
        others = [tensor for tensor in self._tensors if tensor.shape == x.shape and tensor != x]
        other = self._any(others) if others and self._flip(0.6) else self.unary(x)
        return self.node(self._any(("Add", "Add", "Mul", "Min")), [x, other], x.shape)

    def gated(self, x: Tensor) -> Tensor:
        """A squeeze-and-excite or attention gate: a statistic of x scales x."""
        axes = self.indices([x.rank - 1])
        statistic = self.node("ReduceMean", [x, axes], (*x.shape[:-1], 1), keepdims=1)
        gate = self.node("Sigmoid", [statistic], statistic.shape)
        return self.node("Mul", [x, gate], x.shape)

    def fan_out(self, x: Tensor) -> Tensor:
        """Many branches of one value, added up."""
        branches = [self.unary(x) for _ in range(int(self.rng.integers(2, 5)))]
        total = branches[0]
        for branch in branches[1:]:
            total = self.node("Add", [total, branch], x.shape)
        return self.node("Mul", [total, self.number(1 / len(branches))], x.shape)

    def conv(self, x: Tensor, out: int | None = None, kernel: int | None = None) -> Tensor:
        channels = x.shape[1]
        grouped = out is None and self._flip(0.3)
        group = channels if grouped else 1
        out = channels * int(self.rng.integers(1, 3)) if grouped else out or int(self.rng.integers(1, 9))
        size = kernel or int(self._any((1, 1, 3)))
        pad = size // 2 if kernel or min(x.shape[2:]) < size or self._flip(0.7) else 0
        stride = int(self.rng.integers(1, 3)) if kernel is None else 1
        w = self.weight((out, channels // group, size, size), fan_in=channels // group * size * size)
        operands = [x, w, self.weight((out,))] if self._flip(0.5) else [x, w]
        spatial = tuple((extent + 2 * pad - size) // stride + 1 for extent in x.shape[2:])
        y = self.node("Conv", operands, (x.shape[0], out, *spatial), group=group, pads=[pad] * 4, strides=[stride] * 2)
        return self.batch_norm(y) if self._flip(0.5) else y

    def batch_norm(self, x: Tensor) -> Tensor:
        shape = x.shape[1:2]
        var = self.tensor(self.rng.uniform(0.5, 2, shape))
        return self.node(
            "BatchNormalization", [x, self.weight(shape), self.weight(shape), self.weight(shape), var], x.shape
        )

    def conv_siblings(self, x: Tensor) -> Tensor:
        """Convolutions of one input, alike or not, joined along the channels."""
        activated = self._flip(0.6)
        branches = [self.conv(x, int(self.rng.integers(1, 5)), 1) for _ in range(int(self.rng.integers(2, 5)))]
        if activated:
            branches = [self.node("Relu", [branch], branch.shape) for branch in branches]
        if self._flip(0.4):
            branches = [self.conv(branch, 2, 3) for branch in branches]
        return self.joined(branches, 1)

    def projections(self, x: Tensor) -> Tensor:
        """Products of one input, as for queries, keys and values, or gates."""
        width = int(self.rng.integers(1, 6))
        parts = []
        for _ in range(int(self.rng.integers(2, 5))):
            w = self.weight((x.shape[-1], width), fan_in=x.shape[-1])
            part = self.node("MatMul", [x, w], (*x.shape[:-1], width))
            parts.append(self.node("Add", [part, self.weight((width,))], part.shape))
        gate = self.node("Sigmoid", [parts[0]], parts[0].shape)
        return self.node("Mul", [gate, parts[1]], gate.shape)

    def gemm(self, x: Tensor) -> Tensor:
        width, transposed = int(self.rng.integers(1, 9)), self._flip(0.5)
        shape = (width, x.shape[1]) if transposed else (x.shape[1], width)
        bias = self.weight(self._any([(width,), (1, width), (1,)]))
        operands = [x, self.weight(shape, fan_in=x.shape[1]), bias]
        return self.node("Gemm", operands, (x.shape[0], width), transB=int(transposed), beta=0.5)

    def gram(self, x: Tensor) -> Tensor:
        """A product of two computed matrices, as in attention."""
        perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
        turned = self.node("Transpose", [x], (*x.shape[:-2], x.shape[-1], x.shape[-2]), perm=perm)
        scores = self.node("MatMul", [x, turned], (*x.shape[:-1], x.shape[-2]))
        scores = self.node("Mul", [scores, self.number(0.3)], scores.shape)
        weights = self.node("Softmax", [scores], scores.shape, axis=-1)
        return self.node("MatMul", [weights, x], x.shape)

    def pool(self, x: Tensor) -> Tensor:
        op_type = self._any(("MaxPool", "AveragePool"))
        stride = int(self.rng.integers(1, 3))
        spatial = tuple((extent - 1) // stride + 1 for extent in x.shape[2:])
        attributes: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [stride] * 2}
        if op_type == "AveragePool":
            attributes["count_include_pad"] = int(self._flip(0.5))
        return self.node(op_type, [x], (*x.shape[:2], *spatial), **attributes)

    def global_pool(self, x: Tensor) -> Tensor:
        pooled = self.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))
        return self.node("Flatten", [pooled], x.shape[:2]) if self._flip(0.5) else pooled

    def softmax(self, x: Tensor) -> Tensor:
        return self.node(self._any(("Softmax", "LogSoftmax")), [x], x.shape, axis=int(self.rng.integers(x.rank)))

    def layer_norm(self, x: Tensor) -> Tensor:
        shape = x.shape[-1:]
        return self.node("LayerNormalization", [x, self.weight(shape), self.weight(shape)], x.shape, epsilon=0.1)

    def reduce(self, x: Tensor) -> Tensor:
        axis, keepdims = int(self.rng.integers(x.rank)), int(self._flip(0.5))
        shape = (*x.shape[:axis], *[1] * keepdims, *x.shape[axis + 1 :])
        op_type = self._any(("ReduceMean", "ReduceMax", "ReduceL1", "ReduceSumSquare"))
        return self.node(op_type, [x, self.indices([axis])], shape, keepdims=keepdims)

    def concat(self, x: Tensor) -> Tensor:
        axis = int(self.rng.integers(x.rank))
        fitting = [t for t in self._tensors if t.rank == x.rank and _without(t.shape, axis) == _without(x.shape, axis)]
        return self.joined([x, *(self._any(fitting) for _ in range(int(self.rng.integers(1, 4))))], axis)

    def split(self, x: Tensor) -> Tensor:
        """Both parts of a value, treated alike or not, and brought together."""
        axis = int(self.rng.integers(x.rank))
        extent = x.shape[axis]
        cut = int(self.rng.integers(extent + 1)) if extent > 1 else 0
        if not 0 < cut < extent:
            return self.unary(x)
        shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in (cut, extent - cut)]
        names = [self._fresh(), self._fresh()]
        sizes = self.indices([cut, extent - cut])
        self._nodes.append(helper.make_node("Split", [x.name, sizes.name], names, name=names[0], axis=axis))
        self._unread.pop(x.name, None)
        parts = [Tensor(name, shape) for name, shape in zip(names, shapes, strict=True)]
        if self._flip(0.5):
            parts = [self.node("Relu", [part], part.shape) for part in parts]
        else:
            parts = [self.unary(part) for part in parts]
        return self.joined(parts[::-1] if self._flip(0.5) else parts, axis)

    def slice(self, x: Tensor) -> Tensor:
        axis = int(self.rng.integers(x.rank))
        extent = x.shape[axis]
        start, step = int(self.rng.integers(extent)), int(self.rng.integers(1, 3))
        backwards = self._flip(0.3)
        size = (start if backwards else extent - 1 - start) // step + 1
        end = -extent - 1 if backwards else extent
        bounds = [[start], [end], [axis], [-step if backwards else step]]
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        return self.node("Slice", [x, *map(self.indices, bounds)], shape)

    def reshape(self, x: Tensor) -> Tensor:
        size = int(np.prod(x.shape))
        first = self._any([d for d in range(1, size + 1) if size % d == 0])
        shape = self._any([(size,), (first, size // first), (1, first, size // first), (*x.shape, 1), (1, *x.shape)])
        return self.node("Reshape", [x, self.indices(shape)], shape)

    def transpose(self, x: Tensor) -> Tensor:
        perm = [int(dim) for dim in self.rng.permutation(x.rank)]
        return self.node("Transpose", [x], tuple(x.shape[dim] for dim in perm), perm=perm)

    def pad(self, x: Tensor) -> Tensor:
        pads = [int(pad) for pad in self.rng.integers(0, 3, 2 * x.rank)]
        shape = tuple(extent + pads[dim] + pads[x.rank + dim] for dim, extent in enumerate(x.shape))
        return self.node("Pad", [x, self.indices(pads), self.number(self._any((0.0, 0.5)))], shape)

    def expand(self, x: Tensor) -> Tensor:
        shape = (2, *x.shape)
        return self.node("Expand", [x, self.indices(shape)], shape)

    def gather(self, x: Tensor) -> Tensor:
        axis = int(self.rng.integers(x.rank))
        if self._flip(0.3):
            position = self.indices(int(self.rng.integers(x.shape[axis])))
            return self.node("Gather", [x, position], _without(x.shape, axis), axis=axis)
        positions = [int(i) for i in self.rng.integers(-x.shape[axis], x.shape[axis], 3)]
        shape = (*x.shape[:axis], 3, *x.shape[axis + 1 :])
        return self.node("Gather", [x, self.indices(positions)], shape, axis=axis)

    def lstm(self, x: Tensor) -> Tensor:
        steps, batch, width = x.shape
        n = int(self.rng.integers(1, 5))
        w, r = self.weight((1, 4 * n, width), fan_in=width), self.weight((1, 4 * n, n), fan_in=n)
        operands = [x, w, r, self.weight((1, 8 * n))]
        y = self.node("LSTM", operands, (steps, 1, batch, n), hidden_size=n)
        return self.node("Squeeze", [y, self.indices([1])], (steps, batch, n))

    def joined(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        total = sum(part.shape[axis] for part in parts)
        shape = (*parts[0].shape[:axis], total, *parts[0].shape[axis + 1 :])
        return self.node("Concat", parts, shape, axis=axis)

    def node(self, op_type: str, operands: Sequence[Tensor], shape: Sequence[int], **attributes: Any) -> Tensor:
        """Add a node with one result."""
        result = Tensor(self._fresh(), tuple(shape))
        names = [operand.name for operand in operands]
        self._nodes.append(helper.make_node(op_type, names, [result.name], name=result.name, **attributes))
        for name in names:
            self._unread.pop(name, None)
        self._unread[result.name] = result
        if 0 < np.prod(result.shape) <= _LARGEST_SIZE and 1 <= result.rank <= 5:
            self._tensors.append(result)
        return result

    def weight(self, shape: Sequence[int], fan_in: int = 1) -> Tensor:
        return self.tensor(self.rng.standard_normal(shape) / np.sqrt(fan_in))

    def number(self, value: float) -> Tensor:
        return self.tensor(np.asarray(value))

    def tensor(self, array: npt.NDArray[Any]) -> Tensor:
        return self._initializer(array.astype(np.float32))

    def indices(self, values: Sequence[int] | int) -> Tensor:
        return self._initializer(np.asarray(values, dtype=np.int64))

    def _initializer(self, array: npt.NDArray[Any]) -> Tensor:
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return Tensor(name, array.shape)

    def _fresh(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def _any(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def _flip(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def _declared(self, tensor: Tensor) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.shape)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


_ANY = range(1, 6)
_RULES: Mapping[Callable[[_Generator, Tensor], Tensor], Sequence[int]] = {
    _Generator.unary: _ANY,
    _Generator.clip: _ANY,
    _Generator.with_constant: _ANY,
    _Generator.with_other: _ANY,
    _Generator.fan_out: _ANY,
    _Generator.gated: _ANY,
    _Generator.conv: [4],
    _Generator.conv_siblings: [4],
    _Generator.pool: [4],
    _Generator.global_pool: [4],
    _Generator.batch_norm: [2, 3, 4],
    _Generator.projections: [2, 3, 4],
    _Generator.gemm: [2],
    _Generator.gram: [2, 3, 4],
    _Generator.lstm: [3],
    _Generator.softmax: _ANY,
    _Generator.layer_norm: _ANY,
    _Generator.reduce: range(2, 6),
    _Generator.concat: _ANY,
    _Generator.split: _ANY,
    _Generator.slice: _ANY,
    _Generator.reshape: _ANY,
    _Generator.transpose: range(2, 6),
    _Generator.pad: range(1, 5),
    _Generator.expand: range(1, 5),
    _Generator.gather: range(2, 6),
}
