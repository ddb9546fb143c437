"""Tiles of a matrix product on a GPU: the form that Roller costs and the emitter writes.

Of a product's axes, those of its rows make M, those along lanes N, those that are summed over K; the others are the
batch. Operands pass through shared memory, K-innermost, in pipeline stages; each warp has a tile of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, Cast, Expr, Load, TensorExpr, nodes
from rammer.ir.interned import Interned
from rammer.ir.kernel_form import GemmForm, GemmShape, Instruction, Skeleton
from rammer.ir.task import RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import ByteProducts
from rammer.tiling.pattern import (
    Contraction,
    Group,
    contraction,
    joint_of,
    product_skeleton,
    reduction_order,
    window_points,
)

WARP = 32
LEAST_ROWS = 4  # and columns; below, weights stream from memory instead
_LEAST_SUMS = 128  # below, most threads would hold none
_MAX_SIDE = 128
_MAX_HELD = 32  # sums of a thread: registers are left for operands, and shared memory for the sums
_SLICE_ELEMENTS = 16  # that each slice should have of a sum
_MAX_K = 256
_MAX_COMPUTED_K = 2048
SUMS_PADDING = 8  # elements between rows of the sums in shared memory


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionTile:
    """What an instruction asks of operands in shared memory.

    A warp multiplies `k` elements of the sums at a time. Points lie `padding` elements further apart than their
    elements take, so that what a warp reads together lies in different banks; stages are multiples of `least_k`
    elements for the same reason.
    """

    k: int
    padding: int

    @property
    def least_k(self) -> int:
        """Elements that stages are multiples of."""
        return 2 * max(8, self.padding)


INSTRUCTION_TILES: Mapping[Instruction, InstructionTile] = {
    Instruction.FFMA: InstructionTile(k=4, padding=4),
    Instruction.MMA_F64: InstructionTile(k=8, padding=8),
    Instruction.MMA_TF32: InstructionTile(k=16, padding=4),
    Instruction.MMA_BF16: InstructionTile(k=16, padding=16),
    Instruction.MMA_F16: InstructionTile(k=16, padding=16),
    Instruction.MMA_I8: InstructionTile(k=32, padding=16),
}

OF_FLOAT = (Instruction.FFMA, Instruction.MMA_F64)
"""What multiplies float32 as it is."""

WHOLE_SUMS = (Instruction.MMA_BF16, Instruction.MMA_F16, Instruction.MMA_I8)
"""What whole sums are one stage of."""

_LEAST_STAGES = 2
# More hide no more where arithmetic takes longer than copies.
_STAGES: Mapping[Instruction, int] = {
    Instruction.FFMA: 2,
    Instruction.MMA_F64: 2,
    Instruction.MMA_TF32: 3,
    Instruction.MMA_BF16: 3,
    Instruction.MMA_F16: 3,
    Instruction.MMA_I8: 3,
}


def staged_product(expr: TensorExpr) -> Contraction | None:
    """An expression as a contraction of floats, or of bytes; None for any other."""
    found = contraction(expr, ByteProducts.PLAIN)
    return found if found is not None and len({term.reduce.dtype for term in found.terms}) == 1 else None


def instruction_of(found: Contraction, of_float: Instruction = Instruction.FFMA) -> Instruction:
    """What can multiply all products of a contraction; `of_float` multiplies float32."""
    if found.terms[0].multiplied is DType.INT8:
        return Instruction.MMA_I8
    kinds = {_rounding(operand) for term in found.terms for operand in term.operands}
    return (kinds.pop() if len(kinds) == 1 else None) or of_float


def of_float32(available: Collection[Instruction]) -> Instruction:
    """What multiplies float32 where these instructions are available."""
    return Instruction.MMA_F64 if Instruction.MMA_F64 in available else Instruction.FFMA


def _rounding(operand: Expr) -> Instruction | None:
    match operand:
        case Cast(DType.FLOAT32, inner) if inner.dtype is DType.TF32:
            return Instruction.MMA_TF32
        case Cast(DType.FLOAT32, inner) if inner.dtype is DType.BFLOAT16:
            return Instruction.MMA_BF16
        case Cast(DType.FLOAT32, inner) if inner.dtype is DType.FLOAT16:
            return Instruction.MMA_F16
    return None


def staged_operand(operand: Expr, instruction: Instruction) -> Expr:
    """What is put into shared memory of an operand: float32, or 16-bit floats and bytes as they are stored.

    Rounding is left to what multiplies.
    """
    match operand:
        case _ if instruction in OF_FLOAT or instruction is Instruction.MMA_I8:
            return operand
        case Cast(_, Cast(_, inner)) if inner.dtype is DType.FLOAT32:
            return inner
        case Cast(_, inner):
            return inner
    return operand


def is_computed(staged: Expr) -> bool:
    """Whether what is put into shared memory is elementwise work: no copy, no sum, not two in one."""
    return not isinstance(staged, Load) and not window_points(staged) and joint_of(staged) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmAxes:
    """The spatial axes of a product by their part in it, each list fastest first; the batch's are in both or none."""

    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    batch: tuple[Axis, ...]


