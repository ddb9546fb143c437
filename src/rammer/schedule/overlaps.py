"""Which written boxes does each read box overlap? Answered per dimension, not per pair of boxes.

The tiles that an rOperator writes nearly always form a grid: along each dimension a few intervals in order, and one
tile for each of their combinations. The intervals that a read box meets along a dimension are then neighbours, found
by bisection, and the tiles it overlaps are a block of the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rammer.schedule.regions import Boxes, IntArray


@dataclass(frozen=True, slots=True)
class Overlaps:
    """Read boxes grouped by what they overlap: `tiles[groups[i]]` are the written boxes, ascending, that i overlaps."""

    groups: IntArray
    tiles: tuple[tuple[int, ...], ...]


def overlaps(reads: Boxes, writes: Boxes) -> Overlaps:
    """Per read box, the written boxes that share an element with it; empty boxes share none.

    Args:
        reads: boxes of a tensor, any number.
        writes: boxes of the same tensor, none of them empty.
    """
    if len(writes.lo) == 1:
        return _one(reads, writes)
    grid = _grid(writes)
    return _all_pairs(reads, writes) if grid is None else grid.overlaps(reads)


def _one(reads: Boxes, writes: Boxes) -> Overlaps:
    """As `overlaps`, of a single written box."""
    shared = np.asarray((np.maximum(reads.lo, writes.lo) < np.minimum(reads.hi, writes.hi)).all(axis=1))
    if shared.all() or not shared.any():
        return Overlaps(np.zeros(len(shared), dtype=np.int64), ((0,) if shared.any() else (),))
    return Overlaps(shared.astype(np.int64), ((), (0,)))


def overlaps_of_several(reads: Boxes, writes: Sequence[Boxes]) -> Overlaps | None:
    """As `overlaps`, of the boxes of several writers one after another; None where they are no grid together.

    What steps of a layer write into one tensor is such a grid: a product over all steps then asks once.
    """
    grid = _grid(Boxes(np.concatenate([each.lo for each in writes]), np.concatenate([each.hi for each in writes])))
    return None if grid is None else grid.overlaps(reads)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Boxes that are the product of intervals per dimension.

    `lo[d]` and `hi[d]` are the intervals of dimension d, both ascending; `table` holds the row of each combination.
    """

    lo: tuple[IntArray, ...]
    hi: tuple[IntArray, ...]
    table: IntArray

    def overlaps(self, reads: Boxes) -> Overlaps:
        """As the function of that name."""
        block = np.empty((len(reads.lo), len(self.lo), 2), dtype=np.int64)
        for dim, (lo, hi) in enumerate(zip(self.lo, self.hi, strict=True)):
            block[:, dim, 0] = np.searchsorted(hi, reads.lo[:, dim], side="right")
            block[:, dim, 1] = np.searchsorted(lo, reads.hi[:, dim], side="left")
        block[(reads.hi <= reads.lo).any(axis=1)] = 0
        blocks, groups = distinct_rows(block.reshape(len(block), -1))
        tiles = []
        for bounds in blocks.reshape(len(blocks), -1, 2).tolist():
            part = self.table[tuple(slice(first, end) for first, end in bounds)]
            tiles.append(tuple(sorted(part.ravel().tolist())))
        return Overlaps(groups, tuple(tiles))


def _grid(boxes: Boxes) -> _Grid | None:
    """The boxes as a grid, or None where they are not one."""
    count, rank = boxes.lo.shape
    lows, highs, places = [], [], []
    for dim in range(rank):
        spans, place = distinct_rows(np.stack([boxes.lo[:, dim], boxes.hi[:, dim]], axis=1))
        if np.any(np.diff(spans[:, 1]) < 0):
            return None
        lows.append(spans[:, 0])
        highs.append(spans[:, 1])
        places.append(place)
    shape = tuple(map(len, lows))
    if math.prod(shape) != count:
        return None
    table = np.full(shape, -1, dtype=np.int64)
    table[tuple(places)] = np.arange(count)
    return None if np.any(table < 0) else _Grid(tuple(lows), tuple(highs), table)


def _all_pairs(reads: Boxes, writes: Boxes) -> Overlaps:
    bounds, groups = distinct_rows(np.hstack([reads.lo, reads.hi]))
    rank = reads.lo.shape[1]
    tiles = []
    for row in bounds:
        shared = np.maximum(row[:rank], writes.lo) < np.minimum(row[rank:], writes.hi)
        tiles.append(tuple(np.flatnonzero(shared.all(axis=1)).tolist()))
    return Overlaps(groups, tuple(tiles))


def distinct_rows(rows: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct rows in lexicographic order, and the place of each row among them.

    As NumPy's `unique` along an axis, which takes several times longer: it compares rows as bytes, one by one.
    """
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    begins = np.ones(len(rows), dtype=np.bool_)
    np.any(ordered[1:] != ordered[:-1], axis=1, out=begins[1:])
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.cumsum(begins) - 1
    return ordered[begins], place
