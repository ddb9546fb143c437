"""The skeleton `map`: every point for itself, the lane axis innermost."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.devices.cpu.emit.nest import Loop, Range, fused, nest
from rammer.devices.cpu.emit.scope import Scope
from rammer.ir.expr import Axis


def emit_map(scope: Scope, ranges: Mapping[Axis, Range]) -> None:
    """Write the loops over one rTask."""
    operands = scope.operands
    kernel = operands.kernel
    lane = kernel.expr.axes[kernel.tile.lane] if kernel.tile.lane is not None else None
    order = sorted(kernel.expr.axes, key=lambda axis: axis is lane)
    loops = fused(
        [Loop(axes=(axis,), range=ranges[axis], lanes=axis is lane) for axis in order], operands, operands.results
    )
    nest(scope, loops, operands.results, Scope.store_results)
