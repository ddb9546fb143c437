"""Which elements of which root tensor the rTasks of an rOperator touch, exactly where it matters.

Reads are boxes, never too small: an rTask that waits for the writers of too much is slow, not wrong. Writes are exact,
since two rTasks may write into each other's boxes without ever writing the same element (a grouped convolution stores
channel `g * M + m`). Nothing here is shared with the scheduler, whose work is to be checked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rammer.ir.evaluate import evaluate_tile
from rammer.ir.expr import Axis, Expr, Output, TensorExpr, const, nodes
from rammer.ir.region import Interval, depends_on_data, interval_of, reshape_box
from rammer.ir.task import Binding, ROperator, TaskGraph, Tensor, TensorRole

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Region:
    """Boxes of a root tensor, one per tile: half-open `lo` to `hi`, int64 [tiles, rank].

    A rank-0 tensor counts as one of shape (1,). `scattered` names the tiles that touch only some elements of their
    box, and gives these as row-major positions in the tensor.
    """

    tensor: int
    lo: IntArray
    hi: IntArray
    scattered: Mapping[int, IntArray] = field(default_factory=dict)

    @property
    def touched(self) -> npt.NDArray[np.bool_]:
        """The tiles with a box that is not empty; bool [tiles]."""
        return np.asarray((self.hi > self.lo).all(axis=1))


def index_positions(output: Output, axes: Sequence[Axis], ranges: Mapping[Axis, Interval]) -> tuple[IntArray, ...]:
    """The index arrays at which `output` stores when its axes run over `ranges`, int64, one per dimension."""
    places = Output(type=output.type, indices=output.indices, body=const(0, output.type.dtype))
    ((indices, _),) = evaluate_tile(TensorExpr(axes=tuple(axes), inputs=(), outputs=(places,)), (), ranges)
    return tuple(index.astype(np.int64) for index in indices)


class Footprints:
    """The regions of a task graph's rOperators. Equal work is looked at once, whatever tensors it is bound to."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        self._roots = [graph.root(tensor.id) for tensor in graph.tensors]
        self._slots: dict[tuple[TensorExpr, tuple[int, ...]], tuple[_Boxes | None, ...]] = {}
        self._outputs: dict[tuple[TensorExpr, tuple[int, ...]], tuple[_Stores, ...]] = {}

    def reads(self, operator: ROperator, expr: TensorExpr, sizes: tuple[int, ...]) -> list[Region]:
        """What the tiles of `sizes` read through each slot that is loaded at all, then their predicate.

        Inputs and constants are left out: they are there from the start, and nothing may write them, but for states in
        place.
        """
        key = (expr, sizes)
        if key not in self._slots:
            self._slots[key] = _slot_boxes(expr, sizes)
        pairs = list(zip(operator.reads, self._slots[key], strict=True))
        if operator.predicate is not None:
            pairs.append((operator.predicate, _elements(len(operator.predicate.origin), _Tiles(expr.axes, sizes))))
        return [
            self._region(binding, boxes)
            for binding, boxes in pairs
            if boxes is not None and not self._stays(self._roots[binding.tensor])
        ]

    def _stays(self, root: Tensor) -> bool:
        """Whether nothing writes a tensor."""
        return root.role in (TensorRole.INPUT, TensorRole.CONSTANT) and root.id not in self._graph.updated.values()

    def writes(self, operator: ROperator, expr: TensorExpr, sizes: tuple[int, ...]) -> list[Region]:
        """What the tiles of `sizes` write through each output; boxes are too large where positions come from data."""
        key = (expr, sizes)
        if key not in self._outputs:
            self._outputs[key] = tuple(_stores(output, expr, sizes) for output in expr.outputs)
        result = []
        for binding, stores in zip(operator.writes, self._outputs[key], strict=True):
            region = self._region(binding, stores.boxes)
            inexact = stores.inexact
            if self._graph.tensors[binding.tensor].type.shape != self._roots[binding.tensor].type.shape:
                inexact = _inexact(_Boxes(region.lo, region.hi), stores.points)
            scattered = {int(tile): self._positions(binding, stores, int(tile)) for tile in np.flatnonzero(inexact)}
            result.append(Region(tensor=region.tensor, lo=region.lo, hi=region.hi, scattered=scattered))
        return result

    def _region(self, binding: Binding, boxes: _Boxes) -> Region:
        """Boxes in a slot's coordinates as boxes of the root tensor."""
        tensor, root = self._graph.tensors[binding.tensor], self._roots[binding.tensor]
        lo, hi = boxes.lo, boxes.hi
        if any(binding.origin):
            origin = np.array(binding.origin, dtype=np.int64)
            lo, hi = lo + origin, hi + origin
        if tensor.type.shape != root.type.shape:
            lo, hi = _reshaped(lo, hi, tensor.type.shape, root.type.shape)
        return Region(tensor=root.id, lo=lo, hi=hi)

    def _positions(self, binding: Binding, stores: _Stores, tile: int) -> IntArray:
        """Row-major positions in the root tensor: an alias has the same elements in the same order."""
        index = index_positions(stores.output, stores.axes, stores.tiles.ranges(tile))
        moved = tuple(part + start for part, start in zip(index, binding.origin, strict=True))
        flat = np.ravel_multi_index(moved, self._graph.tensors[binding.tensor].type.shape)
        return np.asarray(flat, dtype=np.int64).reshape(-1)


