"""Which axis runs along vector lanes where there is no micro-kernel (skeletons map and reduce)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.ir.expr import Axis, Expr, Load, Reduce, TensorExpr, nodes
from rammer.ir.types import Layout
from rammer.tiling.pattern import free_axes, stride_along


def choose_lane(expr: TensorExpr, layouts: Sequence[Layout], vector: int) -> int | None:
    """The position of the axis whose loads and stores cost least when it runs along lanes of `vector` elements.

    None means that only reductions run along lanes, or that there is nothing to choose from.
    """
    free = free_axes(*expr.roots)
    in_reductions: dict[Load, Reduce] = {}
    for reduction in expr.reductions:
        for node in nodes(reduction.body):
            if isinstance(node, Load):
                in_reductions.setdefault(node, reduction)

    def cost(lane: Axis | None) -> float:
        points = math.prod(axis.extent for axis in expr.axes)
        total = 0.0
        for output, layout in zip(expr.outputs, layouts[len(expr.inputs) :], strict=True):
            total += 2 * points * _access(lane, output.indices, layout, vector)
        for load in expr.loads:
            along = lane
            reduction = in_reductions.get(load)
            if reduction is not None and (lane is None or lane not in free[reduction]):
                # Such a reduction runs along lanes itself, if it is long enough.
                along = _innermost(load, reduction, layouts[load.slot], 2 * vector)
            # What does not depend on the lanes' axis is one element for all lanes, at each of its own points.
            each = _access(along, load.indices, layouts[load.slot], vector) if along in free[load] else float(vector)
            total += each * math.prod(axis.extent for axis in free[load])
        return total

    options: list[Axis | None] = list(reversed(expr.axes))
    if expr.reductions or not options:
        options.append(None)
    best = min(options, key=cost)
    return None if best is None else expr.axes.index(best)


def transposed_with(expr: TensorExpr, layouts: Sequence[Layout], lane: int) -> int | None:
    """The position of an axis along which a load is contiguous that strides along the lane; None if there is none."""
    for load in expr.loads:
        strides = [abs(stride_along(load.indices, layouts[load.slot], axis)) for axis in expr.axes]
        if strides[lane] > 1 and 1 in strides:
            return strides.index(1)
    return None


def _innermost(load: Load, reduction: Reduce, layout: Layout, least: int) -> Axis | None:
    """The reduction axis of which a load's elements lie side by side, if at least `least` of them follow each other.

    Axes that go on where the one inside ends are one long axis.
    """
    steps = {axis: stride_along(load.indices, layout, axis) for axis in reduction.axes}
    innermost, *outer = sorted(reduction.axes, key=lambda axis: abs(steps[axis]))
    length = innermost.extent
    for axis in outer:
        if steps[axis] != steps[innermost] * length:
            break
        length *= axis.extent
    return innermost if length >= least else None


def _access(lane: Axis | None, indices: Sequence[Expr], layout: Layout, vector: int) -> float:
    """The cost of an access at one point: 1 where whole vectors lie in memory, `vector` for one element at a time."""
    if lane is None:
        return float(vector)
    stride = abs(stride_along(indices, layout, lane))
    near = 1.0 if stride == 1 else 2.0 if 2 <= stride <= 4 else float(vector)
    wasted = -(-lane.extent // vector) * vector / max(1, lane.extent)
    return min(float(vector), wasted * near)
