"""rTiles and times of products that warpgroups multiply (`tiling.warpgroup_gemm`), on GPUs that can."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from rammer.devices.cuda.tiling.figures import WarpgroupFigures
from rammer.devices.cuda.tiling.instructions import epilogue_instructions
from rammer.ir.expr import Axis, TensorExpr
from rammer.ir.kernel_form import WarpgroupGemmForm
from rammer.ir.task import RKernel, RTile
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.tiling.image import Image, boxes
from rammer.tiling.warpgroup_gemm import (
    COLUMNS,
    GROUP_ROWS,
    INSTRUCTIONS,
    MOST_SLABS,
    SLAB_BYTES,
    MatrixProduct,
    matrix_product,
    product_of,
    slabs_of,
    warpgroup_gemm_form,
)

_ROWS = (64, 128, 192)  # of an instruction of one, two, three warpgroups
_MOST_COLUMNS = 128
_LEAST_STAGES = 3  # of as many slabs as there can be: fewer are shorter
_NAMED_BYTES = 28 << 10  # of shared memory, that are not for operands: records of a thousand operands fit
_INSTRUCTIONS_A_SLAB = 4
_USUAL_INSTRUCTIONS = 12  # for a result: a bias and a residual


def warpgroup_tiles(
    workload: Workload, lane: int | None, vdevice: VDevice
) -> dict[tuple[RTile, WarpgroupGemmForm], None]:
    """Tiles with their forms, in no order; none where warpgroups cannot multiply."""
    product = matrix_product(workload.expr, workload.layouts, workload.alignments, lane)
    if product is None or INSTRUCTIONS[product.dtype] not in vdevice.instructions:
        return {}
    shared = next(level for level in vdevice.levels if not level.shared)
    room_bytes = shared.capacity_bytes - _NAMED_BYTES
    found: dict[tuple[RTile, WarpgroupGemmForm], None] = {}
    for swapped, (m_sizes, n_sizes) in _sizes(workload.expr, product):
        sizes = {**dict.fromkeys(product.axes.batch, 1), **m_sizes, **n_sizes}
        tile = RTile(task=tuple(sizes[axis] for axis in workload.expr.axes), lane=lane)
        for slabs in _slabs(product):
            form = warpgroup_gemm_form(
                product, workload.expr, tile, vdevice.threads, room_bytes, swapped=swapped, slabs=slabs
            )
            if form is not None and (slabs <= MOST_SLABS // 2 or form.stages >= _LEAST_STAGES):
                found[tile, form] = None
                break
    return found


def _slabs(product: MatrixProduct) -> Sequence[int]:
    """Slabs of a stage that are tried, the best first."""
    if product.k % product.slab or isinstance(product.m, Image):
        return (1,)
    most = MOST_SLABS if product.slabs % MOST_SLABS == 0 else MOST_SLABS // 2
    return tuple(slabs for slabs in (MOST_SLABS, MOST_SLABS // 2, 1) if slabs <= min(most, product.slabs))


def _sizes(expr: TensorExpr, product: MatrixProduct) -> Iterator[tuple[bool, tuple[dict[Axis, int], dict[Axis, int]]]]:
    """Sizes along the axes of both sides, with operands as they are and swapped."""
    for swapped in (False, True):
        instruction_m, instruction_n = product.axes.m, product.axes.n
        if swapped:
            instruction_m, instruction_n = instruction_n, instruction_m
        rows = _runs(instruction_m, _ROWS)
        columns = _runs(instruction_n, _columns(math.prod(axis.extent for axis in instruction_n)))
        if isinstance(product.m, Image):
            of_image = boxes(product.m, _MOST_COLUMNS if swapped else max(_ROWS))
            rows, columns = (rows, of_image) if swapped else (of_image, columns)
        for of_rows, of_columns in itertools.product(rows, columns):
            yield swapped, ((of_columns, of_rows) if swapped else (of_rows, of_columns))


def _columns(extent: int) -> list[int]:
    """Columns of tiles that cut so many into equal parts, each a multiple of what instructions take."""
    cuts = range(-(-extent // _MOST_COLUMNS), -(-extent // COLUMNS) + 1)
    sizes = {-(-extent // cut // COLUMNS) * COLUMNS for cut in cuts}
    return sorted(size for size in sizes if 0 < size <= _MOST_COLUMNS)


def _runs(axes: Sequence[Axis], points: Sequence[int]) -> list[dict[Axis, int]]:
    """Boxes of at most so many points whose points have neighbouring numbers along axes, the fastest first."""
    found = {}
    for most in points:
        sizes, left = {}, most
        for axis in axes:
            sizes[axis] = max(1, min(left, axis.extent))
            left = left // axis.extent if sizes[axis] == axis.extent else 1
        found[tuple(sizes.values())] = sizes
    return list(found.values())


def warpgroup_us(kernel: RKernel, form: WarpgroupGemmForm, vdevice: VDevice, figures: WarpgroupFigures) -> float:
    """Time of one full rTask from the end of its Wait, in microseconds."""
    product = product_of(kernel)
    groups, columns, slabs = form.instruction_m // GROUP_ROWS, form.instruction_n, product.slabs
    steps = -(-slabs // slabs_of(form)) * slabs_of(form)
    cycles = steps * _INSTRUCTIONS_A_SLAB * groups * columns * figures.column_cycles
    veus = min(vdevice.veu_count, kernel.task_count)
    copied_bytes = SLAB_BYTES * (steps * (form.instruction_m + columns) - _early_rows(kernel, product, form, vdevice))
    copy_us = copied_bytes * max(1 / figures.own_bytes_per_us, veus / figures.all_bytes_per_us)
    slab_us = figures.window_slab_us if isinstance(product.m, Image) else figures.slab_us
    multiply_us = cycles / figures.cycles_per_us + steps * slab_us
    return figures.latency_us + max(multiply_us, copy_us) + results_us(kernel, form, figures)


def results_us(kernel: RKernel, form: WarpgroupGemmForm, figures: WarpgroupFigures) -> float:
    """Time from a full rTask's last product, or from when it sees what it takes late, to its end, in microseconds."""
    instructions = max(0, epilogue_instructions(kernel.expr) - _USUAL_INSTRUCTIONS)
    result_us = figures.result_us + instructions * figures.instruction_us
    sums_us = form.instruction_m // GROUP_ROWS * form.instruction_n * figures.sums_us
    return form.threadblock.m * form.threadblock.n * result_us + sums_us