@lru_cache(maxsize=1024)
def gemm_axes(expr: TensorExpr, lane: int) -> GemmAxes:
    """The axes of a contraction whose lanes run along the axis at a position.

    Raises:
        ValueError: it is no contraction.
    """
    found = staged_product(expr)
    if found is None:
        raise ValueError("a product is a contraction")
    first = expr.axes[lane]
    fastest_first = [first, *(axis for axis in reversed(expr.axes) if axis is not first)]
    m = tuple(axis for axis in fastest_first if axis in found.rows(expr.axes, first))
    n = tuple(axis for axis in fastest_first if _is_column(found, axis, first))
    return GemmAxes(m=m, n=n, batch=tuple(axis for axis in fastest_first if axis not in m and axis not in n))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class _Product(metaclass=Interned):
    """What a form follows from beside its tile; `_product` makes one for all tiles, and alike ones are the same.

    `held` sums of each point; for each group of sums, the bytes of a row's and of a column's element of all its
    operands, as they are staged, and the extents that it runs over, fastest first; the longest group comes first. If an
    operand `is_computed`, threads wait in each stage for what it is computed of: few stages are long then.
    All of them lie in memory as they are staged if it `is_copied`.
    """

    held: int
    group_bytes: tuple[tuple[int, int], ...]
    extents: tuple[int, ...]
    is_computed: bool
    is_copied: bool
    instruction: Instruction
    skeleton: Skeleton

    def _key(self) -> tuple[object, ...]:
        """What makes two of them the same."""
        kinds = (self.is_computed, self.is_copied, self.instruction, self.skeleton)
        return (self.held, self.group_bytes, self.extents, *kinds)

    @property
    def tile(self) -> InstructionTile:
        """Of the instruction."""
        return INSTRUCTION_TILES[self.instruction]

    @property
    def most_stages(self) -> int:
        """In shared memory at a time."""
        return _LEAST_STAGES if self.is_computed else _STAGES[self.instruction]

    @property
    def most_k(self) -> int:
        """Elements of a stage."""
        return _MAX_COMPUTED_K if self.is_computed else _most_k(self.instruction)

    def element_bytes(self, m: int, n: int) -> int:
        """Of one element of the longest sums, for so many rows and columns."""
        m_bytes, n_bytes = self.group_bytes[0]
        return m * m_bytes + n * n_bytes

    def sums_bytes(self, m: int, n: int) -> int:
        """Of one slice's sums in shared memory."""
        return self.held * m * (n + SUMS_PADDING) * DType.FLOAT32.itemsize_bytes

    def least_bytes(self, m: int, n: int) -> int:
        """Shared memory that a threadblock tile takes at least: two of the shortest stages, then the sums."""
        stage_bytes = self.element_bytes(m, n) * (self.tile.least_k + self.tile.padding)
        return max(2 * stage_bytes, self.sums_bytes(m, n))

    def pipeline_bytes(self, threadblock: GemmShape, stages: int) -> int:
        """Shared memory of all stages, of the group of sums that takes most."""
        pitch = threadblock.k + self.tile.padding
        return stages * pitch * max(threadblock.m * m + threadblock.n * n for m, n in self.group_bytes)


