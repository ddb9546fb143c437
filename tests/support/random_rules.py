"""Productions of random models over floating-point values, which stay near one.

A rule takes the model under construction and a value, and adds one to nine nodes that read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.model_maker import ModelMaker, Tensor
from tests.support.random_movement import Rule, joined


def unary(m: ModelMaker, x: Tensor) -> Tensor:
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
    op_type, attributes = m.any(choices)
    return m.node(op_type, [x], x.shape, **attributes)


def clip(m: ModelMaker, x: Tensor) -> Tensor:
    return m.node("Clip", [x, m.number(-0.5, x.dtype), m.number(1.5, x.dtype)], x.shape)


def with_constant(m: ModelMaker, x: Tensor) -> Tensor:
    constant = m.weight(broadcast_shape(m, x), dtype=x.dtype)
    op_type = m.any(("Add", "Mul", "Sub", "Max"))
    operands = [x, constant] if m.flip(0.7) else [constant, x]
    return m.node(op_type, operands, x.shape)


def with_other(m: ModelMaker, x: Tensor) -> Tensor:
    """A diamond: two values of equal shape meet, often both made from x."""
    others = m.like(x)
    other = m.any(others) if others and m.flip(0.6) else unary(m, x)
    return m.node(m.any(("Add", "Add", "Mul", "Min")), [x, other], x.shape)


def gated(m: ModelMaker, x: Tensor) -> Tensor:
    """A squeeze-and-excite or attention gate: a statistic of x scales x."""
    axes = m.indices([x.rank - 1])
    statistic = m.node("ReduceMean", [x, axes], (*x.shape[:-1], 1), keepdims=1)
    gate = m.node("Sigmoid", [statistic], statistic.shape)
    return m.node("Mul", [x, gate], x.shape)


def fan_out(m: ModelMaker, x: Tensor) -> Tensor:
    """Many branches of one value, added up."""
    branches = [unary(m, x) for _ in range(m.draw(2, 4))]
    total = branches[0]
    for branch in branches[1:]:
        total = m.node("Add", [total, branch], x.shape)
    return m.node("Mul", [total, m.number(1 / len(branches), x.dtype)], x.shape)


def conv(m: ModelMaker, x: Tensor, out: int | None = None, kernel: int | None = None) -> Tensor:
    channels = x.shape[1]
    grouped = out is None and m.flip(0.3)
    group = channels if grouped else 1
    out = channels * m.draw(1, 2) if grouped else out or m.draw(1, 8)
    size = kernel or int(m.any((1, 1, 3)))
    pad = size // 2 if kernel or min(x.shape[2:]) < size or m.flip(0.7) else 0
    stride = m.draw(1, 2) if kernel is None else 1
    w = m.weight((out, channels // group, size, size), fan_in=channels // group * size * size, dtype=x.dtype)
    operands = [x, w, m.weight((out,), dtype=x.dtype)] if m.flip(0.5) else [x, w]
    spatial = tuple((extent + 2 * pad - size) // stride + 1 for extent in x.shape[2:])
    y = m.node("Conv", operands, (x.shape[0], out, *spatial), group=group, pads=[pad] * 4, strides=[stride] * 2)
    return batch_norm(m, y) if m.flip(0.5) else y


def batch_norm(m: ModelMaker, x: Tensor) -> Tensor:
    shape = x.shape[1:2]
    scale, bias, mean = (m.weight(shape, dtype=x.dtype) for _ in range(3))
    var = m.constant(m.rng.uniform(0.5, 2, shape), x.dtype)
    return m.node("BatchNormalization", [x, scale, bias, mean, var], x.shape)


def conv_siblings(m: ModelMaker, x: Tensor) -> Tensor:
    """Convolutions of one input, alike or not, joined along the channels."""
    activated = m.flip(0.6)
    branches = [conv(m, x, m.draw(1, 4), 1) for _ in range(m.draw(2, 4))]
    if activated:
        branches = [m.node("Relu", [branch], branch.shape) for branch in branches]
    if m.flip(0.4):
        branches = [conv(m, branch, 2, 3) for branch in branches]
    return joined(m, branches, 1)


def projections(m: ModelMaker, x: Tensor) -> Tensor:
    """Products of one input, as for queries, keys and values, or gates."""
    width = m.draw(1, 5)
    parts = []
    for _ in range(m.draw(2, 4)):
        w = m.weight((x.shape[-1], width), fan_in=x.shape[-1], dtype=x.dtype)
        part = m.node("MatMul", [x, w], (*x.shape[:-1], width))
        parts.append(m.node("Add", [part, m.weight((width,), dtype=x.dtype)], part.shape))
    gate = m.node("Sigmoid", [parts[0]], parts[0].shape)
    return m.node("Mul", [gate, parts[1]], gate.shape)


def gemm(m: ModelMaker, x: Tensor) -> Tensor:
    width, transposed = m.draw(1, 8), m.flip(0.5)
    shape = (width, x.shape[1]) if transposed else (x.shape[1], width)
    bias = m.weight(m.any([(width,), (1, width), (1,)]), dtype=x.dtype)
    operands = [x, m.weight(shape, fan_in=x.shape[1], dtype=x.dtype), bias]
    return m.node("Gemm", operands, (x.shape[0], width), transB=int(transposed), beta=0.5)


def gram(m: ModelMaker, x: Tensor) -> Tensor:
    """A product of two computed matrices, as in attention."""
    perm = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = m.node("Transpose", [x], (*x.shape[:-2], x.shape[-1], x.shape[-2]), perm=perm)
    scores = m.node("MatMul", [x, turned], (*x.shape[:-1], x.shape[-2]))
    scores = m.node("Mul", [scores, m.number(0.3, x.dtype)], scores.shape)
    weights = m.node("Softmax", [scores], scores.shape, axis=-1)
    return m.node("MatMul", [weights, x], x.shape)


def pool(m: ModelMaker, x: Tensor) -> Tensor:
    op_type = m.any(("MaxPool", "AveragePool"))
    stride = m.draw(1, 2)
    spatial = tuple((extent - 1) // stride + 1 for extent in x.shape[2:])
    attributes: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [stride] * 2}
    if op_type == "AveragePool":
        attributes["count_include_pad"] = int(m.flip(0.5))
    return m.node(op_type, [x], (*x.shape[:2], *spatial), **attributes)


def global_pool(m: ModelMaker, x: Tensor) -> Tensor:
    pooled = m.node("GlobalAveragePool", [x], (*x.shape[:2], 1, 1))
    return m.node("Flatten", [pooled], x.shape[:2]) if m.flip(0.5) else pooled


def softmax(m: ModelMaker, x: Tensor) -> Tensor:
    return m.node(m.any(("Softmax", "LogSoftmax")), [x], x.shape, axis=m.draw(0, x.rank - 1))


def layer_norm(m: ModelMaker, x: Tensor) -> Tensor:
    scale, bias = (m.weight(x.shape[-1:], dtype=x.dtype) for _ in range(2))
    return m.node("LayerNormalization", [x, scale, bias], x.shape, epsilon=0.1)


def reduce(m: ModelMaker, x: Tensor) -> Tensor:
    axis, keepdims = m.draw(0, x.rank - 1), int(m.flip(0.5))
    shape = (*x.shape[:axis], *[1] * keepdims, *x.shape[axis + 1 :])
    op_type = m.any(("ReduceMean", "ReduceMax", "ReduceL1", "ReduceSumSquare"))
    return m.node(op_type, [x, m.indices([axis])], shape, keepdims=keepdims)


def lstm(m: ModelMaker, x: Tensor) -> Tensor:
    steps, batch, width = x.shape
    n = m.draw(1, 4)
    w, r = m.weight((1, 4 * n, width), fan_in=width), m.weight((1, 4 * n, n), fan_in=n)
    y = m.node("LSTM", [x, w, r, m.weight((1, 8 * n))], (steps, 1, batch, n), hidden_size=n)
    return m.node("Squeeze", [y, m.indices([1])], (steps, batch, n))


def broadcast_shape(m: ModelMaker, x: Tensor) -> tuple[int, ...]:
    """A shape that broadcasts to x's."""
    shapes = [(), (1,), x.shape[-1:], x.shape, (x.shape[0], *[1] * (x.rank - 1))]
    if x.rank == 4:
        shapes.append((x.shape[1], 1, 1))
    shape: tuple[int, ...] = m.any(shapes)
    return shape


_ANY = range(1, 6)
RULES: Mapping[Rule, Sequence[int]] = {
    unary: _ANY,
    clip: _ANY,
    with_constant: _ANY,
    with_other: _ANY,
    fan_out: _ANY,
    gated: _ANY,
    conv: [4],
    conv_siblings: [4],
    pool: [4],
    global_pool: [4],
    batch_norm: [2, 3, 4],
    projections: [2, 3, 4],
    gemm: [2],
    gram: [2, 3, 4],
    softmax: _ANY,
    layer_norm: _ANY,
    reduce: range(2, 6),
}
"""Rule to the ranks that it takes."""

FLOAT32_RULES: Mapping[Rule, Sequence[int]] = {lstm: [3]}
"""The same, for rules that ONNX Runtime has in float32 only."""
