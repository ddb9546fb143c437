"""Where a condition can hold: at a position that is read from memory, or at some from there on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rammer.ir.expr import (
    Axis,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Output,
    Reduce,
    ScalarFn,
    TensorExpr,
    all_nodes,
    cast,
    rebuild,
    substitute,
)
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType, TensorType

_INTEGERS = frozenset({DType.INT8, DType.INT16, DType.INT32, DType.INT64})
_DEEPEST = 4  # operators that a condition is looked for in


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where a condition may hold: along an axis at `count` elements from `first` on, in a circle."""

    axis: Axis
    first: Expr
    count: int


def stores_plainly(output: Output, expr: TensorExpr) -> bool:
    """Whether each index of an output is an axis of its own."""
    return len(output.indices) == len(expr.axes) and {*output.indices} == {*expr.axes}


def written(slots: Slots, condition: Expr) -> Written | None:
    """Where alone a condition can hold."""
    terms = [slots.seen_through(term) for term in _terms(slots.seen_through(condition))]
    for term in terms:
        match term:
            case Call(ScalarFn.EQ, (a, b)):
                for here, there in ((a, b), (b, a)):
                    axis = slots.axis(here)
                    if axis is not None and _is_apart(there, axis):
                        return Written(axis=axis, first=cast(DType.INT64, there), count=1)
    for below in terms:
        for above in terms:
            found = _range(slots, below, above)
            if found is not None:
                return found
    return None


def _range(slots: Slots, below: Expr, above: Expr) -> Written | None:
    """Where `0 <= t - first` and `t - first < count` hold, or `(t - first) % extent` in a circle."""
    match below, above:
        case (
            Call(ScalarFn.LE, (Const(0, DType.INT64), offset)),
            Call(ScalarFn.LT, (other, Const(count, DType.INT64))),
        ) if offset is other:
            shifted, turn = offset, None
            match offset:
                case Call(ScalarFn.MOD, (inner, Const(extent))):
                    shifted, turn = inner, int(extent)
            if not (isinstance(shifted, Call) and shifted.fn is ScalarFn.SUB):
                return None
            axis, first = slots.axis(shifted.args[0]), shifted.args[1]
            if axis is None or turn not in (None, axis.extent) or not 0 < int(count) <= axis.extent:
                return None
            return Written(axis=axis, first=first, count=int(count)) if _is_apart(first, axis) else None
    return None


def _is_apart(position: Expr, axis: Axis) -> bool:
    """Whether a position is an integer that is the same all along an axis."""
    return position.dtype in _INTEGERS and axis not in all_nodes(position)


def _terms(condition: Expr) -> Iterator[Expr]:
    """What a condition asks, each by itself."""
    if isinstance(condition, Call) and condition.fn is ScalarFn.AND:
        for argument in condition.args:
            yield from _terms(argument)
    else:
        yield condition


class Slots:
    """The operands of an operator, to which those of operators before it are added as a condition is looked into."""

    def __init__(self, graph: Graph, makers: Mapping[int, Operator], operator: Operator) -> None:
        assert operator.expr is not None
        self.values: list[int] = list(operator.inputs)
        self.types: list[TensorType] = list(operator.expr.inputs)
        self._graph = graph
        self._makers = makers

    def value(self, load: Load) -> int:
        """The value that is loaded."""
        return self.values[load.slot]

    def seen_through(self, condition: Expr) -> Expr:
        """A condition as it is computed, where it is loaded."""
        for _ in range(_DEEPEST):
            made = self._made(condition) if isinstance(condition, Load) else None
            if made is None:
                break
            condition = made
        return condition

    def axis(self, index: Expr) -> Axis | None:
        """The axis of which this is the position: itself, or a table of numbers from 0."""
        if isinstance(index, Cast) and index.type in (DType.INT32, DType.INT64):
            index = index.arg
        if isinstance(index, Axis):
            return index
        table = self._graph.constants.get(self.value(index)) if isinstance(index, Load) and index.fill is None else None
        if table is None or not isinstance(index, Load) or not np.issubdtype(table.dtype, np.integer):
            return None
        along = [place for place in index.indices if not isinstance(place, Const) and _extent(place) != 1]
        if len(along) == 1 and isinstance(along[0], Axis) and table.size == along[0].extent:
            return along[0] if np.array_equal(table.reshape(-1), np.arange(table.size)) else None
        return None

    def _made(self, load: Load) -> Expr | None:
        """What is loaded, as the operator before computes it, over slots of this one."""
        maker = self._makers.get(self.value(load))
        if maker is None or maker.expr is None or load.fill is not None:
            return None
        output = maker.expr.outputs[maker.outputs.index(self.value(load))]
        nodes = all_nodes(output.body)
        if not stores_plainly(output, maker.expr) or any(isinstance(node, Reduce) for node in nodes):
            return None
        slots = [self._slot(value, type_) for value, type_ in zip(maker.inputs, maker.expr.inputs, strict=True)]

        def visit(node: Expr) -> Expr | None:
            return node.at(slots[node.slot], node.indices) if isinstance(node, Load) else None

        (body,) = rebuild([output.body], visit)
        places = zip(output.indices, load.indices, strict=True)
        (placed,) = substitute([body], {axis: place for axis, place in places if isinstance(axis, Axis)})
        return placed

    def _slot(self, value: int, type_: TensorType) -> int:
        if value not in self.values:
            self.values.append(value)
            self.types.append(type_)
        return self.values.index(value)


def _extent(place: Expr) -> int | None:
    return place.extent if isinstance(place, Axis) else None
