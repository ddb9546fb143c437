"""How the threads of a block share out a contraction's tile: sizes that the tiled skeleton is written for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rammer.devices.cuda.describe import THREADS
from rammer.devices.cuda.emit.map import lane_first
from rammer.devices.cuda.emit.points import Side, count
from rammer.ir.expr import Axis
from rammer.ir.pattern import Contraction
from rammer.ir.task import RKernel

_MAX_SIDE = 128
_STEP = 16  # elements of the sums that each group of threads takes at a time
_MAX_VECTOR = 4
_MAX_ACCUMULATORS = 64
_MAX_SPLITS = 4
_LEAST_ROWS = 4
_LEAST_HELD = 4  # sums along one side that a thread should hold, so that it multiplies more than it reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Sides of an rTask by their part in the product, each list fastest first, and the sizes of a block.

    A block is `rows` by `lanes` sums, of which each thread holds `thread_rows` by `thread_lanes`. Where that leaves
    threads over, `splits` groups of threads take different elements of the sums. `batch_sides` are of the axes that
    both operands have, or none.
    """

    row_sides: tuple[Side, ...]
    lane_sides: tuple[Side, ...]
    batch_sides: tuple[Side, ...]
    rows: int
    lanes: int
    thread_rows: int
    thread_lanes: int

    @property
    def splits(self) -> int:
        """Groups of threads that split the elements of each step."""
        return THREADS * self.thread_rows * self.thread_lanes // (self.rows * self.lanes)

    def step(self, longest: int) -> int:
        """Elements of the sums that are staged at a time, if `longest` is the extent of their longest axis.

        A step within one axis needs no division for each element, so it is made shorter if that lets it fit.
        """
        for elements in (_STEP, _STEP // 2, _STEP // 4):
            if elements * self.splits <= longest:
                return elements * self.splits
        return _STEP * self.splits

    @property
    def threads_along_lanes(self) -> int:
        """Threads side by side along the lanes of a block."""
        return self.lanes // self.thread_lanes

    @property
    def vector_rows(self) -> int:
        """Neighbouring rows that a thread reads from shared memory at once."""
        return min(_MAX_VECTOR, self.thread_rows)

    @property
    def vector_lanes(self) -> int:
        """Neighbouring lanes that a thread reads from shared memory at once."""
        return min(_MAX_VECTOR, self.thread_lanes)


def blocks_of(kernel: RKernel, found: Contraction, sides: Sequence[Side]) -> Blocks | None:
    """The blocks of an rTask; None where it has too few sums for every thread to hold some."""
    if kernel.tile.lane is None:
        return None
    lane = kernel.expr.axes[kernel.tile.lane]
    rows = found.rows(kernel.expr.axes, lane)
    lanes = [axis for axis in kernel.expr.axes if _is_lane(found, axis, lane)]
    fastest_first = lane_first(kernel, sides)
    row_sides = tuple(side for side in fastest_first if side.axis in rows)
    lane_sides = tuple(side for side in fastest_first if side.axis in lanes)
    batch_sides = tuple(side for side in fastest_first if side.axis not in rows and side.axis not in lanes)
    sums = max(len(group.terms) for group in found.groups)
    height, width = _power(count(row_sides)), _power(count(lane_sides))
    while height * width > THREADS * max(1, _MAX_ACCUMULATORS // sums) or max(height, width) > _MAX_SIDE:
        height, width = (height // 2, width) if height > width else (height, width // 2)
    if height < _LEAST_ROWS or height * width * _MAX_SPLITS < THREADS:
        return None
    thread_rows = thread_lanes = 1

    def wants_more() -> bool:
        splits = THREADS * thread_rows * thread_lanes // (height * width)
        return splits < 1 or (min(thread_rows, thread_lanes) < _LEAST_HELD and splits * 2 <= _MAX_SPLITS)

    while wants_more():
        grow_rows = thread_rows <= thread_lanes and thread_rows * 2 <= height
        if not grow_rows and thread_lanes * 2 > width:
            break
        thread_rows, thread_lanes = (thread_rows * 2, thread_lanes) if grow_rows else (thread_rows, thread_lanes * 2)
    return Blocks(
        row_sides=row_sides,
        lane_sides=lane_sides,
        batch_sides=batch_sides,
        rows=height,
        lanes=width,
        thread_rows=thread_rows,
        thread_lanes=thread_lanes,
    )


def _is_lane(found: Contraction, axis: Axis, lane: Axis) -> bool:
    """Whether in every product the lane operand depends on `axis`, and the other does not."""
    pairs = [found.split(term, lane) for term in found.terms]
    return all(axis in found.free[operand] and axis not in found.free[other] for operand, other in pairs)


def _power(size: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(0, size - 1).bit_length()
