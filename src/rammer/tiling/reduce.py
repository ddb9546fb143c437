"""Maps and reductions on a GPU: how the threads of a block share out an rTask, in vectors of what lies side by side.

A reduction goes by columns where neighbouring points lie side by side: a thread has a vector of points, and a team
splits the elements that they reduce. Else it goes by rows: a team runs along what is reduced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.ir.expr import Axis, Reduce, TensorExpr
from rammer.ir.kernel_form import MapForm, ReduceForm
from rammer.ir.task import RTile
from rammer.ir.types import Layout
from rammer.tiling.addresses import Accesses, accesses_of
from rammer.tiling.gemm import WARP
from rammer.tiling.pattern import chosen_axes
from rammer.tiling.rows import Rows, outer_reductions, rows_of
from rammer.tiling.vectors import most_side_by_side, vector_size, vector_turns

_PART_BYTES = 8  # RAMMER_PART_BYTES
_MOST_ELEMENTS = 32  # of a row, that a thread has in registers
# Measured on an NVIDIA H200: until what is loaded is there, for an exchange in a warp, for a barrier of several, for an
# element of each of 512 threads and each phase, and until threads have put parts of columns together.
_LOAD_CYCLES, _COMBINE_CYCLES, _MEET_CYCLES, _ELEMENT_CYCLES, _SPLIT_CYCLES = 900, 30, 60, 30, 500


def map_form(
    expr: TensorExpr, layouts: tuple[Layout, ...], tile: RTile, threads: int, alignments: Sequence[int]
) -> MapForm:
    """The form of rTasks of a tile that reduce nothing: vectors, but where there is a thread for each element."""
    if tile.lane is None or chosen_axes(expr):
        return MapForm(threads=threads)
    if math.prod(tile.task) <= threads:
        return MapForm(threads=threads)  # several would be computed one after the other, in code that is read once
    axis, accesses = expr.axes[tile.lane], accesses_of(expr, layouts)
    most = most_side_by_side(accesses, axis)
    size = vector_size(accesses, alignments, axis, math.gcd(tile.task[tile.lane], axis.extent), most=most)
    turns = vector_turns(accesses, axis, size, -(-math.prod(tile.task) // size // threads))
    return MapForm(threads=threads, vector=size, turns=min(turns, max(1, most // size)))


def reduce_form(
    expr: TensorExpr, layouts: tuple[Layout, ...], tile: RTile, threads: int, alignments: Sequence[int]
) -> ReduceForm:
    """The form of rTasks of a tile that reduce.

    Args:
        expr: has reductions.
        layouts: of its slots, then of its outputs.
        tile: what an rTask computes.
        threads: of a block.
        alignments: as an rKernel has them.
    """
    reductions, used = outer_reductions(expr)
    sizes = {axis: size for axis, size in zip(expr.axes, tile.task, strict=True) if axis in used}
    if tile.lane is not None and expr.axes[tile.lane] in used:
        return _by_columns(accesses_of(expr, layouts), alignments, expr.axes[tile.lane], sizes, reductions, threads)
    return _by_rows(rows_of(expr, layouts, tile), layouts, alignments, math.prod(sizes.values()), threads)


def _by_rows(
    rows: Rows, layouts: tuple[Layout, ...], alignments: Sequence[int], row_count: int, threads: int
) -> ReduceForm:
    accesses = accesses_of(rows.expr, layouts)
    if not rows.phases:
        return ReduceForm(threads=threads)
    axes = list(dict.fromkeys(axis for axis, _ in rows.phases))
    longest = max(axes, key=lambda axis: axis.extent)
    multiple = math.gcd(*(axis.extent for axis in axes))
    size = vector_size(accesses, alignments, longest, multiple, stores=rows.is_joined)
    phases = len(rows.phases)

    def form(team: int) -> ReduceForm:
        turns = -(-longest.extent // (size * team))
        if turns * size > _MOST_ELEMENTS:
            turns = max(1, _MOST_ELEMENTS // 2 // size)
        scratch_bytes = 2 * _PART_BYTES * (threads // WARP) if team > WARP else 0
        return ReduceForm(threads=threads, scratch_bytes=scratch_bytes, team=team, vector=size, turns=turns)

    def cycles(one: ReduceForm) -> float:
        rounds = -(-row_count * one.team // threads)
        elements = -(-longest.extent // (size * one.team)) * size
        is_whole = elements <= one.turns * size
        together = _COMBINE_CYCLES * math.log2(min(one.team, WARP)) + _MEET_CYCLES * (one.team > WARP)
        loads = _LOAD_CYCLES * (1 if is_whole else phases + 1) * -(-elements // _MOST_ELEMENTS)
        return rounds * (loads + phases * (together + elements * _ELEMENT_CYCLES))

    return min(map(form, _powers(threads)), key=cycles)


def _by_columns(
    accesses: Accesses,
    alignments: Sequence[int],
    axis: Axis,
    sizes: dict[Axis, int],
    reductions: Sequence[Reduce],
    threads: int,
) -> ReduceForm:
    size = vector_size(accesses, alignments, axis, math.gcd(sizes[axis], axis.extent))
    vectors = math.prod(sizes.values()) // size
    elements = max(math.prod(one.extent for one in reduction.axes) for reduction in reductions)
    turns = vector_turns(accesses, axis, size, max(1, elements))

    def cycles(team: int) -> float:
        own, rounds = -(-elements // team), -(-vectors * team // threads)
        together = _SPLIT_CYCLES if team > 1 else 0
        return rounds * (-(-own // turns) * _LOAD_CYCLES + own * size * _ELEMENT_CYCLES + together)

    team = min(_powers(threads), key=cycles)
    across = threads // team
    parts = threads // max(WARP, across)
    scratch_bytes = _PART_BYTES * across * size * (parts + 1) if parts > 1 else 0
    return ReduceForm(threads=threads, scratch_bytes=scratch_bytes, team=team, vector=size, turns=turns)


def _powers(most: int) -> list[int]:
    """Powers of two up to one."""
    return [1 << power for power in range(most.bit_length()) if 1 << power <= most]
