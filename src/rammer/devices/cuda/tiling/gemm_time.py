"""How long a block computes a product whose operands it stages in shared memory."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.devices.cuda.tiling.figures import Figures
from rammer.devices.cuda.tiling.instructions import epilogue_instructions
from rammer.ir.expr import Axis, Cast, Expr, Load, Reduce, TensorExpr, nodes
from rammer.ir.kernel_form import GemmForm, Instruction
from rammer.ir.region import Affine, affine
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.tiling.gemm import (
    INSTRUCTION_TILES,
    WARP,
    gemm_axes,
    group_order,
    is_computed,
    operands_of,
    staged_operand,
    staged_product,
)
from rammer.tiling.patches import window_product
from rammer.tiling.pattern import Group, stride_along, window_points
from rammer.tiling.windows import Sides, neighbours, points_together

_QUARTER_THREADS = 128  # that quarter a multiprocessor's blocks
_COPY_BYTES = (16, 8, 4)  # of an instruction
_COMPUTED_TOGETHER = 4  # by a thread, whose loads are in flight together


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """Sums over the same axes as a block runs through them, whatever its tile.

    They are `terms` sums of `elements` along so many `axes`. Of each operand of rows, then of each of lanes: how many
    elements a copy takes; those whose elements are sums themselves; how many elements a thread computes at a time of
    what is computed.
    """

    terms: int
    elements: int
    axes: int
    copied: tuple[tuple[int, ...], tuple[int, ...]]
    windows: tuple[tuple[Expr, ...], tuple[Expr, ...]]
    computed: tuple[tuple[int, ...], tuple[int, ...]]


def gemm_us(kernel: RKernel, form: GemmForm, vdevice: VDevice, figures: Figures) -> float:
    """Time of one full rTask, in microseconds."""
    workload = Workload(kernel.expr, kernel.layouts, kernel.alignments, kernel.constants)
    return gemm_times_us(workload, [(kernel.tile, form)], vdevice, figures)[0]


def gemm_times_us(
    workload: Workload, tiles: Sequence[tuple[RTile, GemmForm]], vdevice: VDevice, figures: Figures
) -> list[float]:
    """The times of one full rTask of each tile, in microseconds; those of one form differ by computed windows alone."""
    lanes_per_us = vdevice.flops_per_us[DType.FLOAT32].value / 2
    known: dict[GemmForm, float] = {}
    found = []
    for tile, form in tiles:
        if (cycles := known.get(form)) is None:
            factor = _window_factor(workload.expr, tile, figures) if vdevice.has_neighbours else 1.0
            factor *= figures.byte_windows if form.instruction is Instruction.MMA_I8 else 1.0
            passes = _passes(workload.expr, workload.layouts, _lane(workload, tile), form.instruction)
            cycles = _cycles(workload.expr, workload.layouts, tile, form, figures, factor, passes)
            if form.patch:
                cycles -= _spared_copies(workload, tile, form) * figures.copy_cycles[1] / _quarters(form)
            elif not any(map(any, (one.windows for one in passes))):
                known[form] = cycles
        found.append(cycles / (lanes_per_us / (_quarters(form) * WARP)) + figures.latency_us)
    return found


def first_stage_bytes(kernel: RKernel, form: GemmForm) -> int:
    """Bytes of constants of the first stage, which are on their way before an rTask waits.

    There are none of several tiles that are one after another, which begin behind the Wait.
    """
    found = staged_product(kernel.expr)
    assert found is not None  # it has blocks
    assert kernel.tile.lane is not None
    if form.tiles > 1 and not form.overlapped:
        return 0
    sides = operands_of(found, found.groups[0], kernel.expr.axes[kernel.tile.lane])
    m, n, k = form.threadblock
    staged = [
        (points, staged_operand(operand, form.instruction))
        for points, side in zip((m, n), sides, strict=True)
        for operand in side
    ]
    return sum(
        points * k * operand.dtype.itemsize_bytes
        for points, operand in staged
        if all(node.slot in kernel.constants for node in nodes(operand) if isinstance(node, Load))
    )


def _lane(workload: Workload, tile: RTile) -> Axis:
    assert tile.lane is not None  # M and N run along axes
    return gemm_axes(workload.expr, tile.lane).n[0]


def _spared_copies(workload: Workload, tile: RTile, form: GemmForm) -> float:
    """How many copies less a patch takes than its windows one by one."""
    windows = window_product(workload.expr, workload.layouts, workload.alignments, tile.lane)
    assert windows is not None  # it has the form
    (one,) = _passes(workload.expr, workload.layouts, _lane(workload, tile), form.instruction)
    (elements,) = one.copied[0]
    sizes = dict(zip(workload.expr.axes, tile.task, strict=True))
    m, _, k = form.threadblock
    return m * k / elements - windows.pixels(sizes) * windows.channel.extent / windows.chunk


def _quarters(form: GemmForm) -> int:
    """Quarters of a multiprocessor that a block has, or as much of all four."""
    return form.threads // _QUARTER_THREADS


def _window_factor(expr: TensorExpr, tile: RTile, figures: Figures) -> float:
    """How much longer windows take beside other models."""
    is_cut = any(axis.extent % size for axis, size in zip(expr.axes, tile.task, strict=True))
    return (figures.cut_windows if is_cut else 1.0) * figures.beside_windows


def _cycles(
    expr: TensorExpr,
    layouts: tuple[Layout, ...],
    tile: RTile,
    form: GemmForm,
    figures: Figures,
    window_factor: float,
    passes: tuple[_Pass, ...],
) -> float:
    """Cycles of an rTask."""
    assert tile.lane is not None  # along which N runs
    axes = gemm_axes(expr, tile.lane)
    extents = dict(zip(expr.axes, tile.task, strict=True))
    boxes = [[(axis, extents[axis]) for axis in reversed(side)] for side in (axes.m, axes.n)]
    m, n, k = form.threadblock
    element_cycles, quarters = _element_cycles(form, figures), _quarters(form)
    rounds = -(-form.warps * form.slices // quarters)
    sums = sum(one.terms for one in passes)
    result_cycles = figures.result_cycles + epilogue_instructions(expr) * figures.instruction_cycles
    cycles = m * n * (form.slices * sums * figures.partial_sum_cycles + result_cycles) / quarters
    sides = (m, n)
    for one in passes:
        stages = -(-one.elements // k)
        multiply = stages * k / form.slices * rounds * element_cycles * one.terms
        copies = sum(size / elements for size, side in zip(sides, one.copied, strict=True) for elements in side)
        copy = stages * k * copies * figures.copy_cycles[one.axes > 1] / quarters
        windows = (
            stages
            * window_factor
            * sum(
                _window_cycles(operand, layouts, box, size, form, figures)
                for size, box, side in zip(sides, boxes, one.windows, strict=True)
                for operand in side
            )
        )
        turns = stages * sum(
            math.ceil(size * k / (elements * form.threads * _COMPUTED_TOGETHER))
            for size, side in zip(sides, one.computed, strict=True)
            for elements in side
        )
        cycles += multiply + copy + windows + turns * figures.computed_cycles + stages * figures.stage_cycles / quarters
    return form.tiles * cycles


@lru_cache(maxsize=1024)
def _passes(expr: TensorExpr, layouts: tuple[Layout, ...], lane: Axis, instruction: Instruction) -> tuple[_Pass, ...]:
    """The passes of a contraction along a lane."""
    found = staged_product(expr)
    assert found is not None  # it has blocks

    def of(group: Group) -> _Pass:
        innermost = group_order(group, layouts)[-1]
        rows, lanes = operands_of(found, group, lane)

        def copied(operand: Expr) -> int:
            return _elements_per_copy(expr, layouts, group, innermost, staged_operand(operand, instruction))

        def computes(operand: Expr) -> bool:
            return is_computed(staged_operand(operand, instruction))

        return _Pass(
            terms=len(group.terms),
            elements=math.prod(axis.extent for axis in group.axes),
            axes=len(group.axes),
            copied=(tuple(map(copied, rows)), tuple(map(copied, lanes))),
            windows=(tuple(filter(window_points, rows)), tuple(filter(window_points, lanes))),
            computed=(tuple(map(copied, filter(computes, rows))), tuple(map(copied, filter(computes, lanes)))),
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


def _window_cycles(
    operand: Expr, layouts: tuple[Layout, ...], sides: Sides, points: int, form: GemmForm, figures: Figures
) -> float:
    """Cycles for a stage of an operand whose elements are sums themselves."""
    k = form.threadblock.k
    together = points_together(sides, points, k, form.threads)
    computed = min(points, math.prod(size for _, size in sides)) * k / together  # by so many threads
    loads, conversions = _window_loads(operand, layouts, neighbours(sides)[0], together)
    turn, load, conversion = figures.window_cycles
    warps = computed / WARP / _quarters(form)
    return math.ceil(computed / form.threads) * turn + warps * loads * (load + conversions * conversion)


@lru_cache(maxsize=1024)
def _window_loads(operand: Expr, layouts: tuple[Layout, ...], along: Axis, together: int) -> tuple[int, int]:
    """What a thread loads for windows of so many neighbouring points, each element once, and conversions of each."""
    window = next(node for node in nodes(operand) if isinstance(node, Reduce))
    places = list(itertools.product(range(together), *(range(axis.extent) for axis in window.axes)))
    loads = 0
    for load in (node for node in nodes(operand) if isinstance(node, Load)):
        steps = [stride_along(load.indices, layouts[load.slot], axis) for axis in (along, *window.axes)]
        loads += len({sum(map(operator.mul, steps, place)) for place in places})
    return loads, sum(isinstance(node, Cast) for node in nodes(operand))


def _element_cycles(form: GemmForm, figures: Figures) -> float:
    """Cycles for one element of all sums of a warp."""
    m, n, _ = form.warp
    if form.instruction is Instruction.FFMA:
        held_m, held_n = m / 4, n / 8
        return held_m * held_n * figures.multiply_add_cycles + (held_m + held_n) / 4 * figures.read_cycles
    tensor_core = figures.tensor_cores[form.instruction]
    products, reads = m / 16 * n / 8, (m + n) / 8
    idle = 1 - form.warps * form.slices * WARP / form.threads
    cycles = products * (tensor_core.product + idle * tensor_core.idle) + reads * tensor_core.read
    return cycles / INSTRUCTION_TILES[form.instruction].k
