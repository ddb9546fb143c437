"""The skeleton `map`: each thread takes points of its own, neighbours along the lane axis."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.task import RKernel


def emit_map(scope: Scope, sides: Sequence[Side]) -> int:
    """Write the loop over the points of one rTask. Returns the scratch that it takes, in bytes."""
    writer = scope.writer
    emit_wait(writer)
    ordered = lane_first(scope.operands.kernel, [side for side in sides if side.axis not in scope.operands.chosen])
    with writer.block(f"for (uint32_t point = threadIdx.x; point < {count(ordered)}u; point += RAMMER_THREADS)"):
        positions, conditions = decode(writer, "point", ordered)
        with guarded(writer, conditions):
            scope.enter(positions).store_results()
    return 0


def lane_first(kernel: RKernel, sides: Sequence[Side]) -> list[Side]:
    """Sides in the order in which threads take their points: the lane axis fastest, then inner axes before outer."""
    lane = None if kernel.tile.lane is None else kernel.expr.axes[kernel.tile.lane]
    others = [side for side in reversed(sides) if side.axis is not lane]
    return [*(side for side in sides if side.axis is lane), *others]
