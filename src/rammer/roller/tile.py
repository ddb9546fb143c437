"""Data tiles: what an rTile of an expression reads and writes, inferred from the index maps (Roller, section 3.1)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache

from rammer.ir.expr import Expr, Output, TensorExpr
from rammer.ir.region import Box, Interval, affine, box_size, depends_on_data, read_boxes, write_boxes
from rammer.tiling.pattern import free_axes

# What another vEU wrote takes longer to read: so much more traffic is worth it where most comes from the same one.
_ABOUT_AS_MUCH = 1.25

TaskTile = tuple[int, ...]
"""Sizes of the task level of an rTile: points of each spatial axis that one rTask computes."""


def task_count(expr: TensorExpr, task: TaskTile) -> int:
    """How many rTasks cover the domain."""
    return math.prod(-(-axis.extent // size) for axis, size in zip(expr.axes, task, strict=True))


@lru_cache(maxsize=4096)
def data_tiles(expr: TensorExpr, task: TaskTile) -> tuple[tuple[Box | None, ...], tuple[Box, ...]]:
    """What the first rTask of a tile reads of each input slot, and what it writes of each output."""
    ranges = {axis: Interval(0, size) for axis, size in zip(expr.axes, task, strict=True)}
    return read_boxes(expr, ranges), write_boxes(expr, ranges)


@lru_cache(maxsize=4096)
def footprint_bytes(expr: TensorExpr, task: TaskTile) -> int:
    """Bytes of the data tiles of one full rTask, inputs and outputs, each element once.

    Of what data choose, it has no more elements than it asks for or stores.
    """
    read, written = data_tiles(expr, task)
    asked = asked_elements(expr, task)
    reads = sum(
        min(box_size(box), asked.get(slot, box_size(box))) * type_.dtype.itemsize_bytes
        for slot, (type_, box) in enumerate(zip(expr.inputs, read, strict=True))
        if box is not None
    )
    writes = sum(
        min(box_size(box), stored_elements(expr, output, task) or box_size(box)) * output.type.dtype.itemsize_bytes
        for output, box in zip(expr.outputs, written, strict=True)
    )
    return reads + writes


def constants_bytes(expr: TensorExpr, task: TaskTile, constants: Collection[int]) -> int:
    """Bytes of the data tiles of one full rTask in slots that are constants, as in `footprint_bytes`."""
    read, _ = data_tiles(expr, task)
    asked = asked_elements(expr, task)
    return sum(
        min(box_size(box), asked.get(slot, box_size(box))) * type_.dtype.itemsize_bytes
        for slot, (type_, box) in enumerate(zip(expr.inputs, read, strict=True))
        if box is not None and slot in constants
    )


def stored_elements(expr: TensorExpr, output: Output, task: TaskTile) -> int | None:
    """How many elements an rTask stores of an output at places which depend on data; None where none do."""
    if not any(map(depends_on_data, output.indices)):
        return None
    return math.prod(min(size, axis.extent) for axis, size in zip(expr.axes, task, strict=True))


def asked_elements(expr: TensorExpr, task: TaskTile) -> dict[int, int]:
    """How many elements an rTask asks for, by slot, of those that are not read as boxes (`_sparse_slots`)."""
    found: dict[int, int] = {}
    if sparse := _sparse_slots(expr):
        free, sizes = free_axes(*expr.roots), dict(zip(expr.axes, task, strict=True))
        for load in expr.loads:
            if load.slot in sparse:
                asked = math.prod(min(sizes.get(axis, axis.extent), axis.extent) for axis in free[load])
                found[load.slot] = found.get(load.slot, 0) + asked
    return found


@lru_cache(maxsize=4096)
def _sparse_slots(expr: TensorExpr) -> frozenset[int]:
    """The slots that are read at places which depend on data, and those of which one load leaves elements out.

    Where loads are padded, those of one tensor may have several slots, and together read what lies between.
    """
    loads = Counter(load.slot for load in expr.loads)
    padded = any(load.fill is not None for load in expr.loads)
    return frozenset(
        load.slot
        for load in expr.loads
        if any(map(depends_on_data, load.indices))
        or (not padded and loads[load.slot] == 1 and any(map(_skips, load.indices)))
    )


def _skips(index: Expr) -> bool:
    """Whether an index goes on by more than one along each of its axes."""
    form = affine(index)
    return form is not None and bool(form.terms) and all(abs(coefficient) > 1 for _, coefficient in form.terms)


def traffic_bytes(expr: TensorExpr, task: TaskTile) -> int:
    """Bytes that all rTasks together move between the tile's level and the next one out."""
    return footprint_bytes(expr, task) * task_count(expr, task)


def reuse_score(expr: TensorExpr, task: TaskTile, position: int, size: int) -> float:
    """Traffic saved per byte of footprint when axis `position` goes from `size` to its size in `task` (section 3.2)."""
    smaller = (*task[:position], size, *task[position + 1 :])
    saved = traffic_bytes(expr, smaller) - traffic_bytes(expr, task)
    grown = footprint_bytes(expr, task) - footprint_bytes(expr, smaller)
    return saved / max(1, grown)


def scale_out(expr: TensorExpr, units: Sequence[int], parts: int, steps: Sequence[int] | None = None) -> TaskTile:
    """The task tile that cuts the domain into about `parts` rTasks, with as little traffic as possible.

    Starting from the whole domain, the axis with the least reuse is cut again and again; with `steps`, among those that
    cause about as much traffic the one with the longest. Then rTasks write memory in whole runs, and operators that
    follow each other are cut alike, so that a vEU reads mostly what it has written.

    Args:
        expr: the expression.
        units: sizes are multiples of these, but for an axis that is not cut.
        parts: the number of rTasks to reach, as far as the units allow it.
        steps: how far apart neighbours along each axis lie in the outputs, in elements.
    """
    task = tuple(axis.extent for axis in expr.axes)
    while (count := task_count(expr, task)) < parts:
        options = []
        for position, (axis, size, unit) in enumerate(zip(expr.axes, task, units, strict=True)):
            now = -(-axis.extent // size)
            wanted = min(2 * now, -(-parts * now // count))
            smaller = _aligned(-(-axis.extent // wanted), unit)
            if smaller < size:
                options.append((reuse_score(expr, task, position, smaller), position, smaller))
        if not options:
            break
        best = min(options)
        if steps is not None:
            enough = _ABOUT_AS_MUCH * traffic_bytes(expr, _cut(task, best))
            near = [option for option in options if traffic_bytes(expr, _cut(task, option)) <= enough]
            best = max(near, key=lambda option: steps[option[1]])
        task = _cut(task, best)
    return task


def _cut(task: TaskTile, option: tuple[float, int, int]) -> TaskTile:
    _, position, size = option
    return (*task[:position], size, *task[position + 1 :])


def _aligned(size: int, unit: int) -> int:
    return -(-size // unit) * unit