@dataclass(frozen=True, slots=True, eq=False)
class _Boxes:
    lo: IntArray
    hi: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class _Tiles:
    """A grid of tiles, numbered in row-major order."""

    axes: tuple[Axis, ...]
    sizes: tuple[int, ...]

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(-(-axis.extent // size) for axis, size in zip(self.axes, self.sizes, strict=True))

    def span(self, place: int, i: int) -> Interval:
        """Tile number `i` along the axis at `place`."""
        size = self.sizes[place]
        return Interval(i * size, min((i + 1) * size, self.axes[place].extent))

    def ranges(self, tile: int) -> dict[Axis, Interval]:
        """The interval of every axis in a tile."""
        index = np.unravel_index(tile, self.grid) if self.grid else ()
        return {axis: self.span(place, int(index[place])) for place, axis in enumerate(self.axes)}

    def points(self) -> IntArray:
        """Points of the domain in each tile."""
        counts: IntArray = np.ones(self.grid, dtype=np.int64)
        for place, count in enumerate(self.grid):
            line = np.array([self.span(place, i).extent for i in range(count)], dtype=np.int64)
            counts = counts * line.reshape([-1 if other == place else 1 for other in range(len(self.grid))])
        return counts.reshape(-1)


@dataclass(frozen=True, slots=True, eq=False)
class _Stores:
    """An output's boxes per tile, how many points of the domain are stored there, and where the boxes hold others."""

    output: Output
    axes: tuple[Axis, ...]
    tiles: _Tiles
    boxes: _Boxes
    points: IntArray
    inexact: npt.NDArray[np.bool_]


def _stores(output: Output, expr: TensorExpr, sizes: tuple[int, ...]) -> _Stores:
    tiles = _Tiles(expr.axes, sizes)
    boxes, points = _boxes(output.indices, output.type.shape, tiles), tiles.points()
    inexact = _inexact(boxes, points) & (not any(map(depends_on_data, output.indices)))
    return _Stores(output, expr.axes, tiles, boxes, points, inexact)


def _inexact(boxes: _Boxes, points: IntArray) -> npt.NDArray[np.bool_]:
    """Which boxes hold elements beside the points that are stored in them; none that is empty."""
    sides = boxes.hi - boxes.lo
    return np.asarray((np.prod(sides, axis=1) != points) & (sides > 0).all(axis=1))


def _slot_boxes(expr: TensorExpr, sizes: tuple[int, ...]) -> tuple[_Boxes | None, ...]:
    """Per slot, the hull of its loads' boxes; an interval that is empty in one load does not widen it."""
    tiles = _Tiles(expr.axes, sizes)
    slots: list[_Boxes | None] = [None] * len(expr.inputs)
    for load in expr.loads:
        found = _boxes(load.indices, expr.inputs[load.slot].shape, tiles)
        known = slots[load.slot]
        slots[load.slot] = found if known is None else _hull(known, found)
    return tuple(slots)


def _elements(rank: int, tiles: _Tiles) -> _Boxes:
    """The element at 0 of a tensor, per tile."""
    shape = (math.prod(tiles.grid), max(1, rank))
    return _Boxes(np.zeros(shape, dtype=np.int64), np.ones(shape, dtype=np.int64))


def _hull(a: _Boxes, b: _Boxes) -> _Boxes:
    only_a, only_b = b.hi <= b.lo, a.hi <= a.lo
    lo = np.where(only_a, a.lo, np.where(only_b, b.lo, np.minimum(a.lo, b.lo)))
    hi = np.where(only_a, a.hi, np.where(only_b, b.hi, np.maximum(a.hi, b.hi)))
    return _Boxes(lo, hi)


def _boxes(indices: Sequence[Expr], shape: Sequence[int], tiles: _Tiles) -> _Boxes:
    """The box that `indices` touch of a slot of `shape`, per tile."""
    count = math.prod(tiles.grid)
    if not indices:
        return _Boxes(np.zeros((count, 1), dtype=np.int64), np.ones((count, 1), dtype=np.int64))
    bounds = [_bounds(index, extent, tiles) for index, extent in zip(indices, shape, strict=True)]
    both = np.stack([np.broadcast_to(b, (*tiles.grid, 2)).reshape(count, 2) for b in bounds], axis=1)
    return _Boxes(both[..., 0], both[..., 1])


def _bounds(index: Expr, extent: int, tiles: _Tiles) -> IntArray:
    """Interval of an index within `extent`, as [*grid, 2]; dimensions of axes that it does not use have extent 1.

    An interval follows from the positions along the axes in the index alone, so there are far fewer than tiles.
    """
    used = set(nodes(index))
    shape = [count if axis in used else 1 for axis, count in zip(tiles.axes, tiles.grid, strict=True)]
    table = np.empty((*shape, 2), dtype=np.int64)
    for position in np.ndindex(*shape):
        ranges = {axis: tiles.span(place, position[place]) for place, axis in enumerate(tiles.axes) if axis in used}
        span = interval_of(index, ranges)
        table[position] = (0, extent) if span is None else (max(0, span.lo), min(extent, span.hi))
    return table


def _reshaped(lo: IntArray, hi: IntArray, source: Sequence[int], target: Sequence[int]) -> tuple[IntArray, IntArray]:
    """Boxes of a dense tensor of shape `source` as boxes of the same elements under shape `target`."""
    rows, inverse = np.unique(np.hstack([lo, hi]), axis=0, return_inverse=True)
    moved = np.empty((len(rows), 2, max(1, len(target))), dtype=np.int64)
    for row, ends in enumerate(rows.reshape(len(rows), 2, -1)):
        box = tuple(Interval(int(first), int(last)) for first, last in ends.T)[: len(source)]
        seen = reshape_box(box, source, target) or (Interval(0, 1),)
        moved[row] = np.array(seen, dtype=np.int64).T
    places = inverse.reshape(-1)
    return moved[places, 0], moved[places, 1]
