"""Reductions on a GPU: how many of a block's threads share a point."""

from __future__ import annotations

import math

from rammer.ir.expr import Axis, Reduce, TensorExpr
from rammer.ir.kernel_form import ReduceForm
from rammer.ir.task import RTile
from rammer.tiling.gemm import WARP
from rammer.tiling.pattern import free_axes

_ELEMENT_BYTES = 8  # of the widest type
# Steps that a team spends on putting its parts together.
_WARP_STEPS, _BLOCK_STEPS = 10, 40


def reduce_form(expr: TensorExpr, tile: RTile, threads: int) -> ReduceForm:
    """The form of rTasks of a tile.

    A point has one thread where many points have short reductions or threads run along lanes, else a warp or the block.

    Args:
        expr: has reductions.
        tile: what an rTask computes.
        threads: of a block.
    """
    scratch_bytes = threads // WARP * _ELEMENT_BYTES
    if tile.lane is not None:
        return ReduceForm(threads=threads, scratch_bytes=scratch_bytes)
    reductions, used = outer_reductions(expr)
    length = max(math.prod(axis.extent for axis in reduction.axes) for reduction in reductions)
    points = math.prod(size for axis, size in zip(expr.axes, tile.task, strict=True) if axis in used)
    combine_steps = {1: 0, WARP: _WARP_STEPS, threads: _BLOCK_STEPS}

    def steps(team: int) -> int:
        return -(-points * team // threads) * (-(-length // team) + combine_steps[team])

    return ReduceForm(threads=threads, scratch_bytes=scratch_bytes, team=min(combine_steps, key=steps))


def outer_reductions(expr: TensorExpr) -> tuple[list[Reduce], frozenset[Axis]]:
    """The reductions that depend on spatial axes alone, and these axes."""
    free, axes = free_axes(*expr.roots), frozenset(expr.axes)
    reductions = [reduction for reduction in expr.reductions if free[reduction] <= axes]
    return reductions, frozenset[Axis]().union(*(free[reduction] for reduction in reductions))
