"""Candidate rKernels of units that compute with vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rammer.devices.vector.attention import AttentionTile, attention_tiles
from rammer.devices.vector.byte_tiles import byte_tiles
from rammer.devices.vector.lane import choose_lane, transposed_with
from rammer.devices.vector.register import RegisterTile, efficiency, register_tiles
from rammer.devices.vector.time import results_us
from rammer.devices.vector.trees import tree_kernels
from rammer.ir.expr import TensorExpr
from rammer.ir.kernel_form import KernelForm, MapForm, MicroKernelForm, ReduceForm, Skeleton
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.model import predict
from rammer.roller.tile import scale_out
from rammer.tiling.attention import Attention, attention
from rammer.tiling.pattern import chosen_axes, contraction, product_skeleton, stride_along
from rammer.tiling.trees import tree_sum

# Below this fraction of the peak the general skeleton is as good as a micro-kernel that gathers its lanes.
_LEAST_EFFICIENCY = 0.1
# How many times as long as along the best lane products along another one may take.
_MOST_SLOTS = 2.0
# rTasks per vEU that are tried: all work in one rTask, one rTask each, and some to balance uneven loads.
_TASKS_PER_VEU = (1, 2, 4)


def vector_kernels(workload: Workload, vdevice: VDevice, tiles_of_each: int) -> list[RKernel]:
    """For some numbers of rTasks the cheapest register tiles that leave enough blocks, or the general skeleton.

    More rTasks where these would take too long, if there are more blocks or points.
    """
    counts = (1, *(vdevice.veu_count * factor for factor in _TASKS_PER_VEU))
    kernels = _kernels(workload, vdevice, tiles_of_each, counts)
    if vdevice.longest_task_us is None:
        return kernels
    times_us = {kernel: predict(kernel, vdevice).task_us for kernel in kernels}
    if quick := [kernel for kernel in kernels if times_us[kernel] <= vdevice.longest_task_us]:
        return quick
    whole_us = min(kernel.task_count * task_us for kernel, task_us in times_us.items())
    return _kernels(workload, vdevice, tiles_of_each, (math.ceil(whole_us / vdevice.longest_task_us),))


def _kernels(workload: Workload, vdevice: VDevice, tiles_of_each: int, counts: Sequence[int]) -> list[RKernel]:
    """The rKernels for such numbers of rTasks."""
    found = attention(workload.expr) if Skeleton.ATTENTION in vdevice.skeletons else None
    if found is not None and (blocks := attention_tiles(workload.expr, found, vdevice)):
        return [_attention(workload, found, _enough(blocks, count), count) for count in counts]
    trees = tree_sum(workload.expr) if Skeleton.TREES in vdevice.skeletons else None
    if trees is not None and (sums := tree_kernels(workload, trees, vdevice, counts)):
        return sums
    of_vectors = _register_tiles(workload, vdevice)
    if not of_vectors:
        return list(dict.fromkeys(_general(workload, vdevice, counts)))
    kernels: dict[RKernel, None] = {}
    for tiles in (of_vectors, byte_tiles(workload.expr, workload.layouts, vdevice)):
        for count in counts if tiles else ():
            wanted = min(count, max(tile.blocks for tile in tiles))
            enough = [tile for tile in tiles if tile.blocks >= wanted]
            chosen = [_micro_kernel(workload, vdevice, tile, count) for tile in enough[:tiles_of_each]]
            if chosen and results_us(chosen[0], vdevice) > 0.0:
                chosen += [_micro_kernel(workload, vdevice, tile, count) for tile in _of_each_lane(enough)]
            kernels.update(dict.fromkeys(chosen))
    return list(kernels)


def _of_each_lane(tiles: Sequence[RegisterTile]) -> Iterator[RegisterTile]:
    """The first tile of each lane, unless its products take far longer than those of the first of all.

    What is computed of sums may be quicker along another lane.
    """
    for tile in {tile.lane: tile for tile in reversed(tiles)}.values():
        if tile.slots <= _MOST_SLOTS * tiles[0].slots:
            yield tile


def _register_tiles(workload: Workload, vdevice: VDevice) -> list[RegisterTile]:
    """Register tiles worth a micro-kernel; none where the expression is no contraction or its lanes lie apart."""
    found = contraction(workload.expr, vdevice.byte_products)
    if found is None or Skeleton.GEMM not in vdevice.skeletons:
        return []
    tiles = register_tiles(workload.expr, found, workload.layouts, vdevice)
    best = _micro_kernel(workload, vdevice, tiles[0], 1)
    return tiles if efficiency(best, vdevice) >= _LEAST_EFFICIENCY else []


def _micro_kernel(workload: Workload, vdevice: VDevice, register: RegisterTile, count: int) -> RKernel:
    """A register tile's blocks spread over `count` rTasks."""
    expr = workload.expr
    found = contraction(expr, vdevice.byte_products)
    assert found is not None  # it has register tiles
    task = scale_out(expr, register.sizes, count, _steps(expr, workload.layouts))
    form = MicroKernelForm(
        kind=product_skeleton(found, expr.axes[register.lane]),
        scratch_bytes=register.scratch_bytes,
        register=register.sizes,
        vector=register.vector,
        instruction=register.instruction,
        ahead_bytes=vdevice.stream_ahead_bytes if register.streams else 0,
    )
    return workload.kernel(RTile(task=task, lane=register.lane), form)


