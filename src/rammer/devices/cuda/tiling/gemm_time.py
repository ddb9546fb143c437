"""How long a block computes a product whose operands it stages in shared memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from rammer.devices.cuda.tiling.figures import Figures
from rammer.devices.cuda.tiling.instructions import epilogue_instructions
from rammer.ir.expr import Axis, Cast, Expr, Load, TensorExpr, nodes
from rammer.ir.kernel_form import GemmForm, Instruction
from rammer.ir.region import Affine, affine
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.tiling.gemm import INSTRUCTION_TILES, WARP, gemm_axes, group_order, operands_of, staged_operand
from rammer.tiling.pattern import Group, contraction, stride_along, window_points

_QUARTER_THREADS = 128  # that quarter a multiprocessor's blocks
_COPY_BYTES = (16, 8, 4)  # of an instruction


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """Sums over the same axes as a block runs through them, whatever its tile.

    They are `terms` sums of `elements`. Of each operand of rows, then of each of lanes: how many elements a copy takes,
    and of an element that is a sum itself, how many points it has (else none) and how much of each is converted.
    """

    terms: int
    elements: int
    copied: tuple[tuple[int, ...], tuple[int, ...]]
    windows: tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]


def gemm_us(kernel: RKernel, form: GemmForm, vdevice: VDevice, figures: Figures) -> float:
    """Time of one full rTask, in microseconds."""
    cycles = _cycles(kernel.expr, kernel.layouts, kernel.tile, form, figures)
    lanes_per_us = vdevice.flops_per_us[DType.FLOAT32].value / 2
    return cycles / (lanes_per_us / (_quarters(form) * WARP)) + figures.latency_us


def _quarters(form: GemmForm) -> int:
    """Quarters of a multiprocessor that a block has, or as much of all four."""
    return form.threads // _QUARTER_THREADS


def _cycles(expr: TensorExpr, layouts: tuple[Layout, ...], tile: RTile, form: GemmForm, figures: Figures) -> float:
    """Cycles of an rTask."""
    assert tile.lane is not None  # along which N runs
    axes = gemm_axes(expr, tile.lane)
    extents = dict(zip(expr.axes, tile.task, strict=True))
    height, width = (math.prod(extents[axis] for axis in side) for side in (axes.m, axes.n))
    m, n, k = form.threadblock
    passes = _passes(expr, layouts, axes.n[0], form.instruction)
    element_cycles, quarters = _element_cycles(form, figures), _quarters(form)
    rounds = -(-form.warps * form.slices // quarters)
    sums = sum(one.terms for one in passes)
    result_cycles = figures.result_cycles + epilogue_instructions(expr) * figures.instruction_cycles
    cycles = m * n * (form.slices * sums * figures.partial_sum_cycles + result_cycles) / quarters
    sides = (m, n)
    filled = (min(m, height), min(n, width))
    for one in passes:
        stages = -(-one.elements // k)
        multiply = stages * k / form.slices * rounds * element_cycles * one.terms
        copies = sum(size / elements for size, side in zip(sides, one.copied, strict=True) for elements in side)
        copy = stages * k * copies * figures.copy_cycles / quarters
        windows = one.elements * sum(
            count * _window_cycles(points, converted, figures)
            for count, side in zip(filled, one.windows, strict=True)
            for points, converted in side
        )
        cycles += multiply + copy + windows / quarters + stages * figures.stage_cycles / quarters
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
            windows=(tuple(map(_window, rows)), tuple(map(_window, lanes))),
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


def _window(operand: Expr) -> tuple[int, int]:
    """Points of a sum that is an element of an operand, and conversions of each; no points where it is none."""
    return window_points(operand), sum(isinstance(node, Cast) for node in nodes(operand))


def _window_cycles(points: int, converted: int, figures: Figures) -> float:
    """Cycles for an element of an operand that is a sum of so many points itself; none where it is no sum."""
    window, point = figures.window_cycles
    return window + points * (point + converted / WARP) if points else 0.0


def _element_cycles(form: GemmForm, figures: Figures) -> float:
    """Cycles for one element of all sums of a warp."""
    m, n, _ = form.warp
    if form.instruction is Instruction.FFMA:
        held_m, held_n = m / 4, n / 8
        return held_m * held_n * figures.multiply_add_cycles + (held_m + held_n) / 4 * figures.read_cycles
    tensor_core = figures.tensor_cores[form.instruction]
    products, reads = m / 16 * n / 8, (m + n) / 8
    return (products * tensor_core.product + reads * tensor_core.read) / INSTRUCTION_TILES[form.instruction].k