def gemm_form(
    expr: TensorExpr,
    layouts: tuple[Layout, ...],
    tile: RTile,
    threads: int,
    room_bytes: int,
    of_float: Instruction = Instruction.FFMA,
) -> GemmForm | None:
    """The form of rTasks of a tile; None where there are too few sums, or sums that warps do not hold.

    Args:
        expr: the expression.
        layouts: of its slots and outputs.
        tile: what an rTask computes.
        threads: of a block.
        room_bytes: shared memory for operands and sums.
        of_float: one of `OF_FLOAT`.
    """
    if tile.lane is None:
        return None
    return next(gemm_forms(expr, layouts, tile.lane, [tile.task], threads, room_bytes, of_float))


def gemm_forms(
    expr: TensorExpr,
    layouts: tuple[Layout, ...],
    lane: int,
    tasks: Iterable[tuple[int, ...]],
    threads: int,
    room_bytes: int,
    of_float: Instruction = Instruction.FFMA,
) -> Iterator[GemmForm | None]:
    """As `gemm_form`, of tiles along one lane: for each of `tasks`, what an rTask computes."""
    product = _product(expr, layouts, lane, of_float)
    if product is None:
        yield from (None for _ in tasks)
        return
    axes = gemm_axes(expr, lane)
    m, n, batch = ([expr.axes.index(axis) for axis in side] for side in (axes.m, axes.n, axes.batch))
    for task in tasks:
        height, width = math.prod([task[axis] for axis in m]), math.prod([task[axis] for axis in n])
        if min(height, width) < LEAST_ROWS or height * width < _LEAST_SUMS:
            yield None
        else:
            yield _form(product, threads, room_bytes, height, width, math.prod([task[axis] for axis in batch]))


