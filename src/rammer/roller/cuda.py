"""rTiles for GPUs: an rTask is shared out among the threads of a block, so it wants many points and few bytes.

A contraction's rTile is a box of rows and lanes, or a strip of lanes where there are no rows (a matrix-vector product).
`RTile.lane` is the axis along which neighbouring threads take neighbouring points; None leaves threads to run along
reductions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, Expr, Load, TensorExpr, nodes
from rammer.ir.kernel_form import GemmForm, Instruction, KernelForm, WarpgroupGemmForm
from rammer.ir.region import Affine, affine
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.roller.persistent import LANES, resident_count
from rammer.roller.tile import TaskTile, footprint_bytes, scale_out, task_count
from rammer.roller.warpgroup import warpgroup_tiles, warpgroup_us
from rammer.roller.workload import Workload
from rammer.tiling.gemm import (
    INSTRUCTION_TILES,
    LEAST_ROWS,
    WARP,
    gemm_axes,
    gemm_form,
    group_order,
    operands_of,
    staged_operand,
)
from rammer.tiling.gemv import gemv_form
from rammer.tiling.pattern import Contraction, Group, chosen_axes, contraction, stride_along, window_points
from rammer.tiling.persistent_rnn import persistent_rnn_form
from rammer.tiling.reduce import map_form, reduce_form
from rammer.tiling.rows import outer_reductions
from rammer.tiling.warpgroup_gemm import product_of

_STREAM_LANES = 8  # one sector of float32
_TASKS_PER_VEU = (0.03, 0.06, 0.125, 0.25, 0.5, 1, 2)
_LEAST_POINTS = 1024  # of an elementwise rTask: less is not worth a hand-over
_HEIGHTS = (16, 32, 48, 64, 128)  # rows and lanes that blocks are good at
_WIDTHS = (16, 32, 64, 128)
_MAX_CUTS = 8  # of an axis of a block's side
_STAGED_CANDIDATES = 6
_STAGED = 0.7  # of shared memory, for operands: what is left caches those that are copied again
# Instructions of a thread for a point and for an element of a point's sums.
_EPILOGUE = 40
_PER_ELEMENT = 4
_CHOSEN = 14  # for a point among several that a thread computes together, sharing loads and sums (`chosen_axes`)
# Likewise for a window and for each of its points, where a thread computes several neighbouring ones.
_WINDOW = 20
_PER_WINDOW_POINT = 2
_ISSUE = 0.6  # of the instructions that could be started
_LATENCY_US = 1.3  # pointers, the first operands, and what the rest reads, one after the other
_LOADS_IN_FLIGHT = 16
# Measured on an NVIDIA H200, in cycles of a quarter of a multiprocessor. It multiplies for one warp at a time, and not
# while it reads shared memory.
_QUARTER_THREADS = 128
_STEP_CYCLES = 600  # a barrier, and the first reads after it
_COPY_CYCLES = 1.2  # for up to 16 bytes
_FINISH_CYCLES = 0.4  # for a sum of one split
_RESULT_CYCLES = 1.0
_ADD_CYCLES = 1.03  # for a multiply-add of each thread of a warp
_READ_CYCLES = 4.85  # for a read of 16 bytes by each thread of a warp
# Of tensor cores: for the products of 16 rows by 8 lanes of 16 elements; for 4 elements that each thread of a warp
# reads and rounds.
_TENSOR_CYCLES: Mapping[Instruction, tuple[float, float]] = {
    Instruction.MMA_TF32: (10.0, 14.0),
    Instruction.MMA_BF16: (6.0, 10.0),
    Instruction.MMA_F16: (6.0, 10.0),
}
_COPY_BYTES = (16, 8, 4)  # of an instruction

_Staged = tuple[RTile, GemmForm | WarpgroupGemmForm]


def candidates(workload: Workload, vdevice: VDevice) -> list[RKernel]:
    """Candidate rKernels for a GPU, in no order."""
    expr, layouts = workload.expr, workload.layouts
    found = contraction(expr)
    lane = _lane(expr, layouts, found, vdevice)
    if found is not None and (lane is None or expr.axes[lane] not in found.lanes):
        found = None
    if found is not None and lane is not None:
        tiles = (RTile(task=task, lane=lane) for task in _boxes(expr, found, expr.axes[lane], vdevice))
        found_forms = ((tile, _gemm_form(workload, tile, vdevice)) for tile in tiles)
        staged: list[_Staged] = [(tile, form) for tile, form in found_forms if form is not None]
        staged += warpgroup_tiles(workload, lane, vdevice)
        if staged:
            return [workload.kernel(tile, form) for tile, form in _best(workload, staged, vdevice)]
    units = _units(expr, lane, is_stream=found is not None)
    points = math.prod(axis.extent for axis in expr.axes)
    counts = {1, *(math.ceil(vdevice.veu_count * factor) for factor in _TASKS_PER_VEU)}
    if not expr.reductions:
        counts = {max(1, min(count, points // _LEAST_POINTS)) for count in counts}
    tiles = (RTile(task=scale_out(expr, units, count), lane=lane) for count in sorted(counts))
    form_of = _product_form if found is not None else _general_form
    return [workload.kernel(tile, form_of(workload, tile, vdevice)) for tile in dict.fromkeys(tiles)]


def _general_form(workload: Workload, tile: RTile, vdevice: VDevice) -> KernelForm:
    """The form of what is no product."""
    form_of = reduce_form if workload.expr.reductions else map_form
    return form_of(workload.expr, workload.layouts, tile, vdevice.threads, workload.alignments)


def _product_form(workload: Workload, tile: RTile, vdevice: VDevice) -> KernelForm:
    """The form of a product: in tiles if it has enough rows, else weights stay in registers, if they can, or stream."""
    expr, layouts, threads = workload.expr, workload.layouts, vdevice.threads
    return (
        _gemm_form(workload, tile, vdevice)
        or persistent_rnn_form(expr, layouts, tile, workload.constants, threads, vdevice.resident_bytes)
        or gemv_form(expr, layouts, tile, threads, workload.alignments)
    )


def _gemm_form(workload: Workload, tile: RTile, vdevice: VDevice) -> GemmForm | None:
    """The form of a product in tiles, None where it has too few rows or columns."""
    shared = next(level for level in vdevice.levels if not level.shared)
    room_bytes = int(shared.capacity_bytes * _STAGED)
    return gemm_form(workload.expr, workload.layouts, tile, vdevice.threads, room_bytes)


def _boxes(expr: TensorExpr, found: Contraction, lane: Axis, vdevice: VDevice) -> Iterator[TaskTile]:
    """Tiles of about so many rows and lanes, all of them, of shapes that leave few points over.

    They have one batch, or as many as leave each of so many vEUs one rTask.
    """
    rows = found.rows(expr.axes, lane)
    lanes = [axis for axis in expr.axes if axis not in rows and axis in found.lanes]
    batches = [axis for axis in expr.axes if axis not in rows and axis not in lanes]
    for of_height in _sides_of(rows, _HEIGHTS):
        for of_width in _sides_of(lanes, _WIDTHS):
            for row_sizes, lane_sizes in itertools.product(of_height, of_width):
                sizes = {**row_sizes, **lane_sizes}
                of_a_batch = math.prod(-(-axis.extent // size) for axis, size in sizes.items())
                several = (_cut(batches, veus // of_a_batch) for veus in _shares(vdevice) if veus >= of_a_batch)
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


def _shares(vdevice: VDevice) -> list[int]:
    """How many vEUs tiles are constructed for: all, the half, and so on."""
    return [veus for halved in range(_STAGED_CANDIDATES - 1) if (veus := vdevice.veu_count >> halved)]


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


def _best(workload: Workload, staged: Sequence[_Staged], vdevice: VDevice) -> list[_Staged]:
    """The tiles that finish first, with all vEUs or with fewer, and those that take least of all vEUs' time."""
    expr = workload.expr
    least_us = [_staged_us(workload.kernel(tile, form), vdevice) for tile, form in staged]
    counts = [task_count(expr, tile.task) for tile, _ in staged]

    def first(veus: int) -> _Staged:
        rounds = [-(-count // veus) for count in counts]
        bounds_us = [each * time_us for each, time_us in zip(rounds, least_us, strict=True)]
        best = (math.inf, 0)
        for place in sorted(range(len(staged)), key=bounds_us.__getitem__):
            if bounds_us[place] > best[0]:
                break  # memory only adds to it
            time_us = max(least_us[place], _memory_us(expr, staged[place][0].task, vdevice))
            best = min(best, (rounds[place] * time_us, place))
        return staged[best[1]]

    return list(dict.fromkeys(map(first, (1, *_shares(vdevice)))))


def resident(workload: Workload, vdevice: VDevice) -> RKernel | None:
    """The candidate with the fewest rTasks whose weights stay on their vEUs, if there is one."""
    expr, layouts = workload.expr, workload.layouts
    lane = _lane(expr, layouts, contraction(expr), vdevice)
    count = None if lane is None else resident_count(expr, vdevice)
    if lane is None or count is None:
        return None
    units = tuple(min(LANES, axis.extent) if i == lane else 1 for i, axis in enumerate(expr.axes))
    tile = RTile(task=scale_out(expr, units, count), lane=lane)
    return workload.kernel(tile, _product_form(workload, tile, vdevice))


def _lane(expr: TensorExpr, layouts: Sequence[Layout], found: Contraction | None, vdevice: VDevice) -> int | None:
    """The position of the axis along which neighbouring threads take neighbouring points.

    Where a contraction has rows, its operands are staged in shared memory, and the axis must be one of its lanes. Else
    it is the axis along which most of what is loaded and stored lies side by side; None if only sums lie so.
    """
    in_reductions = {node for reduction in expr.reductions for node in nodes(reduction.body) if isinstance(node, Load)}
    heavy = [load for load in expr.loads if load in in_reductions] or list(expr.loads)

    def score(axis: Axis) -> tuple[int, int, int]:
        loads = sum(abs(stride_along(load.indices, layouts[load.slot], axis)) == 1 for load in heavy)
        outputs = zip(expr.outputs, layouts[len(expr.inputs) :], strict=True)
        stores = sum(abs(stride_along(output.indices, layout, axis)) == 1 for output, layout in outputs)
        return (loads, stores, min(axis.extent, _busy_threads(vdevice)))

    staged = [
        axis
        for axis in (() if found is None else found.lanes)
        if found is not None and min(axis.extent, _height(expr, found, axis)) >= LEAST_ROWS
    ]
    best = max(staged or reversed(expr.axes), key=score, default=None)
    if best is None or (expr.reductions and not staged and score(best)[0] == 0):
        return None
    return expr.axes.index(best)


def _height(expr: TensorExpr, found: Contraction, lane: Axis) -> int:
    """Points of a contraction's rows."""
    return math.prod(axis.extent for axis in found.rows(expr.axes, lane))


def _units(expr: TensorExpr, lane: int | None, *, is_stream: bool) -> tuple[int, ...]:
    """What the sizes of an rTask are multiples of."""
    whole = () if expr.reductions else chosen_axes(expr)
    if expr.reductions and lane is None:  # along a row, neighbouring threads have neighbouring elements
        whole = tuple(axis for axis in expr.axes if axis not in outer_reductions(expr)[1])
    units = [axis.extent if axis in whole else 1 for axis in expr.axes]
    if lane is not None:
        units[lane] = _STREAM_LANES if is_stream else WARP
    return tuple(min(unit, max(1, axis.extent)) for unit, axis in zip(units, expr.axes, strict=True))


def compute_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Time of one full rTask's instructions and of the loads that wait for each other, in microseconds."""
    expr, points = kernel.expr, math.prod(kernel.tile.task)
    if isinstance(kernel.form, GemmForm | WarpgroupGemmForm):
        return _staged_us(kernel, vdevice)
    elements = sum(math.prod(axis.extent for axis in reduction.axes) for reduction in expr.reductions)
    instructions = points * ((_CHOSEN if chosen_axes(expr) else _EPILOGUE) + elements * _PER_ELEMENT)
    busy = min(1.0, points * max(1, elements) / (_busy_threads(vdevice) * _LOADS_IN_FLIGHT))
    return instructions / (_lanes_per_us(vdevice) * _ISSUE * max(busy, 1 / _LOADS_IN_FLIGHT)) + _LATENCY_US


def _busy_threads(vdevice: VDevice) -> int:
    """Threads that keep a vEU busy."""
    return vdevice.threads // 2


def _lanes_per_us(vdevice: VDevice) -> float:
    """Multiply-adds of float32."""
    return vdevice.flops_per_us[DType.FLOAT32].value / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """Sums over the same axes as a block runs through them, whatever its tile.

    They are `terms` sums of `elements`. Of each operand of rows, then of each of lanes: how many elements a copy takes,
    and the cycles of a quarter for an element that is a sum itself.
    """

    terms: int
    elements: int
    copied: tuple[tuple[int, ...], tuple[int, ...]]
    window_cycles: tuple[tuple[float, ...], tuple[float, ...]]


def _staged_us(kernel: RKernel, vdevice: VDevice) -> float:
    """As `compute_us`, of an rTask whose operands are staged."""
    form = kernel.form
    if isinstance(form, WarpgroupGemmForm):
        return warpgroup_us(kernel.expr, product_of(kernel), kernel.tile, form, vdevice)
    assert isinstance(form, GemmForm)
    cycles = _staged_cycles(kernel.expr, kernel.layouts, kernel.tile, form)
    return cycles / (_lanes_per_us(vdevice) / (_quarters(form) * WARP)) + _LATENCY_US


def _quarters(form: GemmForm) -> int:
    """Quarters of a multiprocessor that a block has, or as much of all four."""
    return form.threads // _QUARTER_THREADS


def _staged_cycles(expr: TensorExpr, layouts: tuple[Layout, ...], tile: RTile, form: GemmForm) -> float:
    """Cycles for an rTask whose operands are staged."""
    assert tile.lane is not None  # along which N runs
    axes = gemm_axes(expr, tile.lane)
    extents = dict(zip(expr.axes, tile.task, strict=True))
    height, width = (math.prod(extents[axis] for axis in side) for side in (axes.m, axes.n))
    m, n, k = form.threadblock
    passes = _passes(expr, layouts, axes.n[0], form.instruction)
    element_cycles, quarters = _element_cycles(form), _quarters(form)
    rounds = -(-form.warps * form.slices // quarters)
    sums = sum(one.terms for one in passes)
    cycles = m * n * (form.slices * sums * _FINISH_CYCLES + _RESULT_CYCLES) / quarters
    sides = (m, n)
    filled = (min(m, height), min(n, width))
    for one in passes:
        stages = -(-one.elements // k)
        multiply = stages * k / form.slices * rounds * element_cycles * one.terms
        copies = sum(size / elements for size, side in zip(sides, one.copied, strict=True) for elements in side)
        copy = stages * k * copies * _COPY_CYCLES / quarters
        windows = one.elements * sum(
            points * each for points, side in zip(filled, one.window_cycles, strict=True) for each in side
        )
        cycles += multiply + copy + windows / quarters + stages * _STEP_CYCLES / quarters
    return form.tiles * cycles


@lru_cache(maxsize=1024)
def _passes(expr: TensorExpr, layouts: tuple[Layout, ...], lane: Axis, instruction: Instruction) -> tuple[_Pass, ...]:
    """The passes of a contraction along a lane."""
    found = contraction(expr)
    assert found is not None  # it has blocks

    def of(group: Group) -> _Pass:
        innermost = group_order(group, layouts)[-1]
        rows, lanes = operands_of(found, group, lane)

        def copied(operand: Expr) -> int:
            return _elements_per_copy(expr, layouts, group, innermost, staged_operand(operand, instruction))

        return _Pass(
            terms=len(group.terms),
            elements=math.prod(axis.extent for axis in group.axes),
            copied=(tuple(map(copied, rows)), tuple(map(copied, lanes))),
            window_cycles=(tuple(map(_window_cycles, rows)), tuple(map(_window_cycles, lanes))),
        )

    return tuple(map(of, found.groups))


def _elements_per_copy(expr: TensorExpr, layouts: tuple[Layout, ...], group: Group, innermost: Axis, form: Expr) -> int:
    """Neighbours along the innermost axis of the sums that fill a copy, if all groups of so many lie alike; or 1."""
    loads = [node for node in nodes(form) if isinstance(node, Load)]
    others = [axis for axis in (*expr.axes, *group.axes) if axis is not innermost]

    def fits(load: Load, elements: int) -> bool:
        layout = layouts[load.slot]
        steps = [stride_along(load.indices, layout, axis) for axis in others]
        begin = sum(form.offset * stride for form, stride in _forms(load, layout))
        is_plain = stride_along(load.indices, layout, innermost) == 1 and innermost.extent % elements == 0
        return is_plain and not any(step % elements for step in (*steps, begin))

    sizes = (size // form.dtype.itemsize_bytes for size in _COPY_BYTES)
    return next((elements for elements in sizes if all(fits(load, elements) for load in loads)), 1)


def _forms(load: Load, layout: Layout) -> list[tuple[Affine, int]]:
    """The indices that are affine, with the elements that they step over."""
    found = zip(map(affine, load.indices), layout.strides, strict=True)
    return [(form, stride) for form, stride in found if form is not None]


def _window_cycles(operand: Expr) -> float:
    """Cycles of a quarter for an element of an operand that is a sum itself."""
    points = window_points(operand)
    return (_WINDOW + points * _PER_WINDOW_POINT) / (WARP * _ISSUE) if points else 0.0


def _element_cycles(form: GemmForm) -> float:
    """Cycles of a quarter for one element of all sums of a warp."""
    m, n, _ = form.warp
    if form.instruction is Instruction.FFMA:
        held_m, held_n = m / 4, n / 8
        return held_m * held_n * _ADD_CYCLES + (held_m + held_n) / 4 * _READ_CYCLES
    product_cycles, read_cycles = _TENSOR_CYCLES[form.instruction]
    products, reads = m / 16 * n / 8, (m + n) / 8
    return (products * product_cycles + reads * read_cycles) / INSTRUCTION_TILES[form.instruction].k


def memory_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Time to move an rTask's data tiles, in microseconds; nothing is in shared memory when it begins."""
    return _memory_us(kernel.expr, kernel.tile.task, vdevice)


def _memory_us(expr: TensorExpr, task: TaskTile, vdevice: VDevice) -> float:
    whole = footprint_bytes(expr, tuple(axis.extent for axis in expr.axes))
    shared = [level for level in vdevice.levels if level.shared]
    level = next((level for level in shared if whole <= level.capacity_bytes), shared[-1])
    return footprint_bytes(expr, task) / level.bandwidth_bytes_per_us.value
