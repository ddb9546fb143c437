"""Candidate rKernels for an expression, by construction from a vDevice's description (Roller, section 3.2)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache

from rammer.ir.expr import TensorExpr
from rammer.ir.kernel_form import KernelForm, MapForm, MicroKernelForm, ReduceForm, Skeleton
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.roller import cuda
from rammer.roller.attention import AttentionTile, attention_tiles
from rammer.roller.lane import choose_lane, transposed_with
from rammer.roller.model import predict
from rammer.roller.register import RegisterTile, efficiency, register_tiles
from rammer.roller.tile import scale_out
from rammer.roller.workload import Workload
from rammer.tiling.attention import Attention, attention
from rammer.tiling.pattern import chosen_axes, contraction, product_skeleton, stride_along

# Below this fraction of the peak the general skeleton is as good as a micro-kernel that gathers its lanes.
_LEAST_EFFICIENCY = 0.1
MAX_CANDIDATES = 8
MAX_MEASURED = 10  # as many as in the Roller paper
# vDevices that have rules of their own, by kind.
_CANDIDATES = {"cuda": cuda.candidates}
# rTasks per vEU that are tried: all work in one rTask, one rTask each, and some to balance uneven loads.
_TASKS_PER_VEU = (1, 2, 4)
# Register tiles for each number of rTasks, where they are measured.
_REGISTER_TILES = 4


@lru_cache(maxsize=512)
def construct(workload: Workload, vdevice: VDevice, *, to_measure: bool = False) -> tuple[RKernel, ...]:
    """Candidate rKernels, best first. Pass after pass, and then lowering, asks for the same: the last are kept.

    The first is the *fastest*: it takes least time if the operator has all vEUs. The second, where it is another one,
    is the *most efficient*: its rTasks take least time together. Then comes one whose weights stay on few vEUs, if the
    vDevice keeps any, then the fastest of each number of rTasks, so that a policy can choose for any share of the
    device, and then others.

    Args:
        workload: what they compute, of what.
        vdevice: the machine.
        to_measure: whether measured times will decide. Then there are more, some of which are predicted to be slower.

    Raises:
        ValueError: the vDevice has no skeleton for the expression.
    """
    known = _CANDIDATES.get(vdevice.kind)
    candidates = (
        _candidates(workload, vdevice, _REGISTER_TILES if to_measure else 1)
        if known is None
        else known(workload, vdevice)
    )
    resident = cuda.resident(workload, vdevice) if vdevice.resident_bytes else None
    kept = () if resident is None else (resident,)
    candidates += kept
    time_us = {kernel: predict(kernel, vdevice).task_us for kernel in candidates}
    ranked = sorted(candidates, key=lambda kernel: whole_us(kernel, vdevice, time_us[kernel]))
    overhead_us = vdevice.task_overhead_us.value
    most_efficient = min(ranked, key=lambda kernel: kernel.task_count * (time_us[kernel] + overhead_us))
    of_each_count = {kernel.task_count: kernel for kernel in reversed(ranked)}
    others = [kernel for kernel in ranked if of_each_count[kernel.task_count] is kernel]
    return tuple(dict.fromkeys((ranked[0], most_efficient, *kept, *others, *ranked)))[
        : MAX_MEASURED if to_measure else MAX_CANDIDATES
    ]


def whole_us(kernel: RKernel, vdevice: VDevice, task_us: float) -> float:
    """The time of an rOperator that has all vEUs, with rTasks of `task_us`.

    What is cut up has to be handed over as well, to other vEUs and back.
    """
    handover_us = 2 * vdevice.handover_us.value if kernel.task_count > 1 else 0.0
    return -(-kernel.task_count // vdevice.veu_count) * (task_us + vdevice.task_overhead_us.value) + handover_us


def _candidates(workload: Workload, vdevice: VDevice, register_tiles: int) -> list[RKernel]:
    """For some numbers of rTasks the cheapest register tiles that leave enough blocks, or the general skeleton."""
    counts = (1, *(vdevice.veu_count * factor for factor in _TASKS_PER_VEU))
    found = attention(workload.expr) if Skeleton.ATTENTION in vdevice.skeletons else None
    if found is not None and (blocks := attention_tiles(workload.expr, found, vdevice)):
        return [_attention(workload, found, _enough(blocks, count), count) for count in counts]
    tiles = _register_tiles(workload, vdevice)
    if not tiles:
        return list(dict.fromkeys(_general(workload, vdevice, counts)))
    kernels: dict[RKernel, None] = {}
    for count in counts:
        wanted = min(count, max(tile.blocks for tile in tiles))
        enough = itertools.islice((tile for tile in tiles if tile.blocks >= wanted), register_tiles)
        kernels.update(dict.fromkeys(_micro_kernel(workload, vdevice, tile, count) for tile in enough))
    return list(kernels)


def _register_tiles(workload: Workload, vdevice: VDevice) -> list[RegisterTile]:
    """Register tiles worth a micro-kernel; none where the expression is no contraction or its lanes lie apart."""
    found = contraction(workload.expr)
    if found is None or Skeleton.GEMM not in vdevice.skeletons:
        return []
    tiles = register_tiles(workload.expr, found, workload.layouts, vdevice)
    best = _micro_kernel(workload, vdevice, tiles[0], 1)
    return tiles if efficiency(best, vdevice) >= _LEAST_EFFICIENCY else []


def _micro_kernel(workload: Workload, vdevice: VDevice, register: RegisterTile, count: int) -> RKernel:
    """A register tile's blocks spread over `count` rTasks."""
    expr = workload.expr
    found = contraction(expr)
    assert found is not None  # it has register tiles
    task = scale_out(expr, register.sizes, count, _steps(expr, workload.layouts))
    form = MicroKernelForm(
        kind=product_skeleton(found, expr.axes[register.lane]),
        scratch_bytes=register.scratch_bytes,
        register=register.sizes,
        vector=vdevice.vector_bytes // register.dtype.itemsize_bytes,
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
