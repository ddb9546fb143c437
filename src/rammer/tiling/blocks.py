"""How the threads of a GPU's block share out a contraction's tile: what Roller predicts and the emitter writes.

A block computes `rows` by `lanes` sums at a time. Its operands pass through shared memory in *steps* of the elements
of the sums. Each warp holds a part of the sums; where that leaves warps over, they *split* the elements of each step.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, Cast, Expr, Load, TensorExpr, nodes
from rammer.ir.task import Resources, RKernel
from rammer.ir.types import DType, Layout
from rammer.tiling.pattern import Contraction, Group, contraction, reduction_order

WARP = 32
LEAST_ROWS = 4  # and lanes; below, weights stream from memory instead
_LEAST_SUMS = 128  # below, most threads would hold none
_MAX_SIDE = 128
_MAX_HELD = 32  # sums of a thread: registers are left for operands, and shared memory for the sums
_SPLIT_ELEMENTS = 16  # that each split should have of a sum
_MAX_STEP = 256
PART_PADDING = 8  # elements between rows of the sums in shared memory


class Arithmetic(enum.Enum):
    """What multiplies, by how operands are rounded."""

    FLOAT32 = "float32"  # multiply-adds
    TF32 = "tf32"  # tensor cores from here on
    BFLOAT16 = "bf16"
    FLOAT16 = "f16"

    @property
    def grain(self) -> int:
        """Elements of the sums that a warp multiplies at a time."""
        return 4 if self is Arithmetic.FLOAT32 else 16

    @property
    def padding(self) -> int:
        """Elements between points in shared memory, so that what a warp reads together lies in different banks."""
        return 4 if self in (Arithmetic.FLOAT32, Arithmetic.TF32) else 16

    @property
    def least_step(self) -> int:
        """Elements that steps are multiples of, for the same reason."""
        return 2 * max(8, self.padding)


# More hide no more where arithmetic takes longer than copies.
_STAGES: Mapping[Arithmetic, int] = {
    Arithmetic.FLOAT32: 2,
    Arithmetic.TF32: 3,
    Arithmetic.BFLOAT16: 3,
    Arithmetic.FLOAT16: 3,
}


def arithmetic_of(found: Contraction) -> Arithmetic:
    """What can multiply all products of a contraction."""
    kinds = {_rounding(operand) for term in found.terms for operand in term.operands}
    return kinds.pop() if len(kinds) == 1 else Arithmetic.FLOAT32


def _rounding(operand: Expr) -> Arithmetic:
    match operand:
        case Cast(DType.FLOAT32, inner) if inner.dtype is DType.TF32:
            return Arithmetic.TF32
        case Cast(DType.FLOAT32, inner) if inner.dtype is DType.BFLOAT16:
            return Arithmetic.BFLOAT16
        case Cast(DType.FLOAT32, inner) if inner.dtype is DType.FLOAT16:
            return Arithmetic.FLOAT16
    return Arithmetic.FLOAT32


def staged_form(operand: Expr, arithmetic: Arithmetic) -> Expr:
    """What is put into shared memory of an operand: float32, or the 16-bit floats as they are stored.

    Rounding is left to what multiplies.
    """
    match operand:
        case _ if arithmetic is Arithmetic.FLOAT32:
            return operand
        case Cast(_, Cast(_, inner)) if inner.dtype is DType.FLOAT32:
            return inner
        case Cast(_, inner):
            return inner
    return operand


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Axes of an rTask by their part in the product, each list fastest first, and the sizes of a block.

    `threads` share out a block. `batch_axes` are those that both operands have, or none. `step` elements of the sums
    are staged at a time, `stages` steps are in shared memory together. A full rTask has `count` blocks. Where they are
    `chained`, the next one's operands are on their way while one is finished: sums have shared memory of their own.
    """

    threads: int

    row_axes: tuple[Axis, ...]
    lane_axes: tuple[Axis, ...]
    batch_axes: tuple[Axis, ...]
    rows: int
    lanes: int
    warp_rows: int
    warp_lanes: int
    arithmetic: Arithmetic
    splits: int
    step: int
    stages: int
    count: int
    chained: bool

    @property
    def warps(self) -> int:
        """Warps that together hold a block's sums."""
        return (self.rows // self.warp_rows) * (self.lanes // self.warp_lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """What blocks follow from beside their tile.

    Axes by their part, as in `Blocks`; `held` sums of each point in `groups`, the longest of which run over `extents`,
    fastest first; bytes of a row's and of a lane's element of all their operands, as they are staged.
    """

    row_axes: tuple[Axis, ...]
    lane_axes: tuple[Axis, ...]
    batch_axes: tuple[Axis, ...]
    held: int
    groups: int
    extents: tuple[int, ...]
    row_bytes: int
    lane_bytes: int
    arithmetic: Arithmetic

    def point_bytes(self, rows: int, lanes: int) -> int:
        """Of one element of the sums, for so many rows and lanes."""
        return rows * self.row_bytes + lanes * self.lane_bytes

    def part_bytes(self, rows: int, lanes: int) -> int:
        """Of one split's sums in shared memory."""
        return self.held * rows * (lanes + PART_PADDING) * DType.FLOAT32.itemsize_bytes

    def least_bytes(self, rows: int, lanes: int) -> int:
        """Shared memory that a block takes at least: two of the shortest steps, then the sums."""
        step_bytes = self.point_bytes(rows, lanes) * (self.arithmetic.least_step + self.arithmetic.padding)
        return max(2 * step_bytes, self.part_bytes(rows, lanes))


@lru_cache(maxsize=4096)
def blocks_of(kernel: RKernel) -> Blocks | None:
    """The blocks of an rTask of a contraction; None where it has too few sums, or sums that warps do not hold."""
    if kernel.tile.lane is None:
        return None
    return blocks_within(kernel.expr, kernel.layouts, kernel.tile.lane, kernel.tile.task, kernel.resources)


def blocks_within(
    expr: TensorExpr, layouts: tuple[Layout, ...], lane: int, task: Sequence[int], resources: Resources
) -> Blocks | None:
    """As `blocks_of`, of an rTask of these sizes along the axis at position `lane` that takes so much of a vEU."""
    product = _product(expr, layouts, lane)
    if product is None:
        return None
    sizes = dict(zip(expr.axes, task, strict=True))
    height, width, batches = (
        math.prod(sizes[axis] for axis in axes) for axes in (product.row_axes, product.lane_axes, product.batch_axes)
    )
    if min(height, width) < LEAST_ROWS or height * width < _LEAST_SUMS:
        return None
    arithmetic, elements, room_bytes = product.arithmetic, math.prod(product.extents), resources.scratch_bytes
    warp_rows, warp_lanes, splits = _warp_tile(product, resources, height, width)
    block_rows, block_lanes = _block(product, resources, (height, width), (warp_rows, warp_lanes))
    count = batches * -(-height // block_rows) * -(-width // block_lanes)
    point_bytes = product.point_bytes(block_rows, block_lanes)
    part_bytes = product.part_bytes(block_rows, block_lanes)
    beside_bytes = room_bytes - 2 * point_bytes * (arithmetic.least_step + arithmetic.padding)
    chained = count > 1 and product.groups == 1 and part_bytes <= beside_bytes
    splits = min(splits, _power_below((beside_bytes if chained else room_bytes) // part_bytes))
    if chained:
        room_bytes -= splits * part_bytes
    stages = min(_STAGES[arithmetic], max(2, room_bytes // (point_bytes * (WARP + arithmetic.padding))))
    room = room_bytes // (stages * point_bytes) - arithmetic.padding
    splits = min(splits, _power_below(room // arithmetic.grain))
    step = _step(room, max(arithmetic.least_step, splits * arithmetic.grain), product.extents)
    return Blocks(
        threads=resources.threads,
        row_axes=product.row_axes,
        lane_axes=product.lane_axes,
        batch_axes=product.batch_axes,
        rows=block_rows,
        lanes=block_lanes,
        warp_rows=warp_rows,
        warp_lanes=warp_lanes,
        arithmetic=arithmetic,
        splits=splits,
        step=step,
        stages=min(stages, 1 + (count if chained else 1) * -(-elements // step)),
        count=count,
        chained=chained,
    )


@lru_cache(maxsize=1024)
def _product(expr: TensorExpr, layouts: tuple[Layout, ...], lane_position: int) -> _Product | None:
    """An expression as a product along a lane; None where it is none of float32, or has sums that warps do not hold."""
    found = contraction(expr)
    if found is None or found.terms[0].reduce.dtype is not DType.FLOAT32:
        return None
    held = len(found.terms)
    if held * 16 * 8 > _MAX_HELD * WARP:
        return None
    lane = expr.axes[lane_position]
    fastest_first = [lane, *(axis for axis in reversed(expr.axes) if axis is not lane)]
    rows = [axis for axis in fastest_first if axis in found.rows(expr.axes, lane)]
    lanes = [axis for axis in fastest_first if _is_lane(found, axis, lane)]
    longest = max(found.groups, key=lambda group: math.prod(axis.extent for axis in group.axes))
    arithmetic = arithmetic_of(found)
    row_bytes, lane_bytes = (
        sum(staged_form(operand, arithmetic).dtype.itemsize_bytes for operand in operands)
        for operands in operands_of(found, longest, lane)
    )
    return _Product(
        row_axes=tuple(rows),
        lane_axes=tuple(lanes),
        batch_axes=tuple(axis for axis in fastest_first if axis not in rows and axis not in lanes),
        held=held,
        groups=len(found.groups),
        extents=tuple(axis.extent for axis in reversed(group_order(longest, layouts))),
        row_bytes=row_bytes,
        lane_bytes=lane_bytes,
        arithmetic=arithmetic,
    )


def operands_of(found: Contraction, group: Group, lane: Axis) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The distinct row operands and lane operands of a group's products."""
    pairs = [found.split(term, lane) for term in group.terms]
    return tuple(dict.fromkeys(other for _, other in pairs)), tuple(dict.fromkeys(operand for operand, _ in pairs))


def group_order(group: Group, layouts: Sequence[Layout]) -> tuple[Axis, ...]:
    """A group's axes outermost first, short strides innermost; `layouts` are those of the slots and outputs."""
    loads = [node for term in group.terms for node in nodes(term.reduce.body) if isinstance(node, Load)]
    return reduction_order(loads, group.axes, layouts)


def _warp_tile(product: _Product, resources: Resources, height: int, width: int) -> tuple[int, int, int]:
    """Rows and lanes of a warp and the splits: as many sums as registers allow, as few splits as keep warps busy."""
    wide = _up(height, 32) * 4 <= _up(height, 16) * 5
    rows, lanes = 32 if wide else 16, 32 if width > 16 else 16 if width > 8 else 8
    most = max(1, math.prod(product.extents) // _SPLIT_ELEMENTS)

    def splits() -> int:
        block_rows, block_lanes = _block(product, resources, (height, width), (rows, lanes))
        return _power_below(resources.threads // WARP * rows * lanes // (block_rows * block_lanes))

    while (product.held * rows * lanes > _MAX_HELD * WARP or splits() > most) and (rows > 16 or lanes > 8):
        rows, lanes = (rows // 2, lanes) if rows > 16 and rows >= lanes else (rows, lanes // 2)
    return rows, lanes, min(splits(), _power_below(most))


def _block(
    product: _Product, resources: Resources, tile: tuple[int, int], warp_tile: tuple[int, int]
) -> tuple[int, int]:
    """Rows and lanes of a block: all of the tile's, if there are warps and shared memory for them."""
    warp_rows, warp_lanes = warp_tile
    rows, lanes = (min(_MAX_SIDE, _up(size, unit)) for size, unit in zip(tile, warp_tile, strict=True))

    def fits() -> bool:
        warps = (rows // warp_rows) * (lanes // warp_lanes)
        return warps <= resources.threads // WARP and product.least_bytes(rows, lanes) <= resources.scratch_bytes

    while not fits() and (rows, lanes) != warp_tile:
        if lanes == warp_lanes or rows > max(lanes, warp_rows):
            rows = _up(rows // 2, warp_rows)
        else:
            lanes = _up(lanes // 2, warp_lanes)
    return rows, lanes


def _step(room: int, least: int, extents: Sequence[int]) -> int:
    """Elements of the sums of a step, a multiple of `least`; axes of `extents` are fastest first.

    As many as there is room for; if possible as `moving_axes` wants it, else such that the last step is about as full.
    """
    elements = math.prod(extents)
    most = max(least, min(room, _MAX_STEP, _up(elements, least)) // least * least)
    whole = [step for step in range(most, least - 1, -least) if moving_axes(extents, step)]
    if whole and whole[0] * 2 > most:
        return whole[0]
    return min(most, _up(-(-elements // -(-elements // most)), least))


def moving_axes(extents: Sequence[int], step: int) -> int:
    """How many axes, fastest first, a step runs over in part or whole; all others stand still in it.

    0 if steps are not in line with any axis: then all axes move, and indices take divisions.
    """
    product = 1
    for number, extent in enumerate(extents, 1):
        product *= extent
        if product % step == 0:
            return number
    return 0


def _is_lane(found: Contraction, axis: Axis, lane: Axis) -> bool:
    """Whether in every product the lane operand depends on `axis`, and the other does not."""
    pairs = [found.split(term, lane) for term in found.terms]
    return all(axis in found.free[operand] and axis not in found.free[other] for operand, other in pairs)


def _up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is not less."""
    return -(-size // unit) * unit


def _power_below(size: int) -> int:
    """The greatest power of two that is not more."""
    return 1 << max(0, size.bit_length() - 1)
