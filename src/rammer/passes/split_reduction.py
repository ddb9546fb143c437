"""split_reduction: a long reduction to few results is cut into parts, so that more execution units can work on it.

    y = f(sum[r](x))  ->  parts[p] = sum[r of part p](x), y = f(sum[p](parts[p]))

At batch 1 the spatial axes of late convolutions and of matrix products are short. Tiles that are efficient leave units
without work, tiles for all units are inefficient, and either way a unit walks the whole reduction. Parts cost their
traffic, a second operator and a hand-over, so Roller's model decides: an operator is split where its two halves are
predicted to end clearly sooner than the whole, on that share of the units that is its own among the operators beside
it. Roller as published cuts spatial axes alone. Several results may follow from the one reduction.

Whatever it costs, a reduction is cut where an rTask of a single result would take longer than the vDevice allows.

Float sums are reassociated, which every precision allows (ADR 0007).

Ordering restriction: after `channels_last`, since parts lie as the result does; before `layout`, which packs constants
for the halves.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from rammer.ir.expr import Axis, Load, Output, Reduce, nodes, substitute
from rammer.ir.graph import Graph, Operator, Value
from rammer.ir.kernel_form import Skeleton
from rammer.ir.types import Layout, TensorType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.predicted import evenly_us, laid_out, predicted_us
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.shares import shares
from rammer.passes.helpers.work import Work, lift, lower
from rammer.tiling.pattern import free_axes
from rammer.tiling.trees import tree_sum

_LEAST_ELEMENTS = 32
"""Elements of the reduction that each part keeps."""
_MOST_POINTS = 2048
"""Results for each unit, beyond which tiles are efficient anyway."""
_WORTH = 0.8
"""The fraction of the time that halves may take: the model errs, and they crowd out what runs beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Halves:
    """An operator in two: `partial` makes the value `between`, `joining` reads it and makes the operator's result."""

    partial: Work
    joining: Work
    between: Value


def run(graph: Graph, device: VDevice) -> Graph:
    """Split reductions; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: whose figures decide.
    """
    rewriter = Rewriter(graph)
    known: dict[Hashable, tuple[Axis, int] | None] = {}
    for operator, veus in zip(graph.operators, shares(graph, device.veu_count), strict=True):
        layouts = tuple(graph.values[value].layout for value in (*operator.inputs, *operator.outputs))
        constants = tuple(value in graph.constants for value in operator.inputs)
        key = (operator.expr, layouts, constants, veus)
        if key not in known:
            reduces = operator.expr is not None and operator.expr.reductions
            known[key] = _best_cut(operator, graph, device, veus) if reduces else None
        cut = known[key]
        if cut is None:
            rewriter.insert(operator)
        else:
            _insert(rewriter, operator, graph, *cut)
    return rewriter.finish()


def _best_cut(operator: Operator, graph: Graph, device: VDevice, veus: int) -> tuple[Axis, int] | None:
    """The reduction axis to cut and into how many parts, None where the whole is as good."""
    if operator.expr is not None and Skeleton.TREES in device.skeletons and tree_sum(operator.expr) is not None:
        return None  # its skeleton takes trees in their order
    work = lift(operator)
    reduction = _reduction(work)
    points = math.prod(work.extents)
    if reduction is None or not 0 < points <= _MOST_POINTS * veus:
        return None
    axes = _by_preference(reduction, graph)
    whole_us = _time_us(work, graph, device, veus, predicted_us)
    if device.longest_task_us is not None:
        needed = math.ceil(whole_us * min(veus, points) / (points * device.longest_task_us))
        if needed > veus:
            return next(_cuts(axes, needed, needed), None)
    least_us, between_us = _WORTH * whole_us, device.handover_us.value
    overhead_us = device.task_overhead_us.value
    if _time_us(work, graph, device, veus, evenly_us) + 2 * overhead_us + between_us >= least_us:
        return None  # not even if the parts were shared out evenly, and nothing had to join them
    best = None
    for axis, parts in _cuts(axes, 2, veus):
        halves = _halves(work, reduction, axis, parts, graph)
        with_parts = replace(graph, values={**graph.values, halves.between.id: halves.between})
        partial_us = _time_us(halves.partial, with_parts, device, veus, predicted_us)
        if partial_us + overhead_us + between_us >= least_us:
            continue
        time_us = partial_us + _time_us(halves.joining, with_parts, device, veus, predicted_us) + between_us
        if time_us < least_us:
            least_us, best = time_us, (axis, parts)
    return best


