"""Candidate rKernels for an expression, by construction from a vDevice's description (Roller, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import TensorExpr
from rammer.ir.pattern import Skeleton, chosen_axes, contraction, skeleton_of
from rammer.ir.task import Resources, RKernel, RTile
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.roller import cuda
from rammer.roller.lane import choose_lane, transposed_with
from rammer.roller.model import predict
from rammer.roller.register import RegisterTile, efficiency, register_tiles
from rammer.roller.tile import scale_out

# Below this fraction of the peak the general skeleton is as good as a micro-kernel that gathers its lanes.
_LEAST_EFFICIENCY = 0.1
MAX_CANDIDATES = 8
MAX_MEASURED = 10  # as many as in the Roller paper
# vDevices that have rules of their own, by kind.
_CANDIDATES = {"cuda": cuda.candidates}
# rTasks per vEU that are tried: all work in one rTask, one rTask each, and some to balance uneven loads.
_TASKS_PER_VEU = (1, 4)


def construct(
    expr: TensorExpr, layouts: Sequence[Layout], vdevice: VDevice, most_candidates: int = MAX_CANDIDATES
) -> tuple[RKernel, ...]:
    """Candidate rKernels, best first.

    The first is the *fastest*: it takes least time if the operator has all vEUs. The second, where it is another one,
    is the *most efficient*: its rTasks take least time together. Then comes one whose weights stay on few vEUs, if the
    vDevice keeps any, then others by the first measure.

    Args:
        expr: a canonical expression.
        layouts: of the tensors that its slots and outputs are bound to, slots first.
        vdevice: the machine.
        most_candidates: how many to return at most.

    Raises:
        ValueError: the vDevice has no skeleton for the expression.
    """
    candidates = _CANDIDATES.get(vdevice.kind, _candidates)(expr, tuple(layouts), vdevice)
    resident = cuda.resident(expr, tuple(layouts), vdevice) if vdevice.resident_bytes else None
    kept = () if resident is None else (resident,)
    candidates += kept
    veus = vdevice.veu_count
    time_us = {kernel: predict(kernel, vdevice).task_us for kernel in candidates}

    def whole_us(kernel: RKernel) -> float:
        # What is cut up has to be handed over as well, to other vEUs and back.
        handover_us = 2 * vdevice.handover_us.value if kernel.task_count > 1 else 0.0
        return -(-kernel.task_count // veus) * time_us[kernel] + handover_us

    fastest = min(candidates, key=whole_us)
    most_efficient = min(candidates, key=lambda kernel: kernel.task_count * time_us[kernel])
    ranked = (fastest, most_efficient, *kept, *sorted(candidates, key=whole_us))
    return tuple(dict.fromkeys(ranked))[:most_candidates]


def _candidates(expr: TensorExpr, layouts: tuple[Layout, ...], vdevice: VDevice) -> list[RKernel]:
    counts = (1, *(vdevice.veu_count * factor for factor in _TASKS_PER_VEU))
    kernels: dict[RKernel, None] = {}
    tiles = _register_tiles(expr, layouts, vdevice)
    for count in counts:
        kernel = _contract(expr, layouts, vdevice, tiles, count) if tiles else _general(expr, layouts, vdevice, count)
        kernels.setdefault(kernel)
    return list(kernels)


def _register_tiles(expr: TensorExpr, layouts: tuple[Layout, ...], vdevice: VDevice) -> list[RegisterTile]:
    """Register tiles worth a micro-kernel; none where the expression is no contraction or its lanes lie apart."""
    found = contraction(expr)
    if found is None or Skeleton.CONTRACT not in vdevice.skeletons:
        return []
    tiles = register_tiles(expr, found, layouts, vdevice)
    best = _contract(expr, layouts, vdevice, tiles, 1)
    return tiles if efficiency(best, vdevice) >= _LEAST_EFFICIENCY else []


def _contract(
    expr: TensorExpr, layouts: tuple[Layout, ...], vdevice: VDevice, tiles: Sequence[RegisterTile], count: int
) -> RKernel:
    """The cheapest register tile that leaves enough blocks, and its blocks spread over `count` rTasks."""
    most = max(tile.blocks for tile in tiles)
    register = next(tile for tile in tiles if tile.blocks >= min(count, most))
    dtype = register.dtype
    tile = RTile(
        task=scale_out(expr, register.sizes, count),
        register=register.sizes,
        reduce=tuple(axis.extent for axis in expr.reduce_axes),
        lane=register.lane,
        vector=vdevice.vector_bytes // dtype.itemsize_bytes,
    )
    return RKernel(
        expr=expr,
        layouts=layouts,
        skeleton=Skeleton.CONTRACT.value,
        tile=tile,
        resources=Resources(scratch_bytes=register.scratch_bytes),
    )


def _general(expr: TensorExpr, layouts: tuple[Layout, ...], vdevice: VDevice, count: int) -> RKernel:
    """One of the skeletons without a micro-kernel."""
    skeleton = skeleton_of(expr)
    if skeleton is Skeleton.CONTRACT:
        skeleton = Skeleton.REDUCE
    if skeleton.value not in vdevice.skeletons:
        raise ValueError(f"{vdevice.name} has no skeleton '{skeleton.value}'")
    vector = vdevice.vector_bytes // DType.FLOAT32.itemsize_bytes
    lane = choose_lane(expr, layouts, vector)
    other = None if lane is None or skeleton is not Skeleton.MAP else transposed_with(expr, layouts, lane)
    register = tuple(vector if position in (lane, other) else 1 for position in range(len(expr.axes)))
    chosen = chosen_axes(expr) if skeleton is Skeleton.MAP else ()
    units = [axis.extent if axis in chosen else size for axis, size in zip(expr.axes, register, strict=True)]
    tile = RTile(
        task=scale_out(expr, units, count),
        register=() if other is None else register,
        reduce=tuple(max(1, axis.extent) for axis in expr.reduce_axes),
        lane=lane,
        vector=vector,
    )
    return RKernel(expr=expr, layouts=layouts, skeleton=skeleton.value, tile=tile)
