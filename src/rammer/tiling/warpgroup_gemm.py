"""Products that warpgroups multiply from shared memory: which they are, and the form of a tile.

Both operands have to be matrices in memory, K-innermost, as the hardware's tensor maps describe them: what a tile takes
of one is a box, which one instruction copies. Windows of an image are boxes, too (`image.py`). Anything else is the
other skeletons' work.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, Cast, Expr, Load, Reduce, TensorExpr, nodes
from rammer.ir.kernel_form import GemmShape, Instruction, WarpgroupGemmForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.tiling.addresses import Accesses
from rammer.tiling.gemm import WARP, GemmAxes, gemm_axes, group_order
from rammer.tiling.image import Image, image_of
from rammer.tiling.pattern import contraction, free_axes

SLAB_BYTES = 128  # of a row: as much as a swizzle reaches over, and what a box has of its fastest dimension
GROUP_THREADS = 128
GROUP_ROWS = 64
COLUMNS = 8  # that the instruction's columns are a multiple of
MOST_COLUMNS = 128  # of an instruction: more sums leave a thread too few registers
MOST_STAGES = 8
MOST_SLABS = 4  # of a stage
_OTHER_WARPS = 2  # than those that multiply: one asks for copies, one gives Signals
_LEAST_STAGES = 2  # one is multiplied while the next one is copied
MAP_BYTES = 16  # that offsets and strides of tensor maps are multiples of
_OWN_BYTES = 32  # what tensors of ours are aligned to, and callers' arrays are not: no tensor map says where those lie
MOST_ROW_VALUES = 4  # that lie behind the sums of a row in shared memory
_SUMS_PADDING = 8  # elements between rows of the sums in shared memory, or 4 (`sums_pitch`)

INSTRUCTIONS: Mapping[DType, Instruction] = {
    DType.TF32: Instruction.WGMMA_TF32,
    DType.BFLOAT16: Instruction.WGMMA_BF16,
    DType.FLOAT16: Instruction.WGMMA_F16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """An operand: element k of row i of batch b is at `offset + b * batch_stride + i * row_stride + k` of its slot."""

    slot: int
    offset: int
    rows: int
    row_stride: int
    batch_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixProduct:
    """A product of matrices: those of the result's rows and of its columns, `batches` of them, `k` elements to a row.

    Rows are numbered along the axes of a side, the fastest first. Those of the result may be windows of an image.
    """

    axes: GemmAxes
    sums: Reduce
    m: Matrix | Image
    n: Matrix
    batches: int
    k: int
    dtype: DType

    @property
    def slab(self) -> int:
        """Elements of a slab of a row."""
        return SLAB_BYTES // self.dtype.itemsize_bytes

    @property
    def slabs(self) -> int:
        """Slabs of a row; the last one may end early."""
        return -(-self.k // self.slab)


@lru_cache(maxsize=1024)
def matrix_product(
    expr: TensorExpr, layouts: tuple[Layout, ...], alignments: tuple[int, ...], lane: int | None
) -> MatrixProduct | None:
    """An expression as a product of matrices whose columns run along the axis at position `lane`; None if it is none.

    Operands are elements of 16 bits, or float32 that are stored rounded to TF32.
    """
    found = contraction(expr)
    if found is None or lane is None or len(found.terms) != 1 or expr.axes[lane] not in found.lanes:
        return None
    if not alignments or any(layout.tagged for layout in layouts[len(expr.inputs) :]):
        return None
    (group,) = found.groups
    axes = gemm_axes(expr, lane)
    if not axes.m or len(axes.batch) > 1:
        return None
    of_n, of_m = (_stored(operand) for operand in found.split(group.terms[0], expr.axes[lane]))
    if of_m is None or of_n is None or of_m.type is not of_n.type:
        return None
    accesses = Accesses(expr, layouts)
    inner = tuple(reversed(group_order(group, layouts)))
    m = _matrix(accesses, of_m, axes.m, axes.batch, inner) or _image(expr, layouts, of_m, axes, inner)
    n = _matrix(accesses, of_n, axes.n, axes.batch, inner)
    if m is None or n is None or layouts[m.slot].tagged or layouts[n.slot].tagged:
        return None
    if not all(_is_aligned(one, of_m.type, alignments) for one in (m, n)):
        return None
    return MatrixProduct(
        axes=axes,
        sums=group.terms[0].reduce,
        m=m,
        n=n,
        batches=math.prod(axis.extent for axis in axes.batch),
        k=math.prod(axis.extent for axis in inner),
        dtype=of_m.type,
    )


def product_of(kernel: RKernel) -> MatrixProduct:
    """The matrices of an rKernel with such a form.

    Raises:
        ValueError: it multiplies none.
    """
    found = matrix_product(kernel.expr, kernel.layouts, kernel.alignments, kernel.tile.lane)
    if found is None:
        raise ValueError("a product of warpgroups is one of matrices")
    return found


def row_slots(expr: TensorExpr, product: MatrixProduct) -> frozenset[int]:
    """The slots of float32 that are read outside of the sums alone, at places that all columns have in common."""
    inside = {node.slot for node in nodes(product.sums) if isinstance(node, Load)}
    free = free_axes(*expr.roots)
    by_column = {load.slot for load in expr.loads if not free[load].isdisjoint(product.axes.n)}
    found = [
        load.slot
        for load in expr.loads
        if load.slot not in inside | by_column and load.dtype is DType.FLOAT32 and free[load] and load.fill is None
    ]
    return frozenset(found if len(found) <= MOST_ROW_VALUES else ())


def _stored(operand: Expr) -> Load | None:
    """The load that an operand is, if what multiplies takes its elements as they are stored."""
    match operand:
        case Cast(DType.FLOAT32, Load(_, _, type_, _) as load) if type_ in INSTRUCTIONS:
            return load
    return None


def _image(
    expr: TensorExpr, layouts: Sequence[Layout], load: Load, axes: GemmAxes, inner: Sequence[Axis]
) -> Image | None:
    """A load as an image whose channels slabs divide."""
    found = image_of(load, expr.inputs[load.slot], layouts[load.slot], axes.m, axes.batch, inner)
    slab = SLAB_BYTES // load.type.itemsize_bytes
    return found if found is not None and found.group_channels % slab == 0 else None


def _matrix(
    accesses: Accesses, load: Load, rows: Sequence[Axis], batch: Sequence[Axis], inner: Sequence[Axis]
) -> Matrix | None:
    """A load as a matrix with these axes, each list fastest first."""
    address = accesses.loads[load]
    if address.parts or address.checks or address.atoms:
        return None
    row_stride, k_stride = (_stride(address.form.coefficient, side) for side in (rows, inner))
    if not row_stride or k_stride != 1:
        return None
    return Matrix(
        slot=load.slot,
        offset=address.form.offset,
        rows=math.prod(axis.extent for axis in rows),
        row_stride=row_stride,
        batch_stride=sum(address.form.coefficient(axis) for axis in batch),
    )


def _stride(coefficient: Callable[[Axis], int], axes: Sequence[Axis]) -> int:
    """Elements from a point to the next along axes that are numbered as one, the fastest first; 0 if they are not."""
    first = step = coefficient(axes[0])
    for inner, outer in itertools.pairwise(axes):
        step *= inner.extent
        if coefficient(outer) != step:
            return 0
    return first


def _is_aligned(one: Matrix | Image, dtype: DType, alignments: Sequence[int]) -> bool:
    strides = (one.row_stride, one.batch_stride) if isinstance(one, Matrix) else [dim.stride for dim in one.dims]
    return (
        strides[0] > 0 <= min(strides)
        and not any(number * dtype.itemsize_bytes % MAP_BYTES for number in (one.offset, *strides))
        and alignments[one.slot] * dtype.itemsize_bytes % _OWN_BYTES == 0
    )


def warpgroup_gemm_form(
    product: MatrixProduct,
    expr: TensorExpr,
    tile: RTile,
    threads: int,
    room_bytes: int,
    *,
    swapped: bool,
    slabs: int,
) -> WarpgroupGemmForm | None:
    """The form of rTasks of a tile; None where it is too large for the threads or their shared memory, or no box.

    Args:
        product: the matrices.
        expr: the expression.
        tile: what an rTask computes.
        threads: of a block.
        room_bytes: shared memory for operands and sums.
        swapped: whether the result's columns are the instruction's rows.
        slabs: of each row, to a stage.
    """
    sizes = dict(zip(expr.axes, tile.task, strict=True))
    m_fits = product.m.is_box(sizes) if isinstance(product.m, Image) else _is_run(product.axes.m, sizes)
    if not (m_fits and _is_run(product.axes.n, sizes)) or (isinstance(product.m, Image) and slabs > 1):
        return None
    if math.prod(sizes[axis] for axis in product.axes.batch) != 1:
        return None
    m, n = (math.prod(sizes[axis] for axis in side) for side in (product.axes.m, product.axes.n))
    m, n = (_up(m, COLUMNS), _up(n, GROUP_ROWS)) if swapped else (_up(m, GROUP_ROWS), _up(n, COLUMNS))
    rows, columns = (n, m) if swapped else (m, n)
    stage_bytes = (rows + columns) * slabs * SLAB_BYTES
    steps = -(-product.slabs // slabs)
    stages = min(MOST_STAGES, steps, room_bytes // stage_bytes)
    sums_bytes = m * sums_pitch(n, swapped=swapped) * DType.FLOAT32.itemsize_bytes
    threads_of_sums = rows // GROUP_ROWS * GROUP_THREADS
    if (
        stages < min(_LEAST_STAGES, steps)
        or sums_bytes > room_bytes
        or columns > MOST_COLUMNS
        or threads_of_sums > threads - _OTHER_WARPS * WARP
    ):
        return None
    if slabs > 1 and product.k % product.slab:
        return None  # a box of several slabs would run on into the next row
    return WarpgroupGemmForm(
        threads=threads,
        scratch_bytes=max(stages * stage_bytes, sums_bytes),
        instruction=INSTRUCTIONS[product.dtype],
        threadblock=GemmShape(m, n, slabs * product.slab),
        stages=stages,
        swapped=swapped,
        finishers=threads - threads_of_sums if rows == GROUP_ROWS else threads,
    )


def slabs_of(form: WarpgroupGemmForm) -> int:
    """Slabs of each row that a stage has."""
    return form.threadblock.k // next(
        SLAB_BYTES // dtype.itemsize_bytes for dtype, found in INSTRUCTIONS.items() if found is form.instruction
    )


def sums_pitch(n: int, *, swapped: bool) -> int:
    """Elements from a row of the sums in shared memory to the next: what a warp stores lies in different banks."""
    return n + (_SUMS_PADDING // 2 if swapped else _SUMS_PADDING)


def _is_run(axes: Sequence[Axis], sizes: Mapping[Axis, int]) -> bool:
    """Whether a tile's points along axes that are numbered as one, the fastest first, have neighbouring numbers."""
    first = next((place for place, axis in enumerate(axes) if sizes[axis] < axis.extent), len(axes))
    return all(sizes[axis] == 1 for axis in axes[first + 1 :])


def _up(size: int, unit: int) -> int:
    """The least multiple of `unit` that is not less."""
    return -(-size // unit) * unit
