"""rTiles for GPUs: an rTask is shared out among the threads of a block, so it wants many points and few bytes.

A contraction's rTile is a box of rows and lanes, as square as the traffic wants it, or a strip of lanes where there are
no rows (a matrix-vector product). `RTile.lane` is the axis along which neighbouring threads take neighbouring points;
None leaves threads to run along reductions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.ir.expr import Axis, Load, TensorExpr, nodes
from rammer.ir.pattern import Contraction, Skeleton, contraction, stride_along
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.roller.tile import footprint_bytes, scale_out

_WARP = 32
_THREADS = 256  # that keep a multiprocessor busy
_ROWS = 16  # points of a row axis that an rTask should not go below
_STREAM_LANES = 8  # one sector of float32
_TASKS_PER_VEU = (0.125, 0.25, 0.5, 1, 2)
_LEAST_POINTS = 1024  # of an elementwise rTask: less is not worth a hand-over
_LEAST_ROWS = 4  # of a contraction that stages its operands in shared memory
# Instructions of a thread for a point, for an element of a point's sums, and for an operand's element that is staged.
_EPILOGUE = 40
_PER_ELEMENT = 4
_STAGING = 12
_ISSUE = 0.6  # of the instructions that a multiprocessor could start
_LATENCY_US = 1.5  # pointers, the first operands, and what the rest reads, one after the other
_LOADS_IN_FLIGHT = 16


def candidates(expr: TensorExpr, layouts: tuple[Layout, ...], vdevice: VDevice) -> list[RKernel]:
    """Candidate rKernels for a GPU, in no order."""
    found = contraction(expr)
    lane = _lane(expr, layouts, found)
    if found is not None and (lane is None or expr.axes[lane] not in found.lanes):
        found = None
    skeleton = Skeleton.CONTRACT if found is not None else Skeleton.REDUCE if expr.reductions else Skeleton.MAP
    units = _units(expr, found, lane)
    points = math.prod(axis.extent for axis in expr.axes)
    counts = {1, *(math.ceil(vdevice.veu_count * factor) for factor in _TASKS_PER_VEU)}
    if skeleton is Skeleton.MAP:
        counts = {max(1, min(count, points // _LEAST_POINTS)) for count in counts}
    kernels: dict[RKernel, None] = {}
    for count in sorted(counts):
        tile = RTile(
            task=scale_out(expr, units, count),
            reduce=tuple(max(1, axis.extent) for axis in expr.reduce_axes),
            lane=lane,
            vector=_WARP,
        )
        kernels.setdefault(RKernel(expr=expr, layouts=layouts, skeleton=skeleton.value, tile=tile))
    return list(kernels)


def _lane(expr: TensorExpr, layouts: Sequence[Layout], found: Contraction | None) -> int | None:
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
        return (loads, stores, min(axis.extent, _THREADS))

    staged = [] if found is None else [axis for axis in found.lanes if _height(expr, found, axis) >= _LEAST_ROWS]
    best = max(staged or reversed(expr.axes), key=score, default=None)
    if best is None or (expr.reductions and not staged and score(best)[0] == 0):
        return None
    return expr.axes.index(best)


def _height(expr: TensorExpr, found: Contraction, lane: Axis) -> int:
    """Points of a contraction's rows."""
    return math.prod(axis.extent for axis in found.rows(expr.axes, lane))


def _units(expr: TensorExpr, found: Contraction | None, lane: int | None) -> tuple[int, ...]:
    """What the sizes of an rTask are multiples of: along rows, an axis that has enough, or the one that has most."""
    units = [1] * len(expr.axes)
    if lane is None:
        return tuple(units)
    units[lane] = _WARP
    if found is not None and _height(expr, found, expr.axes[lane]) >= _LEAST_ROWS:
        rows = found.rows(expr.axes, expr.axes[lane])
        units[expr.axes.index(max(reversed(rows), key=lambda axis: min(axis.extent, _ROWS)))] = _ROWS
    elif found is not None:
        units[lane] = _STREAM_LANES
    return tuple(min(unit, max(1, axis.extent)) for unit, axis in zip(units, expr.axes, strict=True))


def compute_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Time of one full rTask's instructions and of the loads that wait for each other, in microseconds."""
    expr, points = kernel.expr, math.prod(kernel.tile.task)
    elements = sum(math.prod(axis.extent for axis in reduction.axes) for reduction in expr.reductions)
    instructions: float = points * (_EPILOGUE + elements * _PER_ELEMENT)
    found = contraction(expr) if kernel.skeleton == Skeleton.CONTRACT and kernel.tile.lane is not None else None
    if found is not None and kernel.tile.lane is not None:
        rows = found.rows(expr.axes, expr.axes[kernel.tile.lane])
        extents = dict(zip(expr.axes, kernel.tile.task, strict=True))
        height = math.prod(extents[axis] for axis in rows)
        if height >= _LEAST_ROWS:
            width = max(1, points // height)
            held = min(8.0, max(1.0, math.sqrt(points / _THREADS)))
            staged = _STAGING * (height + width) / (height * width)
            instructions = points * (_EPILOGUE + elements * (1 + 0.5 / held + staged))
    lanes_per_us = vdevice.flops_per_us[DType.FLOAT32].value / 2
    busy = min(1.0, points * max(1, elements) / (_THREADS * _LOADS_IN_FLIGHT))
    return instructions / (lanes_per_us * _ISSUE * max(busy, 1 / _LOADS_IN_FLIGHT)) + _LATENCY_US


def memory_us(kernel: RKernel, vdevice: VDevice) -> float:
    """Time to move an rTask's data tiles, in microseconds; nothing is in shared memory when it begins."""
    whole = footprint_bytes(kernel.expr, tuple(axis.extent for axis in kernel.expr.axes))
    shared = [level for level in vdevice.levels if level.shared]
    level = next((level for level in shared if whole <= level.capacity_bytes), shared[-1])
    return footprint_bytes(kernel.expr, kernel.tile.task) / level.bandwidth_bytes_per_us.value