def _reduction(work: Work) -> Reduce | None:
    """The reduction of a work that has just one, for each of its results; None for any other.

    Several results lie alike: those of an update that is a gradient's epilogue, or the numbers that follow
    from a range.
    """
    found = [node for node in work.nodes if isinstance(node, Reduce)]
    places = {(output.indices, output.type.shape) for output in work.outputs.values()}
    if len(found) != 1 or len(places) != 1:
        return None
    (reduction,) = found
    free = free_axes(reduction)[reduction]
    return reduction if all(axis in free for axis in work.axes if axis.extent > 1) else None


def _by_preference(reduction: Reduce, graph: Graph) -> list[Axis]:
    """The axes that may be cut: of one value's elements, those first that lie furthest apart, else the longest.

    Such parts are consecutive in memory, and the rTasks that made them are on the same unit.
    """
    longest = sorted(reduction.axes, key=lambda axis: -axis.extent)
    loads = [node for node in nodes(reduction.body) if isinstance(node, Load)]
    if len(loads) != 1:
        return longest
    strides = dict(zip(loads[0].indices, graph.values[loads[0].slot].storage.strides, strict=True))
    return sorted(longest, key=lambda axis: -strides.get(axis, 0))


def _cuts(axes: Sequence[Axis], fewest: int, largest: int) -> Iterator[tuple[Axis, int]]:
    """Axes and numbers of equal parts to try: the fewest, twice as many, ..., of the first axis that has them."""
    most = math.prod(axis.extent for axis in axes) // _LEAST_ELEMENTS
    wanted = fewest
    while wanted <= min(most, largest):
        fitting = (
            (axis, parts)
            for axis in axes
            for parts in range(wanted, min(2 * wanted, most + 1))
            if axis.extent % parts == 0
        )
        yield from itertools.islice(fitting, 1)
        wanted *= 2


def _time_us(work: Work, graph: Graph, device: VDevice, veus: int, predict: Callable[..., float]) -> float:
    """The time of an operator that has `veus` units to itself: `predicted_us`, or `evenly_us`."""
    expr, reads = lower(work, lambda value: graph.values[value].type)
    layouts = [graph.values[value].storage for value in (*reads, *work.outputs)]
    constants = {slot for slot, value in enumerate(reads) if value in graph.constants}
    return predict(expr, laid_out(expr, layouts, constants, device), constants, device, veus)


def _halves(work: Work, reduction: Reduce, axis: Axis, parts: int, graph: Graph) -> _Halves:
    """The work with a reduction axis in equal parts. The parts are a new value, the number of the part outermost."""
    result, output = next(iter(work.outputs.items()))
    part, inner = Axis("part", parts), Axis(axis.name, axis.extent // parts)
    (body,) = substitute([reduction.body], {axis: part * inner.extent + inner})
    axes = tuple(inner if other is axis else other for other in reduction.axes)
    shape = (parts, *output.type.shape)
    order = sorted(range(output.type.rank), key=lambda dim: -graph.values[result].storage.strides[dim])
    between = Value(
        id=1 + max(graph.values),
        name=f"{graph.values[result].name}.parts",
        type=TensorType(reduction.dtype, shape),
        layout=Layout.ordered(shape, (0, *(1 + dim for dim in order))),
    )
    partial = Output(type=between.type, indices=(part, *output.indices), body=Reduce(reduction.fn, axes, body))
    joined = Reduce(reduction.fn, (part,), Load(between.id, partial.indices, between.type.dtype))
    return _Halves(
        partial=Work(axes=(part, *work.axes), outputs={between.id: partial}),
        joining=work.rewritten(lambda node: joined if node is reduction else None),
        between=between,
    )


def _insert(rewriter: Rewriter, operator: Operator, graph: Graph, axis: Axis, parts: int) -> None:
    """Add an operator in two."""
    work = lift(operator)
    reduction = _reduction(work)
    assert reduction is not None  # it was cut
    halves = _halves(work, reduction, axis, parts, graph)
    between = rewriter.value(halves.between.type, halves.between.name, halves.between.layout)

    def half(work: Work, kind: str, name: str, outputs: tuple[int, ...]) -> Operator:
        expr, reads = lower(work, lambda value: types[value])
        inputs = tuple(between if value == halves.between.id else value for value in reads)
        return Operator(kind=kind, name=name, inputs=inputs, outputs=outputs, expr=expr, sources=operator.sources)

    types = {value: entry.type for value, entry in graph.values.items()} | {halves.between.id: halves.between.type}
    rewriter.insert(half(halves.partial, f"Partial{reduction.fn.value.title()}", halves.between.name, (between,)))
    rewriter.insert(half(halves.joining, operator.kind, operator.name, operator.outputs))
