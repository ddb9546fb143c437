"""LSTM layers that are trained: LSTMWithGates keeps what LSTMGradient, its backward pass, reads.

Both are one layer in one direction, composites that unroll into a cell for each time step. Gates are in the order of
PyTorch: i, f, g, o; gate q of unit u is row `q * n + u` of weights and biases, and column of what is kept of gates.

LSTMWithGates: x `[T, b, i]`, initial h and c `[b, n]`, w `[4n, i]`, r `[4n, n]`, biases of w and of r `[4n]`; gives
the states h and c of all steps `[T, b, n]`, and their gates behind the activations `[T, b, 4n]`.

LSTMGradient: gates, c of all steps and the initial one, w and r, the gradients by h `[T, b, n]`, and by c, too, if
`has_cells`; gives the gradients by the gates before their activations `[T, b, 4n]`, by x, and by the initial h and c.
Those by weights and biases follow from the first of these at once, and are no part of it.

Attributes of both: reverse: bool, from the last step to the first one. batched_inputs: bool, false where absent: the
inputs of all steps times w, or the gradients by all gates times it, are one product, and what states add to the
gates is a product by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rammer.ir.expr import Axis, Expr, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, call, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.activations import ACTIVATIONS
from rammer.operators.attributes import flag
from rammer.operators.moved import joined, taken
from rammer.operators.registry import Builder, CompositeDef, OperatorDef, register, require

TRAINED_LAYERS = ("LSTMWithGates", "LSTMGradient")
"""The kinds of composites here."""

_GATES = 4
_GEMM: Attributes = {"alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": True}


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Steps, batch, inputs and hidden units."""

    steps: int
    batch: int
    inputs: int
    units: int

    def check(self, kind: str, inputs: Sequence[TensorType], shapes: Sequence[tuple[int, ...]]) -> None:
        """Compare operands with the shapes that they should have."""
        found = [type_.shape for type_ in inputs]
        require(found == list(shapes), f"{kind}: operands have shapes {found}, not {list(shapes)}")
        require({type_.dtype for type_ in inputs} == {DType.FLOAT32}, f"{kind}: operands are not all float32")

    @property
    def rows(self) -> int:
        """Of weights."""
        return _GATES * self.units

    @property
    def state(self) -> tuple[int, int]:
        """The shape of a state."""
        return self.batch, self.units

    def of_all(self, width: int) -> TensorType:
        """What there is of all steps."""
        return TensorType(DType.FLOAT32, (self.steps, self.batch, width))


def _forward_sizes(inputs: Sequence[TensorType]) -> _Sizes:
    kind = "LSTMWithGates"
    require(len(inputs) == 7 and inputs[0].rank == 3 and inputs[1].rank == 2, f"{kind} of {len(inputs)} operands")
    steps, batch, width = inputs[0].shape
    sizes = _Sizes(steps, batch, width, inputs[1].shape[1])
    weights = [(sizes.rows, sizes.inputs), (sizes.rows, sizes.units), (sizes.rows,), (sizes.rows,)]
    sizes.check(kind, inputs, [inputs[0].shape, sizes.state, sizes.state, *weights])
    return sizes


def _infer_forward(inputs: Sequence[TensorType], _: Attributes) -> tuple[TensorType, ...]:
    sizes = _forward_sizes(inputs)
    return sizes.of_all(sizes.units), sizes.of_all(sizes.units), sizes.of_all(sizes.rows)


def _expand_forward(builder: Builder, inputs: Sequence[int], attributes: Attributes, name: str) -> tuple[int, ...]:
    """Add the cells."""
    types = _infer_forward([builder.type(value) for value in inputs], attributes)
    x, h, c, w, r, *biases = inputs
    batched = _is_batched(attributes)
    if batched:
        (turned,) = builder.add("Transpose", [w], {"perm": (1, 0)}, name=f"{name}.w")
        x = _times(builder, x, turned, f"{name}.inputs")
        for bias in biases:
            (x,) = builder.add("Add", [x, bias], name=f"{name}.inputs.biased")
    steps = _order(types[0].shape[0], attributes)
    kept: dict[int, tuple[int, int, int]] = {}
    for t in steps:
        here = f"{name}.t{t}"
        entering = taken(builder, x, 0, t, f"{here}.x")
        operands = [entering, h, c, w, r, *biases]
        if batched:
            operands = [*builder.add("Gemm", [h, r, entering], _GEMM, name=f"{here}.sums"), c]
        h, c, *gates = builder.add("LSTMGatesCell", operands, {"batched_inputs": batched}, name=here)
        (side_by_side,) = builder.add("Concat", gates, {"axis": 1}, name=f"{here}.gates")
        kept[t] = h, c, side_by_side
    return tuple(
        joined(builder, [kept[t][i] for t in sorted(kept)], 0, type_, f"{name}.{what}")
        for i, (what, type_) in enumerate(zip(("h", "c", "gates"), types, strict=True))
    )


