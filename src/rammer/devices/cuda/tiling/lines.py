"""Lines and sectors of memory: what a warp's load or store touches, and what an rTask touches in all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rammer.ir.expr import Axis, Call, Cast, Const, Expr, ScalarFn, nodes
from rammer.ir.region import Box, affine
from rammer.ir.task import RKernel
from rammer.ir.types import Layout
from rammer.roller.tile import asked_elements, data_tiles, stored_elements
from rammer.tiling.gemm import WARP

LINE_BYTES = 128
SECTOR_BYTES = 32

Positions = Mapping[Axis, npt.NDArray[np.int64]]
"""Where the threads of a warp stand: int64 [WARP] for each axis; at 0 along all others."""


def positions(sides: Sequence[tuple[Axis, int]], vector: int = 1, threads: int = WARP, apart: int = 1) -> Positions:
    """Where the first threads of a block stand that take vectors of points, the first of `sides` (axis, size) fastest.

    Args:
        sides: what they share out.
        vector: points of a thread along the first side.
        threads: that have different points, over and over.
        apart: so many neighbours have the same points.
    """
    number = np.arange(WARP) // apart % threads
    found = {}
    for place, (axis, size) in enumerate(sides):
        width = vector if place == 0 else 1
        steps = max(1, size // width)
        found[axis] = number % steps * width
        number = number // steps
    return found


def touched_lines(
    indices: Sequence[Expr], layout: Layout, element_bytes: int, vector: int, positions: Positions
) -> int:
    """Lines that a warp's load or store of vectors touches."""
    first = np.zeros(1, np.int64)
    for index, stride in zip(indices, layout.strides, strict=True):
        form = affine(index)
        if form is None:
            first = first + _index(index, positions) * stride
            continue
        first = first + form.offset * stride
        for axis, coefficient in form.terms:
            if axis in positions:
                first = first + positions[axis] * (coefficient * stride)
    steps = np.arange(0, vector * element_bytes, min(SECTOR_BYTES, vector * element_bytes))
    return len(set(((first[:, None] * element_bytes + steps) // LINE_BYTES).ravel().tolist()))


def _index(root: Expr, positions: Positions) -> npt.NDArray[np.int64]:
    """An index for each thread; what depends on data counts as 0."""
    found: dict[Expr, npt.NDArray[np.int64]] = {}
    for node in nodes(root):
        match node:
            case Axis():
                found[node] = positions.get(node, np.zeros(1, np.int64))
            case Const(value, _):
                found[node] = np.full(1, int(value))
            case Cast(_, of):
                found[node] = found[of]
            case Call(ScalarFn.ADD, (a, b)):
                found[node] = found[a] + found[b]
            case Call(ScalarFn.SUB, (a, b)):
                found[node] = found[a] - found[b]
            case Call(ScalarFn.MUL, (a, b)):
                found[node] = found[a] * found[b]
            case Call(ScalarFn.FLOORDIV, (a, Const(value, _))):
                found[node] = found[a] // int(value)
            case Call(ScalarFn.MOD, (a, Const(value, _))):
                found[node] = found[a] % int(value)
            case _:
                found[node] = np.zeros(1, np.int64)
    return found[root]


def slot_bytes(kernel: RKernel, task: Sequence[int], unit: int) -> list[float]:
    """Bytes of the sectors or lines of each slot, then of each output, that an rTask of such a tile touches.

    Of what data choose, it touches no more elements than it asks for or stores.
    """
    expr = kernel.expr
    sizes = tuple(min(size, axis.extent) for axis, size in zip(expr.axes, task, strict=True))
    asked = asked_elements(expr, tuple(task))
    found = []
    reads, writes = data_tiles(expr, sizes)
    for slot, (type_, box) in enumerate(zip(expr.inputs, reads, strict=True)):
        element_bytes = type_.dtype.itemsize_bytes
        bytes_ = 0.0 if box is None else _box_bytes(box, kernel.layouts[slot], element_bytes, unit)
        if slot in asked:
            bytes_ = min(bytes_, float(asked[slot] * element_bytes))
        found.append(bytes_)
    for output, layout, box in zip(expr.outputs, kernel.layouts[len(expr.inputs) :], writes, strict=True):
        element_bytes = output.type.dtype.itemsize_bytes
        bytes_ = _box_bytes(box, layout, element_bytes, unit)
        stored = stored_elements(expr, output, tuple(task))
        found.append(bytes_ if stored is None else min(bytes_, float(stored * element_bytes)))
    return found


def _box_bytes(box: Box, layout: Layout, element_bytes: int, unit: int) -> float:
    """Bytes of the units that a box touches, which begins with one; panels are as good as full."""
    if layout.panel is not None:
        return float(math.prod(interval.extent for interval in box) * element_bytes)
    run, runs = 1, 1
    steps = zip(map(abs, layout.strides), (interval.extent for interval in box), strict=True)
    for stride, extent in sorted(step for step in steps if step[1] > 1):
        if stride <= run or stride * element_bytes < unit:
            run += stride * (extent - 1)
        else:
            runs *= extent
    return float(runs * -(-run * element_bytes // unit) * unit)
