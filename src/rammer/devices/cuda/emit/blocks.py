"""How the threads of a block share out a contraction's tile: sizes that the tiled skeleton is written for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rammer.devices.cuda.describe import THREADS
from rammer.devices.cuda.emit.points import Side, count
from rammer.ir.expr import Axis
from rammer.ir.pattern import Contraction
from rammer.ir.task import RKernel

_MAX_SIDE = 128
_STEP = 16
_MAX_VECTOR = 4
_MAX_ACCUMULATORS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Sides of an rTask by their part in the product, each list fastest first, and the sizes of a block.

    A block is `rows` by `lanes` sums, of which each thread holds `thread_rows` by `thread_lanes`; `step` elements of
    the sums are staged in shared memory at a time. `batch` are the axes that both operands have, or none.
    """

    row_sides: tuple[Side, ...]
    lane_sides: tuple[Side, ...]
    batch_sides: tuple[Side, ...]
    rows: int
    lanes: int
    thread_rows: int
    thread_lanes: int
    step: int = _STEP

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
    fastest_first = sorted(reversed(sides), key=lambda side: side.axis is not lane)
    row_sides = tuple(side for side in fastest_first if side.axis in rows)
    lane_sides = tuple(side for side in fastest_first if side.axis in lanes)
    batch_sides = tuple(side for side in fastest_first if side.axis not in rows and side.axis not in lanes)
    sums = max(len(group.terms) for group in found.groups)
    height, width = _power(count(row_sides)), _power(count(lane_sides))
    while height * width > THREADS * max(1, _MAX_ACCUMULATORS // sums) or max(height, width) > _MAX_SIDE:
        height, width = (height // 2, width) if height > width else (height, width // 2)
    if height * width < 4 * THREADS or min(height, width) < 8:
        return None
    thread_rows = thread_lanes = 1
    while thread_rows * thread_lanes * THREADS < height * width:
        if (thread_rows <= thread_lanes and thread_rows * 2 <= height) or thread_lanes * 2 > width:
            thread_rows *= 2
        else:
            thread_lanes *= 2
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