def _gradient_sizes(inputs: Sequence[TensorType], attributes: Attributes) -> _Sizes:
    kind, count = "LSTMGradient", 6 + flag(attributes, "has_cells")
    is_fit = len(inputs) == count and inputs[1].rank == 3 and inputs[3].rank == 2
    require(is_fit, f"{kind} of {len(inputs)} operands")
    steps, batch, units = inputs[1].shape
    sizes = _Sizes(steps, batch, inputs[3].shape[1], units)
    of_units, weights = sizes.of_all(units).shape, [(sizes.rows, sizes.inputs), (sizes.rows, units)]
    states = [sizes.of_all(sizes.rows).shape, of_units, sizes.state]
    sizes.check(kind, inputs, [*states, *weights, *([of_units] * (count - 5))])
    return sizes


def _infer_gradient(inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    sizes = _gradient_sizes(inputs, attributes)
    state = TensorType(DType.FLOAT32, sizes.state)
    return sizes.of_all(sizes.rows), sizes.of_all(sizes.inputs), state, state


def _expand_gradient(builder: Builder, inputs: Sequence[int], attributes: Attributes, name: str) -> tuple[int, ...]:
    """Add the cells, the one of the last step first, which no step follows.

    Where weights stay where they are used, it is like the others, so that it finds them there.
    """
    by_gates_type, by_x_type, *_ = _infer_gradient([builder.type(value) for value in inputs], attributes)
    gates, c, first_c, w, r, *by_states = inputs
    following = [] if _is_batched(attributes) else _zeros(builder, builder.type(first_c).shape, name)
    by_gates: dict[int, int] = {}
    order = list(_order(by_gates_type.shape[0], attributes))
    for place, t in reversed(list(enumerate(order))):
        here = f"{name}.t{t}"
        before = taken(builder, c, 0, order[place - 1], f"{here}.before") if place else first_c
        own = [taken(builder, value, 0, t, f"{here}.{letter}") for value, letter in ((gates, "gates"), (c, "c"))]
        own += [before, *(taken(builder, value, 0, t, f"{here}.by_state{i}") for i, value in enumerate(by_states))]
        *by_each, by_c = builder.add(
            "LSTMGradientCell",
            [*own, *following, *([r] if following else [])],
            {"has_cells": flag(attributes, "has_cells")},
            name=here,
        )
        (by_gates[t],) = builder.add("Concat", by_each, {"axis": 1}, name=f"{here}.by_gates")
        following = [by_gates[t], by_c]
    last, by_first_c = following
    (by_first_h,) = builder.add("MatMul", [last, r], name=f"{name}.by_h")
    every = joined(builder, [by_gates[t] for t in sorted(by_gates)], 0, by_gates_type, f"{name}.by_gates")
    if _is_batched(attributes):
        by_x = _times(builder, every, w, f"{name}.by_x")
    else:
        parts = [builder.add("MatMul", [by_gates[t], w], name=f"{name}.t{t}.by_x")[0] for t in sorted(by_gates)]
        by_x = joined(builder, parts, 0, by_x_type, f"{name}.by_x")
    return every, by_x, by_first_h, by_first_c


def _zeros(builder: Builder, state: tuple[int, ...], name: str) -> list[int]:
    """The gradients by the gates and the c of a step that there is not."""
    shapes = ((state[0], _GATES * state[1]), state)
    return [builder.constant(np.zeros(shape, np.float32), f"{name}.none{i}") for i, shape in enumerate(shapes)]


def _is_batched(attributes: Attributes) -> bool:
    return "batched_inputs" in attributes and flag(attributes, "batched_inputs")


def _order(steps: int, attributes: Attributes) -> range:
    """The steps of the forward pass in its order."""
    return range(steps)[::-1] if flag(attributes, "reverse") else range(steps)


def _times(builder: Builder, x: int, matrix: int, name: str) -> int:
    """`[T, b, k]` times a matrix `[k, m]`, as one product."""
    *outer, width = builder.type(x).shape
    (flat,) = builder.add("Reshape", [x], {"shape": (math.prod(outer), width)}, name=f"{name}.flat")
    (product,) = builder.add("MatMul", [flat, matrix], name=f"{name}.product")
    shape = (*outer, builder.type(matrix).shape[1])
    return builder.add("Reshape", [product], {"shape": shape}, name=name)[0]


def lstm_gates_cell(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """One step of an LSTM that gives its gates, too.

    Slots: x `[b, i]`, h and c `[b, n]`, w `[4n, i]`, r `[4n, n]`, biases of w and of r `[4n]`; with batched_inputs what
    all gates sum `[b, 4n]`, and c. Outputs `[b, n]`: h', c', and gates i, f, g, o.

    Raises:
        InvalidModelError: the shapes do not fit.
    """
    batched = flag(attributes, "batched_inputs")
    require(len(inputs) == (2 if batched else 7), f"LSTMGatesCell of {len(inputs)} operands")
    cell = _Cell.of(inputs, 1 if batched else 2)
    width, rows = inputs[0].shape[1], _GATES * cell.n
    k, j = Axis("k", width), Axis("j", cell.n)
    require(
        inputs[0].shape[1] == rows if batched else inputs[4].shape == (rows, cell.n), f"LSTMGatesCell: {cell.n} units"
    )

    def total(q: int) -> Expr:
        row = cell.u + q * cell.n
        if batched:
            return load(0, inputs[0], (cell.b, row))
        of_input, of_state = (load(slot, inputs[slot], (row,)) for slot in (5, 6))
        return (cell.product(0, 3, k, (row, k)) + of_input) + (cell.product(1, 4, j, (row, j)) + of_state)

    i, f, g, o = (_sigmoid(total(0)), _sigmoid(total(1)), _tanh(total(2)), _sigmoid(total(3)))
    c = f * cell.at(1 if batched else 2) + i * g
    return cell.results(o * _tanh(c), c, i, f, g, o)


def lstm_gradient_cell(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """One step of the backward pass of an LSTM.

    Slots: gates `[b, 4n]`, the step's c and the one before `[b, n]`, the gradient by its h, with has_cells by its c,
    too; then, where a step followed, the gradients by its gates `[b, 4n]` and by the c that it began with, and r
    `[4n, n]`. Outputs `[b, n]`: the gradients by the gates i, f, g, o before their activations, and by the c that this
    step began with.

    Raises:
        InvalidModelError: the shapes do not fit.
    """
    own = 4 + flag(attributes, "has_cells")
    require(len(inputs) in (own, own + 3), f"LSTMGradientCell of {len(inputs)} operands")
    cell = _Cell.of(inputs, 1)
    require(inputs[0].shape[1] == _GATES * cell.n, f"LSTMGradientCell: {inputs[0]} for {cell.n} units")
    by_h, by_c = cell.at(3), cell.at(4) if own == 5 else None
    if len(inputs) > own:
        j = Axis("j", _GATES * cell.n)
        require(inputs[own + 2].shape == (j.extent, cell.n), f"LSTMGradientCell: {inputs[own + 2]}, {cell.n} units")
        by_h = by_h + cell.product(own, own + 2, j, (j, cell.u))
        by_c = cell.at(own + 1) if by_c is None else by_c + cell.at(own + 1)
    i, f, g, o = (load(0, inputs[0], (cell.b, cell.u + q * cell.n)) for q in range(_GATES))
    seen = _tanh(cell.at(1))
    by_seen = by_h * o * (1.0 - seen * seen)
    by_c = by_seen if by_c is None else by_c + by_seen
    return cell.results(
        by_c * g * (i * (1.0 - i)),
        by_c * cell.at(2) * (f * (1.0 - f)),
        by_c * i * (1.0 - g * g),
        by_h * seen * (o * (1.0 - o)),
        by_c * f,
    )


@dataclass(frozen=True, slots=True)
class _Cell:
    """The parts that cells are made of: their operands, and the axes of batch and unit."""

    inputs: tuple[TensorType, ...]
    b: Axis
    u: Axis

    @classmethod
    def of(cls, inputs: Sequence[TensorType], state: int) -> _Cell:
        """The cell whose slot `state` is a state."""
        require(all(type_.rank == 2 for type_ in inputs[: state + 1]), f"a cell of {list(map(str, inputs))}")
        batch, n = inputs[state].shape
        return cls(tuple(inputs), Axis("b", batch), Axis("u", n))

    @property
    def n(self) -> int:
        """Hidden units."""
        return self.u.extent

    def at(self, slot: int) -> Expr:
        """This unit's element of a state."""
        return load(slot, self.inputs[slot], (self.b, self.u))

    def product(self, slot: int, weight: int, axis: Axis, indices: tuple[Expr, Expr]) -> Expr:
        """The sum along an axis of a row of one slot times elements of another, a matrix."""
        vector = load(slot, self.inputs[slot], (self.b, axis))
        return Reduce(ReduceFn.SUM, (axis,), vector * load(weight, self.inputs[weight], indices))

    def results(self, *bodies: Expr) -> TensorExpr:
        """The expression with one output per body."""
        type_, axes = TensorType(DType.FLOAT32, (self.b.extent, self.n)), (self.b, self.u)
        outputs = tuple(Output(type=type_, indices=axes, body=body) for body in bodies)
        return TensorExpr(axes=axes, inputs=self.inputs, outputs=outputs)


def _sigmoid(x: Expr) -> Expr:
    return ACTIVATIONS["Sigmoid"](x, {})


def _tanh(x: Expr) -> Expr:
    return call(ScalarFn.TANH, x)


register(OperatorDef(kind="LSTMGatesCell", build=lstm_gates_cell))
register(OperatorDef(kind="LSTMGradientCell", build=lstm_gradient_cell))
register(CompositeDef(kind="LSTMWithGates", infer=_infer_forward, expand=_expand_forward))
register(CompositeDef(kind="LSTMGradient", infer=_infer_gradient, expand=_expand_gradient))
