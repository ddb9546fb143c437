"""The tiles that are tried for a product whose operands are staged: boxes of rows and lanes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from rammer.ir.expr import Axis, TensorExpr
from rammer.ir.kernel_form import Instruction
from rammer.ir.vdevice import VDevice
from rammer.roller.tile import TaskTile
from rammer.tiling.gemm import instruction_of, of_float32
from rammer.tiling.pattern import Contraction

_HEIGHTS = (16, 32, 48, 64, 128)  # rows and lanes that blocks are good at
_WIDTHS = (16, 32, 64, 128)
_WIDTHS_OF_DOUBLES = (16, 24, 32, 48, 64, 72, 96, 128)
_MAX_CUTS = 8  # of an axis of a block's side
_MAX_SHARES = 5


def boxes(expr: TensorExpr, found: Contraction, lane: Axis, vdevice: VDevice) -> Iterator[TaskTile]:
    """Tiles of about so many rows and lanes, all of them, of shapes that leave few points over.

    They have one batch, or as many as leave each of so many vEUs one rTask.
    """
    rows = found.rows(expr.axes, lane)
    lanes = [axis for axis in expr.axes if axis not in rows and axis in found.lanes]
    batches = [axis for axis in expr.axes if axis not in rows and axis not in lanes]
    instruction = instruction_of(found, of_float32(vdevice.instructions))
    widths = _WIDTHS_OF_DOUBLES if instruction is Instruction.MMA_F64 else _WIDTHS
    for of_height in _sides_of(rows, _HEIGHTS):
        for of_width in _sides_of(lanes, widths):
            for row_sizes, lane_sizes in itertools.product(of_height, of_width):
                sizes = {**row_sizes, **lane_sizes}
                of_a_batch = math.prod(-(-axis.extent // size) for axis, size in sizes.items())
                several = (_cut(batches, veus // of_a_batch) for veus in shares(vdevice) if veus >= of_a_batch)
                for batch_sizes in dict.fromkeys(((1,) * len(batches), *several)):
                    sizes.update(zip(batches, batch_sizes, strict=True))
                    yield tuple(sizes[axis] for axis in expr.axes)


def _cut(axes: Sequence[Axis], most: int) -> tuple[int, ...]:
    """The sizes of at most so many equal boxes that cover all of `axes`."""
    sizes = []
    for axis in axes:
        size = -(-axis.extent // min(most, axis.extent))
        most //= -(-axis.extent // size)
        sizes.append(size)
    return tuple(sizes)


def shares(vdevice: VDevice) -> list[int]:
    """How many vEUs tiles are constructed for: all, the half, and so on."""
    return [veus for halved in range(_MAX_SHARES) if (veus := vdevice.veu_count >> halved)]


def _sides_of(axes: Sequence[Axis], points: Iterable[int]) -> list[list[dict[Axis, int]]]:
    """The boxes of at most so many points, for each of `points` those that are new."""
    seen: set[tuple[int, ...]] = set()
    found = []
    for most in points:
        sides = {tuple(sizes.values()): sizes for sizes in _sides(axes, most)}
        found.append([sizes for key, sizes in sides.items() if key not in seen])
        seen.update(sides)
    return found


def _sides(axes: Sequence[Axis], points: int) -> list[dict[Axis, int]]:
    """Boxes over `axes` of at most so many points, the innermost axis cut into few equal parts or left whole."""
    if not axes:
        return [{}]
    *outer, innermost = axes
    found = []
    for cuts in range(1, _MAX_CUTS + 1):
        size = -(-innermost.extent // cuts)
        if size <= points:
            left, sizes = points // size, {innermost: size}
            for axis in reversed(outer):
                taken = max(1, min(left, axis.extent))
                sizes[axis] = -(-axis.extent // -(-axis.extent // taken))
                left //= taken
            found.append(sizes)
    return found or [{**dict.fromkeys(outer, 1), innermost: points}]
