"""fuse_loops: loops of as many trips become one, where they may run side by side.

    h, y = Repeat(h0, x); y' = Reshape(y); g, z = Repeat(g0, y')  ->  h, g, y, z = Repeat(h0, g0, x)

A layer on top of another takes its elements trip by trip, so both are one body: the cells of all layers are a wavefront
in it, as they are in a layer that is unrolled. Layers that know nothing of each other, as the directions of one, are as
well. What lies between moves elements within their trip alone.

Behind long_layers, before cut_loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rammer.ir.graph import Graph, Operator, Repeat
from rammer.operators.repeat import Move, fused, moved_by
from rammer.passes.helpers.rewrite import in_topological_order

_ALIGNMENT_BYTES = 16
"""What the addresses of arrays in a GPU's memory are multiples of."""

_MOST_NODES = 256
"""Of a trip: a run of fewer and fewer trips begins more often than layers run side by side."""


def run(graph: Graph) -> Graph:
    """The graph with its loops fused as far as they can be; see the module."""
    position = 0
    while position < len(graph.operators):
        second = graph.operators[position]
        firsts = [operator for operator in graph.operators[:position] if operator.repeat] if second.repeat else []
        merged = next((found for first in firsts[::-1] if (found := _merged(graph, first, second)) is not None), None)
        if merged is None:
            position += 1
        else:
            graph, position = merged, 0
    return graph


def _merged(graph: Graph, first: Operator, second: Operator) -> Graph | None:
    """The graph with two of its loops as one, None where they cannot be."""
    one, other = first.repeat, second.repeat
    if one is None or other is None or one.trips != other.trips or one.nodes + other.nodes > _MOST_NODES:
        return None
    begin, end = other.carried, other.carried + len(other.scanned)
    behind = _behind(graph, first)
    sources = [
        _source(graph, first, value, backward=backward) if value in behind else None
        for value, backward in zip(second.inputs[begin:end], other.scanned, strict=True)
    ]
    outside = [value for value, source in zip(second.inputs[begin:end], sources, strict=True) if source is None]
    if not behind.isdisjoint([*second.inputs[:begin], *outside, *second.inputs[end:]]):
        return None
    loop = fused(one, other, sources)
    mine = one.carried + len(one.scanned)
    merged = Operator(
        kind=first.kind,
        name=f"{first.name}+{second.name}",
        inputs=(
            *first.inputs[: one.carried],
            *second.inputs[:begin],
            *first.inputs[one.carried : mine],
            *outside,
            *first.inputs[mine:],
            *second.inputs[end:],
        ),
        outputs=(
            *first.outputs[: one.carried],
            *second.outputs[: other.carried],
            *first.outputs[one.carried :],
            *second.outputs[other.carried :],
        ),
        expr=None,
        sources=tuple(dict.fromkeys((*first.sources, *second.sources))),
        repeat=loop,
    )
    if not _is_aligned(graph, merged, loop):
        return None
    others = [operator for operator in graph.operators if operator is not first and operator is not second]
    return replace(graph, operators=_living(graph, in_topological_order([merged, *others])))


def _behind(graph: Graph, first: Operator) -> set[int]:
    """The values that depend on an operator."""
    found = set(first.outputs)
    for operator in graph.operators:
        if not found.isdisjoint(operator.inputs):
            found.update(operator.outputs)
    return found


def _source(graph: Graph, first: Operator, value: int, *, backward: bool) -> tuple[int, Sequence[Move]] | None:
    """Which stacked output of a loop a value is, and how it is moved; None if it is none, or in another direction."""
    assert first.repeat is not None
    makers, moves = graph.producers(), list[Move]()
    while value not in first.outputs:
        maker = makers.get(value)
        if maker is None or len(maker.inputs) != 1:
            return None
        types = graph.values[maker.inputs[0]].type, graph.values[value].type
        if not moved_by(maker.kind, maker.attributes, *types):
            return None
        moves.insert(0, (maker.kind, maker.attributes))
        (value,) = maker.inputs
    place = first.outputs.index(value) - first.repeat.carried
    return None if place < 0 or first.repeat.stacked[place] != backward else (place, moves)


def _is_aligned(graph: Graph, operator: Operator, loop: Repeat) -> bool:
    """Whether parts of arrays begin where they may on a GPU, too: those from the front and those from the end."""
    if loop.trips % _ALIGNMENT_BYTES == 0 or len({*loop.scanned, *loop.stacked}) == 1:
        return True
    scanned = operator.inputs[loop.carried : loop.carried + len(loop.scanned)]
    arrays = (*scanned, *operator.outputs[loop.carried :])
    return all(graph.values[value].type.nbytes // loop.trips % _ALIGNMENT_BYTES == 0 for value in arrays)


def _living(graph: Graph, operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """The operators that outputs depend on."""
    needed, kept = set(graph.outputs), list[Operator]()
    for operator in reversed(operators):
        if not needed.isdisjoint(operator.outputs):
            needed.update(operator.inputs)
            kept.append(operator)
    return tuple(reversed(kept))
