"""update_in_place: a state of which a run writes a few elements is stored where it is read, and they alone.

    present[t] = select(t == p, new, past[t]) for t<L   ->   present[p % L] = select(p % L == p, new, past[p % L])

Both are one array then, and what is not written stays as it is. What is written holds what the expression says of it,
so all there is to know is where the condition cannot hold: `t == p` holds at no `t` but `p % L`, and `0 <= t - p < n`
at none but `(p % L + r) % L` for `r<n`. Where it does not hold there, what is there is written again.

A concatenation of new elements with parts of the old state that stay where they were stores the new ones.

Who reads the state as it was comes before the operator that writes it, who reads what it is to be comes after. Where
that cannot be, or the condition is another one, the state keeps its two arrays. Attention to a cache reads the old
elements and the new ones by now (see `fuse`), and does not wait for them to be stored.

Ordering restriction: the last pass, since passes see neither the order nor that elements stay.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
    call,
    cast,
    rebuild,
    substitute,
)
from rammer.ir.graph import Graph, Operator
from rammer.ir.region import depends_on_data
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.slots import without_unused_slots

_VIEWS = frozenset({"Reshape", "Slice"})
_INTEGERS = frozenset({DType.INT8, DType.INT16, DType.INT32, DType.INT64})
_DEEPEST = 4  # operators that a condition is looked for in


def run(graph: Graph, device: VDevice) -> Graph:
    """Update states in place; see the module.

    Args:
        graph: as it is to be lowered.
        device: has the users' rKernels, which compute operators as they are.
    """
    own = {extern.kind for extern in device.externs}
    tried = (_update_of(graph, position, own) for position in range(len(graph.states)))
    found = [update for update in tried if update is not None]
    kept, settled = found, _ordered(graph, found)
    if settled is None:
        kept = []
        for update in found:
            if _ordered(graph, [*kept, update]) is not None:
                kept.append(update)
        settled = _ordered(graph, kept)
    if settled is None or not kept:
        return graph
    rewriter = Rewriter(graph)
    for operator in settled:
        rewriter.insert(operator)
    in_place = {update.state for update in kept}
    states = (replace(state, in_place=number in in_place) for number, state in enumerate(graph.states))
    return replace(rewriter.finish(), states=tuple(states))


@dataclass(frozen=True, slots=True)
class _Update:
    """An operator that updates a state, by its number, and the values that are that state as it was before."""

    state: int
    operator: Operator
    before: frozenset[int]


def _update_of(graph: Graph, state: int, own: Collection[str]) -> _Update | None:
    """How a state is updated in place, by itself, if no user's rKernel of the kinds in `own` makes it."""
    old = graph.inputs[len(graph.inputs) - len(graph.states) + state]
    new = graph.outputs[len(graph.outputs) - len(graph.states) + state]
    makers = graph.producers()
    operator, before = None if makers[new].kind in own else _update(graph, makers, old, new), _views_of(graph, old)
    if operator is None or not before.isdisjoint({*operator.inputs} - {old}):
        return None
    return _Update(state, operator, before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """Where a condition may hold: along an axis at `count` elements from `first` on, in a circle."""

    axis: Axis
    first: Expr
    count: int


def _update(graph: Graph, makers: Mapping[int, Operator], old: int, new: int) -> Operator | None:
    """What writes a state's new elements alone, or None where it is not known that the others stay."""
    maker = makers[new]
    if maker.expr is None or maker.kind == "Concat":
        return _spliced(graph, makers, maker, old)
    output = maker.expr.outputs[maker.outputs.index(new)]
    slots = _Slots(graph, makers, maker)
    if output.indices != maker.expr.axes or any(isinstance(node, Reduce) for node in all_nodes(output.body)):
        return None
    condition = _condition(slots, output, old)
    written = None if condition is None else _written(slots, condition)
    if written is None or not depends_on_data(written.first) or not output.type.size:
        return None
    update = _restricted(slots, maker, new, output, written)
    assert update.expr is not None
    (stored,) = update.expr.outputs
    of_old = [load for load in update.expr.loads if update.inputs[load.slot] == old]
    return update if all(load.indices == stored.indices for load in of_old) else None  # others may be written by then


def _spliced(graph: Graph, makers: Mapping[int, Operator], maker: Operator, old: int) -> Operator | None:
    """What writes the one part of a concatenation that is no part of the old state at the same place."""
    if maker.kind != "Concat":
        return None
    axis, fresh, offset, end = maker.attributes["axis"], None, 0, 0
    for value in maker.inputs:
        type_ = graph.values[value].type
        if not _is_part(makers.get(value), old, [end if dim == axis else 0 for dim in range(type_.rank)]):
            if fresh is not None:
                return None
            fresh, offset = value, end
        end += type_.shape[int(str(axis))]
    if fresh is None or not graph.values[fresh].type.size:
        return None
    type_ = graph.values[fresh].type
    axes = tuple(Axis(f"i{dim}", extent) for dim, extent in enumerate(type_.shape))
    stored = Output(
        type=graph.values[maker.outputs[0]].type,
        indices=tuple(place + offset if dim == axis else place for dim, place in enumerate(axes)),
        body=Load(0, axes, type_.dtype),
    )
    expr = TensorExpr(axes=axes, inputs=(type_,), outputs=(stored,))
    return replace(maker, kind="Update", inputs=(fresh,), expr=expr, attributes={})


def _is_part(maker: Operator | None, old: int, starts: Sequence[int]) -> bool:
    """Whether a value is the part of the old state from `starts` on."""
    if maker is None or maker.kind != "Slice" or maker.inputs != (old,):
        return False
    return maker.attributes["starts"] == tuple(starts) and maker.attributes["steps"] == (1,) * len(starts)


def _condition(slots: _Slots, output: Output, old: int) -> Expr | None:
    """What holds wherever an output is something else than the old state."""

    def is_old(value: Expr) -> bool:
        kept = _bare(value)
        return isinstance(kept, Load) and slots.value(kept) == old and kept.indices == output.indices

    match _bare(output.body):
        case Call(ScalarFn.SELECT, (condition, _, rest)) if is_old(rest):
            return condition
        case Call(ScalarFn.SELECT, (condition, rest, _)) if is_old(rest):
            match slots.seen_through(condition):
                case Call(ScalarFn.NOT, (inner,)):
                    return inner
                case Call(ScalarFn.NE, (a, b)):
                    return call(ScalarFn.EQ, a, b)
    return None


def _restricted(slots: _Slots, maker: Operator, new: int, output: Output, written: _Written) -> Operator:
    """The operator that stores an output where it is written."""
    assert maker.expr is not None
    place, axes = _place(written, {axis.name for axis in maker.expr.axes})
    body, *indices = substitute([output.body, *output.indices], {written.axis: place})
    kept = tuple(axis for axis in maker.expr.axes if axis is not written.axis)
    expr = TensorExpr(
        axes=(*kept, *axes),
        inputs=tuple(slots.types),
        outputs=(Output(type=output.type, indices=tuple(indices), body=body),),
    )
    expr, inputs = without_unused_slots(expr, slots.values)
    return Operator(kind="Update", name=maker.name, inputs=inputs, outputs=(new,), expr=expr, sources=maker.sources)


def _place(written: _Written, names: set[str]) -> tuple[Expr, tuple[Axis, ...]]:
    """Where each element that is written lies along the axis, all within it and none twice, and what they are over."""
    extent, first = written.axis.extent, call(ScalarFn.MOD, written.first, written.axis.extent)
    if written.count == 1:
        return first, ()
    row = Axis(next(name for name in _names() if name not in names), written.count)
    return call(ScalarFn.MOD, first + row, extent), (row,)


def _names() -> Iterator[str]:
    number = 0
    while True:
        yield f"row{number}"
        number += 1


def _written(slots: _Slots, condition: Expr) -> _Written | None:
    """Where alone a condition can hold."""
    terms = [slots.seen_through(term) for term in _terms(slots.seen_through(condition))]
    for term in terms:
        match term:
            case Call(ScalarFn.EQ, (a, b)):
                for here, there in ((a, b), (b, a)):
                    axis = slots.axis(here)
                    if axis is not None and _is_apart(there, axis):
                        return _Written(axis=axis, first=cast(DType.INT64, there), count=1)
    for below in terms:
        for above in terms:
            found = _range(slots, below, above)
            if found is not None:
                return found
    return None


def _range(slots: _Slots, below: Expr, above: Expr) -> _Written | None:
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
            return _Written(axis=axis, first=first, count=int(count)) if _is_apart(first, axis) else None
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


def _bare(value: Expr) -> Expr:
    """A value without conversions to float32 and back, which leave 16-bit floats as they are."""
    while isinstance(value, Cast) and (
        (value.type is DType.FLOAT32 and value.arg.dtype.is_half)
        or (value.type.is_half and value.arg.dtype is DType.FLOAT32)
    ):
        value = value.arg
    return value


class _Slots:
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
        if output.indices != maker.expr.axes or any(isinstance(node, Reduce) for node in nodes):
            return None
        slots = [self._slot(value, type_) for value, type_ in zip(maker.inputs, maker.expr.inputs, strict=True)]

        def visit(node: Expr) -> Expr | None:
            return node.at(slots[node.slot], node.indices) if isinstance(node, Load) else None

        (body,) = rebuild([output.body], visit)
        (placed,) = substitute([body], dict(zip(maker.expr.axes, load.indices, strict=True)))
        return placed

    def _slot(self, value: int, type_: TensorType) -> int:
        if value not in self.values:
            self.values.append(value)
            self.types.append(type_)
        return self.values.index(value)


def _extent(place: Expr) -> int | None:
    return place.extent if isinstance(place, Axis) else None


def _without(operators: Sequence[Operator], made: Collection[int]) -> list[Operator]:
    """The operators, none of which makes any of some values."""
    rest: list[Operator] = []
    for operator in operators:
        kept = [place for place, output in enumerate(operator.outputs) if output not in made]
        if len(kept) == len(operator.outputs):
            rest.append(operator)
        elif kept:
            assert operator.expr is not None
            expr = replace(operator.expr, outputs=tuple(operator.expr.outputs[place] for place in kept))
            expr, inputs = without_unused_slots(expr, operator.inputs)
            outputs = tuple(operator.outputs[place] for place in kept)
            rest.append(replace(operator, expr=expr, inputs=inputs, outputs=outputs, attributes={}))
    return rest


def _views_of(graph: Graph, value: int) -> frozenset[int]:
    """A value, and what may be the same memory as it."""
    found = {value}
    for operator in graph.operators:
        if operator.kind in _VIEWS and not found.isdisjoint(operator.inputs):
            found.update(operator.outputs)
    return frozenset(found)


def _ordered(graph: Graph, updates: Sequence[_Update]) -> list[Operator] | None:
    """All operators, each update behind what reads its state as it was and as late as it can; None if it cannot."""
    operators = _without(graph.operators, {update.operator.outputs[0] for update in updates})
    everything = [*operators, *(update.operator for update in updates)]
    makers = {output: place for place, operator in enumerate(everything) for output in operator.outputs}
    readers: dict[int, list[int]] = {}
    for place, operator in enumerate(everything):
        for value in operator.needs:
            readers.setdefault(value, []).append(place)
    before: list[set[int]] = [{makers[i] for i in operator.needs if i in makers} for operator in everything]
    for place, update in enumerate(updates, start=len(operators)):
        before[place].update(reader for value in update.before for reader in readers.get(value, ()))
        before[place].discard(place)
    return _sorted(everything, before)


def _sorted(operators: Sequence[Operator], before: Sequence[set[int]]) -> list[Operator] | None:
    """The operators, each behind those `before` it and otherwise in the given order; None where they form a cycle."""
    missing = [len(places) for places in before]
    behind: list[list[int]] = [[] for _ in operators]
    for place, others in enumerate(before):
        for other in others:
            behind[other].append(place)
    ready = [place for place, count in enumerate(missing) if not count]
    ordered = []
    while ready:
        place = heapq.heappop(ready)
        ordered.append(operators[place])
        for later in behind[place]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, later)
    return ordered if len(ordered) == len(operators) else None