def whole_form(
    expr: TensorExpr,
    layouts: tuple[Layout, ...],
    tile: RTile,
    threads: int,
    room_bytes: int,
    patch_bytes: int | None = None,
) -> GemmForm | None:
    """The form of rTasks whose whole sums are one stage: no barriers between stages, all constants before the Wait.

    None where they do not fit, where a pipeline has no more stages than one, and for operands that are computed.

    Args:
        expr: the expression.
        layouts: of its slots and outputs.
        tile: what an rTask computes.
        threads: of a block.
        room_bytes: shared memory for operands and sums.
        patch_bytes: what a patch takes that has the windows of all rows, if they are windows.
    """
    product = None if tile.lane is None else _product(expr, layouts, tile.lane, Instruction.FFMA)
    if tile.lane is None or product is None:
        return None
    if product.instruction not in WHOLE_SUMS or not product.is_copied or len(product.group_bytes) > 1:
        return None
    axes, sizes = gemm_axes(expr, tile.lane), dict(zip(expr.axes, tile.task, strict=True))
    height, width = (math.prod(sizes[axis] for axis in side) for side in (axes.m, axes.n))
    elements, of_k = math.prod(product.extents), product.tile
    if min(height, width) < LEAST_ROWS or height * width < _LEAST_SUMS or elements % of_k.least_k:
        return None
    if any(sizes[axis] > 1 for axis in axes.batch) or (patch_bytes is None and elements <= product.most_k):
        return None
    warp_m, warp_n, most = _warp_tile(product, threads, room_bytes, height, width)
    m, n = _threadblock_tile(product, threads, room_bytes, (height, width), (warp_m, warp_n))
    if m < height or n < width:
        return None
    slices = next(number for number in range(most, 0, -1) if elements % (number * of_k.k) == 0)
    threadblock = GemmShape(m, n, elements)
    if patch_bytes is None:
        operands_bytes = product.pipeline_bytes(threadblock, 1)
    else:
        operands_bytes = patch_bytes + n * product.group_bytes[0][1] * (elements + of_k.padding)
    scratch_bytes = max(operands_bytes, slices * product.sums_bytes(m, n))
    if scratch_bytes > room_bytes:
        return None
    return GemmForm(
        kind=product.skeleton,
        threads=threads,
        scratch_bytes=scratch_bytes,
        instruction=product.instruction,
        threadblock=threadblock,
        warp=GemmShape(warp_m, warp_n, elements // slices),
        stages=1,
        patch=patch_bytes is not None,
    )


@lru_cache(maxsize=1 << 14)
def _form(product: _Product, threads: int, room_bytes: int, height: int, width: int, batches: int) -> GemmForm:
    """The form of rTasks of so many rows and columns in so many batches: boxes of many shapes have the same."""
    of_k, elements = product.tile, math.prod(product.extents)
    warp_m, warp_n, slices = _warp_tile(product, threads, room_bytes, height, width)
    m, n = _threadblock_tile(product, threads, room_bytes, (height, width), (warp_m, warp_n))
    tiles = batches * -(-height // m) * -(-width // n)
    element_bytes, sums_bytes = product.element_bytes(m, n), product.sums_bytes(m, n)
    beside_bytes = room_bytes - 2 * element_bytes * (of_k.least_k + of_k.padding)
    overlapped = tiles > 1 and len(product.group_bytes) == 1 and sums_bytes <= beside_bytes
    slices = min(slices, _power_below((beside_bytes if overlapped else room_bytes) // sums_bytes))
    if overlapped:
        room_bytes -= slices * sums_bytes
    stages = room_bytes // (element_bytes * (WARP + of_k.padding))
    stages = min(product.most_stages, max(_LEAST_STAGES, stages))
    room = room_bytes // (stages * element_bytes) - of_k.padding
    slices = min(slices, _power_below(room // of_k.k))
    if product.instruction in (
        Instruction.MMA_F64,
        Instruction.MMA_I8,
    ):  # of others, so far, as many as there are warps
        slices = _slices_in_line(of_k, room, slices, product.extents)
    k = _stage_k(min(room, product.most_k), max(of_k.least_k, slices * of_k.k), product.extents)
    stages = min(stages, 1 + (tiles if overlapped else 1) * -(-elements // k))
    threadblock = GemmShape(m, n, k)
    pipeline_bytes, all_sums_bytes = product.pipeline_bytes(threadblock, stages), slices * sums_bytes
    return GemmForm(
        kind=product.skeleton,
        threads=threads,
        scratch_bytes=pipeline_bytes + all_sums_bytes if overlapped else max(pipeline_bytes, all_sums_bytes),
        instruction=product.instruction,
        threadblock=threadblock,
        warp=GemmShape(warp_m, warp_n, k // slices),
        stages=stages,
        tiles=tiles,
        overlapped=overlapped,
    )


@lru_cache(maxsize=1024)
def _product(expr: TensorExpr, layouts: tuple[Layout, ...], lane: int, of_float: Instruction) -> _Product | None:
    """An expression as a product along a lane; None where it is none of float32 or bytes, or has too many sums."""
    found = staged_product(expr)
    if found is None or found.terms[0].multiplied not in (DType.FLOAT32, DType.INT8):
        return None
    held = len(found.terms)
    if held * 16 * 8 > _MAX_HELD * WARP:
        return None
    longest = max(found.groups, key=lambda group: math.prod(axis.extent for axis in group.axes))
    instruction = instruction_of(found, of_float)

    def side_bytes(operands: Sequence[Expr]) -> int:
        return sum(staged_operand(operand, instruction).dtype.itemsize_bytes for operand in operands)

    staged = [staged_operand(operand, instruction) for term in longest.terms for operand in term.operands]
    groups = (longest, *(group for group in found.groups if group is not longest))
    of_groups = (operands_of(found, group, expr.axes[lane]) for group in groups)
    return _Product(
        held=held,
        group_bytes=tuple((side_bytes(rows), side_bytes(columns)) for rows, columns in of_groups),
        extents=tuple(axis.extent for axis in reversed(group_order(longest, layouts))),
        is_computed=any(map(is_computed, staged)),
        is_copied=all(isinstance(one, Load) for one in staged),
        instruction=instruction,
        skeleton=product_skeleton(found, expr.axes[lane]),
    )


def operands_of(found: Contraction, group: Group, lane: Axis) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The distinct row operands and lane operands of a group's products."""
    pairs = [found.split(term, lane) for term in group.terms]
    return tuple(dict.fromkeys(other for _, other in pairs)), tuple(dict.fromkeys(operand for operand, _ in pairs))


def group_order(group: Group, layouts: Sequence[Layout]) -> tuple[Axis, ...]:
    """A group's axes outermost first, short strides innermost; `layouts` are those of the slots and outputs."""
    loads = [node for term in group.terms for node in nodes(term.reduce.body) if isinstance(node, Load)]
    return reduction_order(loads, group.axes, layouts)


def _warp_tile(product: _Product, threads: int, room_bytes: int, height: int, width: int) -> tuple[int, int, int]:
    """M and N of a warp and the slices: as many sums as registers allow, as few slices as keep warps busy."""
    wide = _up(height, 32) * 4 <= _up(height, 16) * 5
    m, n = 32 if wide else 16, 32 if width > 16 else 16 if width > 8 else 8
    if product.instruction is Instruction.MMA_F64:  # its operands are read fast enough for narrow tiles
        n = min((size for size in (32, 24, 16, 8) if size <= n), key=lambda size: (_up(width, size), -size))
    most = max(1, math.prod(product.extents) // max(_SLICE_ELEMENTS, product.tile.k))

    def slices() -> int:
        block_m, block_n = _threadblock_tile(product, threads, room_bytes, (height, width), (m, n))
        return _power_below(threads // WARP * m * n // (block_m * block_n))

    if product.instruction is Instruction.MMA_F64:  # narrow tiles cost it little, sums of slices much
        while slices() > 1 and 32 in (m, n):
            m, n = (16, n) if m > 16 else (m, 16)
    while (product.held * m * n > _MAX_HELD * WARP or slices() > most) and (m > 16 or n > 8):
        m, n = (m // 2, n) if m > 16 and m >= n else (m, n // 16 * 8)
    return m, n, min(slices(), _power_below(most))


@lru_cache(maxsize=1 << 14)
def _threadblock_tile(
    product: _Product, threads: int, room_bytes: int, tile: tuple[int, int], warp_tile: tuple[int, int]
) -> tuple[int, int]:
    """M and N of a threadblock: all of the rTask's, if there are warps and shared memory for them."""
    warp_m, warp_n = warp_tile
    m, n = (min(_MAX_SIDE // unit * unit, _up(size, unit)) for size, unit in zip(tile, warp_tile, strict=True))
    while (m, n) != warp_tile:
        if (m // warp_m) * (n // warp_n) <= threads // WARP and product.least_bytes(m, n) <= room_bytes:
            break
        if n == warp_n or m > max(n, warp_m):
            m = _up(m // 2, warp_m)
        else:
            n = _up(n // 2, warp_n)
    return m, n


def _most_k(instruction: Instruction) -> int:
    """Elements of a stage that is copied: as many bytes of bytes as of floats of 16 bits."""
    return 2 * _MAX_K if instruction is Instruction.MMA_I8 else _MAX_K


def _slices_in_line(of_k: InstructionTile, room: int, slices: int, extents: Sequence[int]) -> int:
    """The most slices, so many or half as many and so on, with which stages are in line with the axes; else so many."""
    for fewer in (slices >> halved for halved in range(slices.bit_length())):
        least = max(of_k.least_k, fewer * of_k.k)
        if any(moving_axes(extents, step) for step in range(least, min(room, _MAX_K) + 1, least)):
            return fewer
    return slices


def _stage_k(room: int, least: int, extents: Sequence[int]) -> int:
    """Elements of the sums of a stage, a multiple of `least`; axes of `extents` are fastest first.

    As many as there is room for; if possible in line with few axes, which spares indices, else such that the last
    stage is about as full.
    """
    elements = math.prod(extents)
    most = max(least, min(room, _up(elements, least)) // least * least)
    steps = [step for step in range(most, max(most // 2, least - 1), -least) if moving_axes(extents, step)]
    if steps:
        return min(steps, key=lambda step: moving_axes(extents, step))
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


def _is_column(found: Contraction, axis: Axis, lane: Axis) -> bool:
    """Whether in every product the lane operand depends on `axis`, and the other does not."""
    pairs = [found.split(term, lane) for term in found.terms]
    return all(axis in found.free[operand] and axis not in found.free[other] for operand, other in pairs)


def _up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is not less."""
    return -(-size // unit) * unit


def _power_below(size: int) -> int:
    """The greatest power of two that is not more."""
    return 1 << max(0, size.bit_length() - 1)
