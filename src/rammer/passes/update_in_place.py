"""update_in_place: a state of which a run writes a few elements is stored where it is read, and they alone.

    present[t] = select(t == p, new, past[t]) for t<L   ->   present[p % L] = select(p % L == p, new, past[p % L])

Both are one array then, and what is not written stays as it is. What is written holds what the expression says of it,
so all there is to know is where the condition cannot hold: `t == p` holds at no `t` but `p % L`, and `0 <= t - p < n`
at none but `(p % L + r) % L` for `r<n`. Where it does not hold there, what is there is written again.

A concatenation of new elements with parts of the old state that stay where they were stores the new ones.

Who reads the state as it was comes before the operator that writes it, who reads what it is to be comes after. Where
that cannot be, or the condition is another one, the state keeps its two arrays. Attention that has taken the choice
into its own expression (`fuse`) reads the old elements and the new ones, and does not wait for them to be stored; large
heads, and attention on GPUs, read what is stored.

Ordering restriction: the last pass, since passes see neither the order nor that elements stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rammer.ir.expr import (
    Axis,
    Call,
    Cast,
    Expr,
    Load,
    Output,
    Reduce,
    ScalarFn,
    TensorExpr,
    all_nodes,
    call,
    substitute,
)
from rammer.ir.graph import Graph, Operator
from rammer.ir.region import depends_on_data
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.rewrite import Rewriter, behind_others
from rammer.passes.helpers.slots import without_unused_slots
from rammer.passes.helpers.written import Slots, Written, stores_plainly, written

_VIEWS = frozenset({"Reshape", "Slice"})


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


def _update(graph: Graph, makers: Mapping[int, Operator], old: int, new: int) -> Operator | None:
    """What writes a state's new elements alone, or None where it is not known that the others stay."""
    maker = makers[new]
    if maker.expr is None or maker.kind == "Concat":
        return _spliced(graph, makers, maker, old)
    output = maker.expr.outputs[maker.outputs.index(new)]
    slots = Slots(graph, makers, maker)
    if not stores_plainly(output, maker.expr) or any(isinstance(node, Reduce) for node in all_nodes(output.body)):
        return None
    condition = _condition(slots, output, old)
    there = None if condition is None else written(slots, condition)
    if there is None or not depends_on_data(there.first) or not output.type.size:
        return None
    update = _restricted(slots, maker, new, output, there)
    assert update.expr is not None
    (stored,) = update.expr.outputs
    of_old = [load for load in update.expr.loads if update.inputs[load.slot] == old]
    own = all((load.indices, load.fill) == (stored.indices, None) for load in of_old)
    return update if own else None  # others may be written by then


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


def _condition(slots: Slots, output: Output, old: int) -> Expr | None:
    """What holds wherever an output is something else than the old state."""

    def is_old(value: Expr) -> bool:
        kept = _bare(value)
        return (
            isinstance(kept, Load) and slots.value(kept) == old and (kept.indices, kept.fill) == (output.indices, None)
        )

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


def _restricted(slots: Slots, maker: Operator, new: int, output: Output, written: Written) -> Operator:
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


def _place(written: Written, names: set[str]) -> tuple[Expr, tuple[Axis, ...]]:
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


def _bare(value: Expr) -> Expr:
    """A value without conversions to float32 and back, which leave 16-bit floats as they are."""
    while isinstance(value, Cast) and (
        (value.type is DType.FLOAT32 and value.arg.dtype.is_half)
        or (value.type.is_half and value.arg.dtype is DType.FLOAT32)
    ):
        value = value.arg
    return value


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
    ordered = behind_others(before)
    return [everything[place] for place in ordered] if len(ordered) == len(everything) else None
