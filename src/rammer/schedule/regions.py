"""Tile regions: the boxes that all rTasks of an rOperator touch, as arrays, one row per rTask.

Row `i` holds what `TaskGraph.accesses` says of rTask `i`, as `ir.region` derives it from the expression. An interval
depends only on the axes in its index expression, so it is derived once per tile position along those axes and then
spread over the grid; equal work (expression and tile) is looked at once for the whole model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.ir.expr import Expr, TensorExpr, nodes
from rammer.ir.region import Interval, index_box, reshape_box
from rammer.ir.task import Binding, RKernel, ROperator, TaskGraph

IntArray = npt.NDArray[np.int64]
_TileSizes = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """One box per rTask: half-open `lo` to `hi`, each int64 [rTasks, rank]; a rank-0 tensor has the one index 0.

    Compared by identity: equal work shares one object, which makes it a cheap key.
    """

    lo: IntArray
    hi: IntArray


@dataclass(frozen=True, slots=True)
class Region:
    """What the rTasks of an rOperator touch of a root tensor through one slot or output."""

    tensor: int
    boxes: Boxes


class Regions:
    """The regions of a task graph's rOperators under any rKernel, each derived once."""

    def __init__(self, graph: TaskGraph) -> None:
        self._tensors = graph.tensors
        self._slots: dict[tuple[TensorExpr, _TileSizes], tuple[Boxes | None, ...]] = {}
        self._outputs: dict[tuple[TensorExpr, _TileSizes], tuple[Boxes, ...]] = {}
        self._elements: dict[tuple[int, int], Boxes] = {}
        self._bound: dict[tuple[Boxes, int, tuple[int, ...]], Region] = {}
        self._moved: dict[tuple[Boxes, tuple[int, ...]], Boxes] = {}
        self._reshaped: dict[tuple[Boxes, tuple[int, ...], tuple[int, ...]], Boxes] = {}

    def reads(self, operator: ROperator, kernel: RKernel) -> tuple[Region | None, ...]:
        """Per input slot, what each rTask reads, constants included; None for a slot that is never loaded.

        Behind them comes the predicate, where there is one.
        """
        return self._reads(operator, kernel.expr, kernel.tile.task)

    def writes(self, operator: ROperator, kernel: RKernel) -> tuple[Region, ...]:
        """Per output, what each rTask writes."""
        return self._writes(operator, kernel.expr, kernel.tile.task)

    def whole_reads(self, operator: ROperator) -> tuple[Region | None, ...]:
        """As `reads`, of the whole rOperator: one row, which holds the boxes of any tiling; no row without rTasks."""
        expr = operator.kernels[0].expr
        return self._reads(operator, expr, _whole(expr))

    def whole_writes(self, operator: ROperator) -> tuple[Region, ...]:
        """As `writes`, of the whole rOperator: one row, which holds the boxes of any tiling; no row without rTasks."""
        expr = operator.kernels[0].expr
        return self._writes(operator, expr, _whole(expr))

    def _reads(self, operator: ROperator, expr: TensorExpr, sizes: _TileSizes) -> tuple[Region | None, ...]:
        key = (expr, sizes)
        if key not in self._slots:
            self._slots[key] = _slot_boxes(expr, sizes)
        pairs = list(zip(operator.reads, self._slots[key], strict=True))
        if operator.predicate is not None:
            pairs.append((operator.predicate, self._element(operator.predicate, expr, sizes)))
        return tuple(None if boxes is None else self._region(binding, boxes) for binding, boxes in pairs)

    def _element(self, binding: Binding, expr: TensorExpr, sizes: _TileSizes) -> Boxes:
        """The one element that a predicate is, for each rTask."""
        count = math.prod(-(-axis.extent // size) for axis, size in zip(expr.axes, sizes, strict=True))
        shape = (count, max(1, len(binding.origin)))
        if shape not in self._elements:
            self._elements[shape] = Boxes(np.zeros(shape, np.int64), np.ones(shape, np.int64))
        return self._elements[shape]

    def _writes(self, operator: ROperator, expr: TensorExpr, sizes: _TileSizes) -> tuple[Region, ...]:
        key = (expr, sizes)
        if key not in self._outputs:
            self._outputs[key] = tuple(
                _tile_boxes(output.indices, output.type.shape, expr, sizes) for output in expr.outputs
            )
        pairs = zip(operator.writes, self._outputs[key], strict=True)
        return tuple(self._region(binding, boxes) for binding, boxes in pairs)

    def _region(self, binding: Binding, boxes: Boxes) -> Region:
        """Boxes in a slot's coordinates as boxes of the root tensor it is bound to."""
        key = (boxes, binding.tensor, binding.origin)
        if key not in self._bound:
            self._bound[key] = self._bind(binding, boxes)
        return self._bound[key]

    def _bind(self, binding: Binding, boxes: Boxes) -> Region:
        """As `_region`, computed."""
        if any(binding.origin):
            key = (boxes, binding.origin)
            if key not in self._moved:
                offset = np.array(binding.origin, dtype=np.int64)
                self._moved[key] = Boxes(boxes.lo + offset, boxes.hi + offset)
            boxes = self._moved[key]
        bound = self._tensors[binding.tensor]
        root, shape = bound if bound.alias_of is None else self._tensors[bound.alias_of], bound.type.shape
        if shape != root.type.shape:
            alias = (boxes, shape, root.type.shape)
            if alias not in self._reshaped:
                self._reshaped[alias] = _reshaped(boxes, shape, root.type.shape)
            boxes = self._reshaped[alias]
        return Region(root.id, boxes)


_KEPT = "regions"


def regions_of(graph: TaskGraph) -> Regions:
    """The regions of a task graph, which it keeps: policies, simulations and reports ask for the same ones."""
    kept: dict[str, Any] = vars(graph)
    if _KEPT not in kept:
        kept[_KEPT] = Regions(graph)
    regions: Regions = kept[_KEPT]
    return regions


def _whole(expr: TensorExpr) -> _TileSizes:
    return tuple(max(1, axis.extent) for axis in expr.axes)


def _slot_boxes(expr: TensorExpr, sizes: _TileSizes) -> tuple[Boxes | None, ...]:
    """Per slot, the hull of its loads' boxes."""
    slots: list[Boxes | None] = [None] * len(expr.inputs)
    for load in expr.loads:
        boxes = _tile_boxes(load.indices, expr.inputs[load.slot].shape, expr, sizes)
        known = slots[load.slot]
        slots[load.slot] = boxes if known is None else _hull(known, boxes)
    return tuple(slots)


def _hull(a: Boxes, b: Boxes) -> Boxes:
    """The smallest box around each pair of boxes; per dimension an empty interval counts for nothing."""
    no_a, no_b = a.hi <= a.lo, b.hi <= b.lo
    lo = np.where(no_a, b.lo, np.where(no_b, a.lo, np.minimum(a.lo, b.lo)))
    hi = np.where(no_a, b.hi, np.where(no_b, a.hi, np.maximum(a.hi, b.hi)))
    return Boxes(lo, hi)


def _tile_boxes(indices: Sequence[Expr], shape: Sequence[int], expr: TensorExpr, sizes: _TileSizes) -> Boxes:
    """The box that `indices` touch in each tile, the tiles in row-major order."""
    grid = [-(-axis.extent // size) for axis, size in zip(expr.axes, sizes, strict=True)]
    rank = max(1, len(indices))
    lo, hi = np.zeros((*grid, rank), dtype=np.int64), np.ones((*grid, rank), dtype=np.int64)
    for dim, (index, extent) in enumerate(zip(indices, shape, strict=True)):
        used = set(nodes(index))
        places = [place for place, axis in enumerate(expr.axes) if axis in used]
        spans = np.empty((*(grid[place] for place in places), 2), dtype=np.int64)
        for position in np.ndindex(*spans.shape[:-1]):
            ranges = {}
            for place, i in zip(places, position, strict=True):
                axis, size = expr.axes[place], sizes[place]
                ranges[axis] = Interval(i * size, min((i + 1) * size, axis.extent))
            spans[position] = index_box((index,), (extent,), ranges)[0]
        spread = [count if place in places else 1 for place, count in enumerate(grid)]
        lo[..., dim] = spans[..., 0].reshape(spread)
        hi[..., dim] = spans[..., 1].reshape(spread)
    return Boxes(lo.reshape(-1, rank), hi.reshape(-1, rank))


def _reshaped(boxes: Boxes, source: Sequence[int], target: Sequence[int]) -> Boxes:
    """Boxes of a tensor of shape `source`, seen with shape `target`."""
    known: dict[tuple[int, ...], list[Interval]] = {}
    result = np.empty((len(boxes.lo), max(1, len(target)), 2), dtype=np.int64)
    for row, bounds in enumerate(np.hstack([boxes.lo, boxes.hi]).tolist()):
        key = tuple(bounds)
        if key not in known:
            lo, hi = bounds[: len(bounds) // 2], bounds[len(bounds) // 2 :]
            box = tuple(Interval(*ends) for ends in zip(lo, hi, strict=True))
            known[key] = list(reshape_box(box[: len(source)], source, target)) or [Interval(0, 1)]
        result[row] = known[key]
    return Boxes(result[..., 0], result[..., 1])
