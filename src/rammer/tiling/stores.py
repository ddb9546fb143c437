"""Along which axis results of a block lie side by side."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import Axis, TensorExpr
from rammer.ir.types import Layout
from rammer.tiling.pattern import stride_along


def by_steps(expr: TensorExpr, layouts: Sequence[Layout], axes: Sequence[Axis], lane: Axis) -> list[Axis]:
    """Axes by the longest steps along each in the stores, the shortest last; of equal ones, the lane.

    Args:
        expr: whose outputs.
        layouts: of all slots.
        axes: those of a block, the lane among them.
        lane: along which its vectors run.
    """
    outputs = list(zip(expr.outputs, layouts[len(expr.inputs) :], strict=True))

    def step(axis: Axis) -> int:
        return max(abs(stride_along(output.indices, layout, axis)) for output, layout in outputs)

    return sorted(axes, key=lambda axis: (-step(axis), axis is lane))