def early_ring_bytes(kernel: RKernel, form: WarpgroupGemmForm) -> int:
    """Bytes of constants that an rTask copies before it waits: as many as the ring has room for.

    None of those that take tagged elements late, which the time of the rTask has in it.
    """
    return SLAB_BYTES * _constant_rows(kernel, product_of(kernel), form)


def _early_rows(kernel: RKernel, product: MatrixProduct, form: WarpgroupGemmForm, vdevice: VDevice) -> int:
    """Rows of slabs of constants that are there when the Wait ends; none of rTasks that follow others on their vEU."""
    return 0 if kernel.task_count > vdevice.veu_count else _constant_rows(kernel, product, form)


def _constant_rows(kernel: RKernel, product: MatrixProduct, form: WarpgroupGemmForm) -> int:
    """Rows of slabs of constants that the ring has room for.

    None where elements are taken late that are tagged: what makes these runs beside them, and more of them are no
    faster.
    """
    if any(layout.tagged for layout in kernel.layouts):
        return 0
    of_m, of_n = form.instruction_m, form.instruction_n
    if form.swapped:
        of_m, of_n = of_n, of_m
    rows = of_m * (product.m.slot in kernel.constants) + of_n * (product.n.slot in kernel.constants)
    return rows * min(product.slabs, form.stages * slabs_of(form))
