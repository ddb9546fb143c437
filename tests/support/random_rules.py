"""Productions of random models over floating-point values, which stay near one.

A rule takes the model under construction and a value, and adds one to nine nodes that read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

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
        ("Erf", {}),
        ("Softplus", {}),
        ("Elu", {"alpha": 0.5}),
        ("Gelu", {}),
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


def quotient(m: ModelMaker, x: Tensor) -> Tensor:
    others = m.like(x)
    size = m.node("Abs", [m.any(others) if others else x], x.shape)
    return m.node("Div", [x, m.node("Add", [size, m.number(0.5, x.dtype)], x.shape)], x.shape)


def conv(m: ModelMaker, x: Tensor, out: int | None = None, kernel: int | None = None) -> Tensor:
    """A convolution over one or two dimensions; with `kernel`, one that keeps their extents."""
    channels, spatial = x.shape[1], x.shape[2:]
    grouped = out is None and m.flip(0.3)
    group = channels if grouped else 1
    out = channels * m.draw(1, 2) if grouped else out or m.draw(1, 8)
    size = kernel or int(m.any((1, 1, 3)))
    dilation = m.draw(1, 2) if kernel is None else 1
    reach = dilation * (size - 1)
    pad = reach // 2 if kernel or min(spatial) <= reach or m.flip(0.7) else 0
    more = m.draw(0, 1) if kernel is None else 0
    stride = m.draw(1, 2) if kernel is None else 1
    w = m.weight((out, channels // group, *[size] * len(spatial)), fan_in=channels // group * size, dtype=x.dtype)
    operands = [x, w, m.weight((out,), dtype=x.dtype)] if m.flip(0.5) else [x, w]
    shape = (x.shape[0], out, *((extent + 2 * pad + more - reach - 1) // stride + 1 for extent in spatial))
    y = m.node(
        "Conv",
        operands,
        shape,
        group=group,
        pads=[*[pad] * len(spatial), *[pad + more] * len(spatial)],
        strides=[stride] * len(spatial),
        dilations=[dilation] * len(spatial),
    )
    return batch_norm(m, y) if m.flip(0.5) else y


def conv_transpose(m: ModelMaker, x: Tensor) -> Tensor:
    out, stride = m.draw(1, 3), m.draw(1, 2)
    w = m.weight((x.shape[1], out, 3, 3), fan_in=x.shape[1] * 3, dtype=x.dtype)
    shape = (x.shape[0], out, *((extent - 1) * stride + 1 for extent in x.shape[2:]))
    return m.node("ConvTranspose", [x, w], shape, strides=[stride] * 2, pads=[1] * 4)


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


def instance_norm(m: ModelMaker, x: Tensor) -> Tensor:
    scale, bias = (m.weight(x.shape[1:2], dtype=x.dtype) for _ in range(2))
    return m.node("InstanceNormalization", [x, scale, bias], x.shape, epsilon=0.1)


def reduce(m: ModelMaker, x: Tensor) -> Tensor:
    """Over one dimension or two."""
    axes = sorted(int(axis) for axis in m.rng.choice(x.rank, m.draw(1, 2), replace=False))
    keepdims = int(m.flip(0.5))
    shape = [1 if dim in axes else extent for dim, extent in enumerate(x.shape) if keepdims or dim not in axes]
    op_type = m.any(("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare", "ReduceLogSumExp"))
    return m.node(op_type, [x, m.indices(axes)], shape, keepdims=keepdims)


def running_sum(m: ModelMaker, x: Tensor) -> Tensor:
    axis = m.constant(np.asarray(m.draw(0, x.rank - 1)), "int64")
    total = m.node("CumSum", [x, axis], x.shape, reverse=int(m.flip(0.3)), exclusive=int(m.flip(0.3)))
    return m.node("Mul", [total, m.number(0.4)], x.shape)


def recurrent(m: ModelMaker, x: Tensor) -> Tensor:
    """A layer over time; its last state, or all outputs."""
    steps, batch, width = x.shape
    op_type, gates = m.any((("LSTM", 4), ("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    direction = m.any(("forward", "forward", "reverse", "bidirectional"))
    directions, n = 2 if direction == "bidirectional" else 1, m.draw(1, 4)
    w = m.weight((directions, gates * n, width), fan_in=width)
    r = m.weight((directions, gates * n, n), fan_in=n)
    b = m.weight((directions, 2 * gates * n))
    shapes = [(steps, directions, batch, n), (directions, batch, n)]
    outputs, last = m.nodes(op_type, [x, w, r, b], shapes, hidden_size=n, direction=direction)
    if m.flip(0.3):
        return last
    turned = m.node("Transpose", [outputs], (steps, batch, directions, n), perm=[0, 2, 1, 3])
    return m.node("Reshape", [turned, m.indices((0, 0, -1))], (steps, batch, directions * n))


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
    quotient: _ANY,
    conv: [3, 4],
    conv_transpose: [4],
    conv_siblings: [4],
    pool: [4],
    global_pool: [4],
    batch_norm: [2, 3, 4],
    projections: [2, 3, 4],
    gemm: [2],
    gram: [2, 3, 4],
    softmax: _ANY,
    layer_norm: _ANY,
    instance_norm: [3, 4],
    reduce: range(2, 6),
}
"""Rule to the ranks that it takes."""

FLOAT32_RULES: Mapping[Rule, Sequence[int]] = {recurrent: [3], running_sum: _ANY}
"""The same, for rules that ONNX Runtime has in float32 only."""
