"""Roller's rules for GPUs: an rTask is shared out among the threads of a block, so it wants many points and few bytes.

A contraction's rTile is a box of rows and lanes, or a strip of lanes where there are no rows (a matrix-vector product).
`RTile.lane` is the axis along which neighbouring threads take neighbouring points; None leaves threads to run along
reductions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from rammer.devices.cuda.tiling.attention import AttentionTime, attention_kernels, cached_bytes
from rammer.devices.cuda.tiling.boxes import boxes, shares
from rammer.devices.cuda.tiling.cell_time import cell_us
from rammer.devices.cuda.tiling.depthwise import depthwise_kernels, depthwise_us
from rammer.devices.cuda.tiling.figures import (
    H200,
    H200_ATTENTION,
    H200_CELLS,
    H200_DEPTHWISE,
    H200_DOUBLES,
    H200_THREADS,
    H200_TREES,
    H200_WARPGROUPS,
    AttentionFigures,
    CellFigures,
    DepthwiseFigures,
    Figures,
    ThreadFigures,
    TreeFigures,
    WarpgroupFigures,
)
from rammer.devices.cuda.tiling.forms import (
    general_form,
    lane_of,
    map_lanes,
    product_form,
    room_bytes,
    staged_forms,
    units_of,
    whole_sums_form,
)
from rammer.devices.cuda.tiling.gemm_time import first_stage_bytes, gemm_times_us, gemm_us
from rammer.devices.cuda.tiling.gemv_rows import row_kernels, row_us
from rammer.devices.cuda.tiling.persistent import persistent_kernels
from rammer.devices.cuda.tiling.thread_time import straight_instructions, thread_us
from rammer.devices.cuda.tiling.trees import tree_kernels, trees_us
from rammer.devices.cuda.tiling.warpgroup import early_ring_bytes, results_us, warpgroup_tiles, warpgroup_us
from rammer.ir.kernel_form import (
    DepthwiseForm,
    FlashAttentionForm,
    GemmForm,
    GemvRowsForm,
    Instruction,
    KernelForm,
    MapForm,
    PersistentRnnForm,
    ReduceForm,
    WarpgroupGemmForm,
)
from rammer.ir.task import RKernel, RTile
from rammer.ir.tree_forms import SharedTreesForm
from rammer.ir.vdevice import Brought, VDevice
from rammer.ir.workload import Workload
from rammer.roller.construct import whole_us
from rammer.roller.model import moved_us
from rammer.roller.tile import TaskTile, constants_bytes, scale_out, task_count
from rammer.tiling.flash_attention import block_of
from rammer.tiling.gemm import WHOLE_SUMS, of_float32, staged_product
from rammer.tiling.pattern import contraction
from rammer.tiling.warpgroup_gemm import Matrix, matrix_product, row_slots

_TASKS_PER_VEU = (0.03, 0.06, 0.125, 0.25, 0.5, 1, 2)
_LEAST_POINTS = 1024  # of an elementwise rTask: less is not worth a hand-over
_ASIDE = 0.25  # of the vEUs, for tagged results of rows: others work on what takes them
_STAGED_INSTRUCTIONS = 620.0  # the median of 152 products whose operands are staged, from 330 to 1,400
_LEAST_INSTRUCTIONS = 250.0  # of other rKernels, with addresses and loops: 220 to 300 for reductions of AlexNet
_WORTH = 0.93  # of the time of other products: a smaller gain is less than the models are off by
_WORTH_WHOLE = 0.96  # likewise for whole sums, whose constants before the Wait are counted as if they came behind it


class _Timed(NamedTuple):
    """A candidate, of which there are many: its rKernel is made where it is compared by what it moves, too.

    `task_us` is the time of an rTask's instructions, in microseconds; `tasks` the number of rTasks.
    """

    tile: RTile
    form: KernelForm
    task_us: float
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRules:
    """`TileRules` of a GPU."""

    figures: Figures = H200
    doubles: Figures = H200_DOUBLES
    threads: ThreadFigures = H200_THREADS
    cells: CellFigures = H200_CELLS
    warpgroups: WarpgroupFigures = H200_WARPGROUPS
    attention: AttentionFigures = H200_ATTENTION
    depthwise: DepthwiseFigures = H200_DEPTHWISE
    trees: TreeFigures = H200_TREES

    def candidates(self, workload: Workload, vdevice: VDevice, *, to_measure: bool) -> list[RKernel]:
        """Candidate rKernels, in no order; as many whoever decides."""
        if kernels := attention_kernels(workload, vdevice, self._attention_time):
            return kernels
        if windows := depthwise_kernels(workload, vdevice, room_bytes(vdevice)):
            return _best(workload, self._timed(workload, _forms(windows), vdevice), vdevice)
        if trees := tree_kernels(workload, vdevice, room_bytes(vdevice)):
            return trees
        expr = workload.expr
        if by_rows := row_kernels(workload, vdevice):
            return by_rows
        found = contraction(expr) or staged_product(expr)
        lane = lane_of(expr, workload.layouts, found, vdevice)
        if found is not None and (lane is None or expr.axes[lane] not in found.lanes):
            found = None
        if found is not None and lane is not None:
            tasks = list(boxes(expr, found, expr.axes[lane], vdevice))
            forms = zip(tasks, staged_forms(workload, lane, tasks, vdevice), strict=True)
            tiles = [(RTile(task=task, lane=lane), form) for task, form in forms if form is not None]
            staged = self._timed(workload, tiles, vdevice)
            staged += self._by_warpgroups(workload, lane, staged, vdevice)
            staged += self._of_whole_sums(workload, lane, tasks, staged, vdevice)
            if staged:
                return _best(workload, staged, vdevice)
            if contraction(expr) is None:  # bytes are only multiplied where they are staged
                found, lane = None, lane_of(expr, workload.layouts, None, vdevice)
        if found is not None or expr.reductions:
            return self._shares(workload, lane, vdevice, is_stream=found is not None)
        lanes = map_lanes(expr, workload.layouts, lane)
        return min(
            (self._shares(workload, one, vdevice) for one in lanes),
            key=lambda some: _least_us(workload, self._timed(workload, _forms(some), vdevice), vdevice),
        )

    def _shares(
        self, workload: Workload, lane: int | None, vdevice: VDevice, *, is_stream: bool = False
    ) -> list[RKernel]:
        """Candidates that cut an expression for so many vEUs, whatever threads do there.

        With `is_stream` it is a product with too few rows to be staged.
        """
        expr = workload.expr
        units = units_of(expr, lane, is_stream=is_stream)
        points = math.prod(axis.extent for axis in expr.axes)
        counts = {1, *(math.ceil(vdevice.veu_count * factor) for factor in _TASKS_PER_VEU)}
        if expr.reductions and not is_stream and all(layout.tagged for layout in workload.layouts[len(expr.inputs) :]):
            counts = {count for count in counts if count <= max(1, _ASIDE * vdevice.veu_count)}
        if not expr.reductions:
            counts = {max(1, min(count, points // _LEAST_POINTS)) for count in counts}
        tiles = (RTile(task=scale_out(expr, units, count), lane=lane) for count in sorted(counts))
        form_of = product_form if is_stream else general_form
        return [workload.kernel(tile, form_of(workload, tile, vdevice)) for tile in dict.fromkeys(tiles)]

    def late_slots(self, workload: Workload, vdevice: VDevice) -> frozenset[int]:
        """What products of warpgroups read of float32 that their columns have in common; see `TileRules`."""
        expr = workload.expr
        found = contraction(expr)
        lane = None if found is None else lane_of(expr, workload.layouts, found, vdevice)
        product = matrix_product(expr, workload.layouts, workload.alignments, lane)
        slots = frozenset[int]() if product is None else row_slots(expr, product)
        if not slots:
            return slots
        kernels = self.candidates(workload, vdevice, to_measure=False)
        return slots if any(isinstance(kernel.form, WarpgroupGemmForm) for kernel in kernels) else frozenset()

    def first_bytes(self, kernel: RKernel, unwritten: Collection[int]) -> int:
        """Attention's keys and values, as many as are staged together; see `TileRules`."""
        return cached_bytes(kernel, kernel.form, unwritten) if isinstance(kernel.form, FlashAttentionForm) else 0

    def brought(self, kernel: RKernel) -> Brought:
        """First stages of products and rings of warpgroups, and code without loops; see `TileRules`."""
        return _brought(kernel)

    def late_us(self, kernel: RKernel) -> float:
        """The epilogues of warpgroups; see `TileRules`."""
        return results_us(kernel, kernel.form, self.warpgroups) if isinstance(kernel.form, WarpgroupGemmForm) else 0.0

    def persistent(self, workload: Workload, vdevice: VDevice) -> tuple[RKernel, ...]:
        """Candidates whose weights stay on their vEUs, if there are any; see `TileRules`."""
        return persistent_kernels(workload, vdevice)

    def results_us(self, kernel: RKernel, vdevice: VDevice) -> float:
        """None: other warps wait for memory meanwhile; see `TileRules`."""
        return 0.0

    def compute_us(self, kernel: RKernel, vdevice: VDevice) -> float:
        """Time of one full rTask's instructions and of the loads that wait for each other, in microseconds."""
        match kernel.form:
            case FlashAttentionForm() as form:
                block = block_of(kernel.expr, of_float32([form.instruction]))
                assert block is not None  # it has the form
                return self._attention_time.task_us(block, form, kernel.layouts, vdevice)
            case DepthwiseForm() as form:
                return depthwise_us(kernel, form, vdevice, self.depthwise)
            case SharedTreesForm() as form:
                return trees_us(kernel, form, vdevice, self.trees)
            case GemmForm() as form:
                return gemm_us(kernel, form, vdevice, self._of_products(form))
            case WarpgroupGemmForm() as form:
                return warpgroup_us(kernel, form, vdevice, self.warpgroups)
            case GemvRowsForm() as form:
                return row_us(kernel, form, vdevice, self.threads)
            case PersistentRnnForm() as form:
                return cell_us(kernel, form, vdevice, self.cells)
        return thread_us(kernel, vdevice, self.threads)

    def _of_products(self, form: GemmForm) -> Figures:
        """The figures of products of a form."""
        return self.doubles if form.instruction is Instruction.MMA_F64 else self.figures

    @property
    def _attention_time(self) -> AttentionTime:
        return AttentionTime(figures=self.figures, own=self.attention)

    def _by_warpgroups(self, workload: Workload, lane: int, staged: Sequence[_Timed], vdevice: VDevice) -> list[_Timed]:
        """Candidates that multiply by warpgroups, where they are clearly faster than those whose warps do."""
        product = matrix_product(workload.expr, workload.layouts, workload.alignments, lane)
        if product is None or product.k < product.slab or (product.axes.batch and isinstance(product.m, Matrix)):
            return []  # short sums: those of a batch are begun sooner by warps, most of a slab would be zeros
        tiles = warpgroup_tiles(workload, lane, vdevice)
        found = self._timed(workload, tiles, vdevice)
        return found if _least_us(workload, found, vdevice) < _WORTH * _least_us(workload, staged, vdevice) else []

    def _of_whole_sums(
        self, workload: Workload, lane: int, tasks: Iterable[TaskTile], others: Sequence[_Timed], vdevice: VDevice
    ) -> list[_Timed]:
        """Candidates whose whole sums are one stage, where they are clearly faster than others."""
        if not any(isinstance(one.form, GemmForm) and one.form.instruction in WHOLE_SUMS for one in others):
            return []
        tiles = (RTile(task=task, lane=lane) for task in tasks)
        forms = ((tile, whole_sums_form(workload, tile, vdevice)) for tile in tiles)
        found = self._timed(workload, ((tile, form) for tile, form in forms if form is not None), vdevice)
        least_us = _least_us(workload, found, vdevice)
        return found if least_us < _WORTH_WHOLE * _least_us(workload, others, vdevice) else []

    def _timed(self, workload: Workload, tiles: Iterable[tuple[RTile, KernelForm]], vdevice: VDevice) -> list[_Timed]:
        """Candidates with their times; see `compute_us`."""
        tiles = list(tiles)
        products = [(tile, form) for tile, form in tiles if isinstance(form, GemmForm)]
        figures = self._of_products(products[0][1]) if products else self.figures  # all by the same instruction
        of_products = iter(gemm_times_us(workload, products, vdevice, figures))
        found = []
        for tile, form in tiles:
            is_product = isinstance(form, GemmForm)
            task_us = next(of_products) if is_product else self.compute_us(workload.kernel(tile, form), vdevice)
            found.append(_Timed(tile, form, task_us, task_count(workload.expr, tile.task)))
        return found


