"""Productions of random models: branches, loops and scans over floating-point values, and quantised parts.

What is quantised by fixed ranges has scales that are powers of two and zero points that are even, so that where exactly
a runtime rounds does not matter. Ranges are found, as the model runs, of its inputs only, which all runtimes share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tests.support.model_maker import ModelMaker, Tensor
from tests.support.random_movement import Rule
from tests.support.random_rules import clip, gated, layer_norm, softmax, unary, with_constant, with_other

_STEPS: Sequence[Rule] = (unary, unary, clip, with_constant, with_other, gated, softmax, layer_norm)
"""Rules that keep the shape, for what is inside of branches and loops."""


def _steps(m: ModelMaker, x: Tensor, least: int = 1) -> Tensor:
    for _ in range(m.draw(least, 3)):
        x = m.any(_STEPS)(m, x)
    return x


def _condition(m: ModelMaker, x: Tensor) -> Tensor:
    """Whether the sum of a value is greater than some number."""
    total = m.node("ReduceSum", [x], (), keepdims=0)
    return m.node(m.any(("Greater", "Less")), [total, m.number(m.rng.normal())], (), dtype="bool")


def branch(m: ModelMaker, x: Tensor) -> Tensor:
    """An If, whose branches may hold another, read values around it, or give one of these as it is."""

    def build() -> Sequence[Tensor]:
        y = branch(m, x) if m.flip(0.15) else _steps(m, x, least=0)
        return [m.node("Identity", [y], y.shape)]

    graphs = {name: m.body([], build) for name in ("then_branch", "else_branch")}
    return m.node("If", [_condition(m, x)], x.shape, dtype="float32", **graphs)


def loop(m: ModelMaker, x: Tensor) -> Tensor:
    """A Loop of up to four trips, which may end earlier; the value after it, or what each trip gave."""
    ends, trips = m.flip(0.5), m.draw(1, 4)
    v, i, going = m.inner(x.shape), m.inner((), "int64"), m.inner((), "bool")

    def build() -> Sequence[Tensor]:
        y = m.node("Tanh", [m.node("Add", [_steps(m, v), x], x.shape)], x.shape)
        again = _condition(m, y) if ends else m.node("Identity", [going], ())
        return [again, y] if ends else [again, y, m.node("Identity", [y], y.shape)]

    body = m.body([i, going, v], build)
    operands = [m.indices(trips), m.constant(np.asarray(True), "bool"), x]
    if ends:
        return m.node("Loop", operands, x.shape, dtype="float32", body=body)
    last, each = m.nodes("Loop", operands, [x.shape, (trips, *x.shape)], dtype="float32", body=body)
    return each if each.rank <= 4 and m.flip(0.5) else last


def scan(m: ModelMaker, x: Tensor) -> Tensor:
    """A Scan along the first dimension, forwards or backwards; all results, or the last state."""
    shape = x.shape[1:]
    state, one = m.inner(shape), m.inner(shape)

    def build() -> Sequence[Tensor]:
        following = m.node("Tanh", [m.node("Add", [_steps(m, state), one], shape)], shape)
        return [following, _steps(m, m.node("Mul", [following, one], shape))]

    body = m.body([state, one], build)
    direction = [int(m.flip(0.3))]
    last, each = m.nodes(
        "Scan", [m.weight(shape), x], [shape, x.shape], body=body, num_scan_inputs=1, scan_input_directions=direction
    )
    return last if m.flip(0.3) else each


def _bytes(m: ModelMaker) -> tuple[str, list[Tensor]]:
    """A type, one in a model, and a scale and zero point for values near one.

    ONNX Runtime 1.32 makes invalid models of some that move both types between quantisations.
    """
    dtype = m.byte_type = m.byte_type or m.any(("uint8", "int8"))
    zero = 2 * m.draw(50, 70) if dtype == "uint8" else 2 * m.draw(-8, 8)
    return dtype, [m.number(2.0 ** -m.draw(4, 5)), m.number(zero, dtype)]


def _quantised(m: ModelMaker, x: Tensor, dtype: str, numbers: Sequence[Tensor]) -> Tensor:
    return m.node("QuantizeLinear", [x, *numbers], x.shape, dtype=dtype)


def _weights(m: ModelMaker, shape: Sequence[int], *, axis: int | None = None) -> tuple[Tensor, list[Tensor]]:
    """int8, its scale (or one for each position along an axis) and zero point."""
    values = m.constant(m.rng.integers(-60, 61, shape), "int8")
    scales = () if axis is None else (shape[axis],)
    return values, [
        m.constant(2.0 ** -m.rng.integers(6, 8, scales).astype(np.float64), "float32"),
        m.constant(np.zeros(scales), "int8"),
    ]


def passed(m: ModelMaker, x: Tensor) -> Tensor:
    """Quantised and dequantised, perhaps moved between."""
    dtype, numbers = _bytes(m)
    q = _quantised(m, x, dtype, numbers)
    if m.flip(0.5):
        q = m.node("Transpose", [q], x.shape[::-1], perm=list(range(x.rank))[::-1])
    return m.node("DequantizeLinear", [q, *numbers], q.shape, dtype="float32")


def product_by_bytes(m: ModelMaker, x: Tensor) -> Tensor:
    """A product or convolution between quantisations, with what exporters put there."""
    y = passed(m, x)
    channel = y.rank == 4 and m.flip(0.7)
    width = m.draw(1, 8)
    shape = (width, y.shape[1], 1, 1) if channel else (y.shape[-1], width)
    axis = (0 if channel else 1) if m.flip(0.5) else None
    values, numbers = _weights(m, shape, axis=axis)
    attributes = {} if axis is None else {"axis": axis}
    w = m.node("DequantizeLinear", [values, *numbers], shape, dtype="float32", **attributes)
    result = (y.shape[0], width, *y.shape[2:]) if channel else (*y.shape[:-1], width)
    z = m.node("Conv" if channel else "MatMul", [y, w], result)
    if m.flip(0.5):
        z = m.node("Relu", [z], result)
    return passed(m, z) if m.flip(0.7) else z


def sum_of_bytes(m: ModelMaker, x: Tensor) -> Tensor:
    """Two quantised values added and quantised."""
    others = m.like(x)
    dtype, numbers = _bytes(m)
    operands = []
    for one in (x, m.any(others) if others else unary(m, x)):
        q = _quantised(m, one, dtype, numbers)
        operands.append(m.node("DequantizeLinear", [q, *numbers], x.shape, dtype="float32"))
    total = m.node(m.any(("Add", "Mul")), operands, x.shape)
    return m.node("DequantizeLinear", [_quantised(m, total, dtype, numbers), *numbers], x.shape, dtype="float32")


def operators_of_bytes(m: ModelMaker, x: Tensor) -> Tensor:
    """QLinearMatMul, MatMulInteger or ConvInteger, and back."""
    dtype, numbers = _bytes(m)
    q, width = _quantised(m, x, dtype, numbers), m.draw(1, 6)
    kind = m.any(
        ("QLinearMatMul", "MatMulInteger", "ConvInteger" if x.rank == 4 and dtype == "uint8" else "MatMulInteger")
    )
    if kind == "ConvInteger":
        values = m.constant(m.rng.integers(0, 121, (width, x.shape[1], 1, 1)), "uint8")
        total = m.node(
            kind, [q, values, numbers[1], m.number(60, "uint8")], (x.shape[0], width, *x.shape[2:]), dtype="int32"
        )
        return _scaled(m, total)
    shape = (*x.shape[:-1], width)
    values, scale = _weights(m, (x.shape[-1], width))
    if kind == "MatMulInteger":
        return _scaled(m, m.node(kind, [q, values, numbers[1], scale[1]], shape, dtype="int32"))
    result = m.node(kind, [q, *numbers, values, *scale, *numbers], shape, dtype=dtype)
    return m.node("DequantizeLinear", [result, *numbers], shape, dtype="float32")


def _scaled(m: ModelMaker, total: Tensor) -> Tensor:
    """Sums of products as numbers near one."""
    number = m.node("Cast", [total], total.shape, dtype="float32", to=1)
    return m.node("Mul", [number, m.number(2.0**-11)], total.shape)


def by_its_range(m: ModelMaker, x: Tensor) -> Tensor:
    """An input quantised by the range it has as the model runs."""
    inputs = [t for t in m.tensors if t.name in m.inputs and t.dtype == "float32"]
    x = m.any(inputs)
    results = [(x.shape, "uint8"), ((), "float32"), ((), "uint8")]
    q, scale, zero = m.typed("DynamicQuantizeLinear", [x], results)
    values, numbers = _weights(m, (x.shape[-1], m.draw(1, 6)))
    total = m.node("MatMulInteger", [q, values, zero, numbers[1]], (*x.shape[:-1], values.shape[1]), dtype="int32")
    number = m.node("Cast", [total], total.shape, dtype="float32", to=1)
    return m.node("Mul", [number, m.node("Mul", [scale, numbers[0]], ())], total.shape)


_ANY = range(1, 5)
PART_RULES: Mapping[Rule, Sequence[int]] = {
    branch: _ANY,
    loop: _ANY,
    scan: range(2, 5),
    passed: _ANY,
    product_by_bytes: range(2, 5),
    sum_of_bytes: _ANY,
    operators_of_bytes: range(2, 5),
    by_its_range: _ANY,
}
"""Rule to the ranks that it takes, for float32."""