def _enough(tiles: Sequence[AttentionTile], count: int) -> AttentionTile:
    """The first tile that leaves a block for each of so many rTasks, or else the one that leaves most."""
    return next((tile for tile in tiles if tile.blocks >= count), tiles[-1])


def _attention(workload: Workload, found: Attention, tile: AttentionTile, count: int) -> RKernel:
    """The rows of attention spread over about `count` rTasks, each of which has all columns."""
    expr = workload.expr
    units = [
        axis.extent if axis in found.columns else tile.form.rows if position == tile.lane else 1
        for position, axis in enumerate(expr.axes)
    ]
    task = scale_out(expr, units, count, _steps(expr, workload.layouts))
    return workload.kernel(RTile(task=task, lane=tile.lane), tile.form)


def _general(workload: Workload, vdevice: VDevice, counts: Sequence[int]) -> Iterator[RKernel]:
    """The skeletons without a micro-kernel, cut where least is read twice, and cut along one axis."""
    expr, is_map = workload.expr, not workload.expr.reductions
    skeleton = Skeleton.MAP if is_map else Skeleton.REDUCE
    if skeleton not in vdevice.skeletons:
        raise ValueError(f"{vdevice.name} has no skeleton '{skeleton}'")
    vector = vdevice.vector_bytes // DType.FLOAT32.itemsize_bytes
    lane = choose_lane(expr, workload.layouts, vector)
    other = transposed_with(expr, workload.layouts, lane) if is_map and lane is not None else None
    register = tuple(vector if position in (lane, other) else 1 for position in range(len(expr.axes)))
    form: KernelForm = ReduceForm(vector=vector)
    if is_map:
        form = MapForm(vector=vector, block=() if other is None else register)
    chosen = chosen_axes(expr) if is_map else ()
    units = [axis.extent if axis in chosen else size for axis, size in zip(expr.axes, register, strict=True)]
    steps = _steps(expr, workload.layouts)
    for count in counts:
        long = [position for position, axis in enumerate(expr.axes) if axis.extent >= count]
        outermost = max(long, key=lambda position: steps[position], default=0)
        along = [
            unit if position == outermost else axis.extent
            for position, (axis, unit) in enumerate(zip(expr.axes, units, strict=True))
        ]
        for cut in (units, along):
            yield workload.kernel(RTile(task=scale_out(expr, cut, count, steps), lane=lane), form)


def _steps(expr: TensorExpr, layouts: Sequence[Layout]) -> tuple[int, ...]:
    """The longest step along each axis in the outputs."""
    stored = list(zip(expr.outputs, layouts[len(expr.inputs) :], strict=True))
    return tuple(
        max(abs(stride_along(output.indices, layout, axis)) for output, layout in stored) for axis in expr.axes
    )