@lru_cache(maxsize=4096)
def _brought(kernel: RKernel) -> Brought:
    kernel = replace(kernel, expr=kernel.expr.usual) if kernel.expr.guards else kernel
    form = kernel.form
    straight = straight_instructions(kernel) if isinstance(form, MapForm | ReduceForm) else 0.0
    return Brought(
        early_bytes=first_stage_bytes(kernel, form) if isinstance(form, GemmForm) else 0,
        beside_bytes=early_ring_bytes(kernel, form) if isinstance(form, WarpgroupGemmForm) else 0,
        constant_bytes=constants_bytes(kernel.expr, kernel.tile.task, kernel.constants),
        instructions=_instructions(form, straight),
        straight_instructions=straight,
    )


def _instructions(form: KernelForm, straight: float) -> float:
    """Those of an rKernel's code, where so many are `straight`; of few forms they are known."""
    if isinstance(form, GemmForm):
        return _STAGED_INSTRUCTIONS
    return max(_LEAST_INSTRUCTIONS, straight) if isinstance(form, MapForm | ReduceForm) else straight


def _forms(kernels: Iterable[RKernel]) -> list[tuple[RTile, KernelForm]]:
    return [(kernel.tile, kernel.form) for kernel in kernels]


def _best(workload: Workload, candidates: Sequence[_Timed], vdevice: VDevice) -> list[RKernel]:
    """Those that finish first, with all vEUs or with fewer, and those that take least of all vEUs' time."""

    def first(veus: int) -> RKernel:
        _, found = _first(workload, candidates, vdevice, lambda count, task_us: -(-count // veus) * task_us)
        assert found is not None  # there are candidates
        return found

    return list(dict.fromkeys(map(first, (1, *shares(vdevice)))))


def _least_us(workload: Workload, candidates: Sequence[_Timed], vdevice: VDevice) -> float:
    """The time of the quickest candidate of an operator that has all vEUs, in microseconds; infinite of none."""
    return _first(workload, candidates, vdevice, lambda count, task_us: whole_us(count, vdevice, task_us))[0]


def _first(
    workload: Workload, candidates: Sequence[_Timed], vdevice: VDevice, time_us: Callable[[int, float], float]
) -> tuple[float, RKernel | None]:
    """The least time and the first candidate that has it; infinite and None of no candidates.

    Args:
        workload: what they compute.
        candidates: with the times of their instructions: what they move takes as long, or longer.
        vdevice: where.
        time_us: an operator's time, of the number of its rTasks and the time of one.
    """
    bounds_us = [time_us(one.tasks, one.task_us) for one in candidates]
    least_us, first, best = math.inf, -1, None
    for place in sorted(range(len(candidates)), key=bounds_us.__getitem__):
        if bounds_us[place] > least_us:
            break
        one = candidates[place]
        kernel = workload.kernel(one.tile, one.form)
        whole = (time_us(one.tasks, max(one.task_us, moved_us(kernel, vdevice))), place)
        if whole < (least_us, first) or best is None:
            (least_us, first), best = whole, kernel
    return least_us, best
