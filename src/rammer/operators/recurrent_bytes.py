"""LSTM layers whose weights are integers of 8 bits: LSTMOfBytes, a composite, and its cell, LSTMCellOfBytes.

A state is between -1 and 1, so that it travels as two digits besides, bytes that stand for

    h = (high - 128) / 127 + (low - 128) / (127 * 254)

to some 1.6e-5, and gates sum products of these by the weights, exactly: of gate q and unit u

    a[q n + u] + factors[q n + u] * (254 * sum[j](r[q n + u, j] * (high[j] - 128)) + sum[j](r[..] * (low[j] - 128)))

`a` is what the input and the biases add, `zeros` are `128 * sum[j](r)`. Weights lie in quads, four products a step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.ir.expr import Axis, Expr, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, call, cast, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import flag
from rammer.operators.moved import joined, taken
from rammer.operators.registry import Builder, CompositeDef, OperatorDef, register, require

HIGH, LOW = 127, 254
"""A state times HIGH is rounded to the first digit, what is left times LOW to the second."""
ZERO = 128
"""The digit that stands for 0."""
_GATES = 4
_QUAD = 4


def cell(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """One step; gates i, o, f, c.

    Slots: a `[b, 4n]`, high and low uint8 `[b, n]`, c `[b, n]`, r int8 `[4n, n / 4, 4]`, zeros int32 `[4n]`, factors
    `[4n]`, biases `[4n]`. Outputs: h', c', high', low'.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    a, high, _, state, r, *_ = inputs
    batch, n = state.shape
    fits = a.shape == (batch, _GATES * n) and high.shape == state.shape and r.shape == (_GATES * n, n // _QUAD, _QUAD)
    require(fits and len(inputs) == 8, f"LSTMCellOfBytes of {a}, {high}, {state} and {r}")
    b, u, j, quad = Axis("b", batch), Axis("u", n), Axis("j", n // _QUAD), Axis("q", _QUAD)

    def row(slot: int, gate: int) -> Expr:
        return load(slot, inputs[slot], (u + gate * n,))

    def total(slot: int, gate: int) -> Expr:
        digit = cast(DType.INT32, load(slot, inputs[slot], (b, j * _QUAD + quad)))
        weight = cast(DType.INT32, load(4, r, (u + gate * n, j, quad)))
        exact = Reduce(ReduceFn.SUM, (j, quad), digit * weight) - row(5, gate)
        return cast(DType.FLOAT32, exact)

    def gate(number: int) -> Expr:
        products = (total(1, number) * float(LOW) + total(2, number)) * row(6, number)
        return load(0, a, (b, u + number * n)) + row(7, number) + products

    i, o, f = (call(ScalarFn.SIGMOID, gate(number)) for number in range(3))
    new_c = f * load(3, state, (b, u)) + i * call(ScalarFn.TANH, gate(3))
    h = o * call(ScalarFn.TANH, new_c)
    first = call(ScalarFn.ROUND, h * float(HIGH))
    digits = (first, call(ScalarFn.ROUND, (h * float(HIGH) - first) * float(LOW)))
    bodies = (h, new_c, *(cast(DType.UINT8, cast(DType.INT32, digit) + ZERO) for digit in digits))
    types = (state, state, high, high)
    outputs = tuple(Output(type=type_, indices=(b, u), body=body) for type_, body in zip(types, bodies, strict=True))
    return TensorExpr(axes=(b, u), inputs=tuple(inputs), outputs=outputs)


def infer(inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """Types of Y and the last states."""
    a, *_, state = inputs
    return (TensorType(state.dtype, (a.shape[0], *state.shape)), state, state)


def expand(builder: Builder, inputs: Sequence[int], attributes: Attributes, name: str) -> tuple[int, ...]:
    """Add the cells.

    Slots: a `[T, b, 4n]`, r, zeros, factors and biases as the cell's, the first c `[b, n]`; the first h is 0.
    Attributes: backward: bool. Outputs: Y `[T, b, n]`, h and c `[b, n]`.
    """
    a, *weights, c = inputs
    y, state, _ = infer([builder.type(value) for value in inputs], attributes)
    digits = [builder.constant(np.full(state.shape, ZERO, np.uint8), f"{name}.{part}0") for part in ("high", "low")]
    h = builder.constant(np.zeros(state.shape, state.dtype.numpy), f"{name}.h0")
    steps = range(y.shape[0])
    hidden = [h for _ in steps]
    for t in reversed(steps) if flag(attributes, "backward") else steps:
        entering = taken(builder, a, 0, t, f"{name}.a{t}")
        h, c, *digits = builder.add("LSTMCellOfBytes", [entering, *digits, c, *weights], name=f"{name}.t{t}")
        hidden[t] = h
    return joined(builder, hidden, 0, y, f"{name}.y"), h, c


register(OperatorDef(kind="LSTMCellOfBytes", build=cell))
register(CompositeDef(kind="LSTMOfBytes", infer=infer, expand=expand))
