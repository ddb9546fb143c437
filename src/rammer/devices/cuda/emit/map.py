"""The skeleton `map`: each thread takes points of its own, neighbours along the lane axis."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.points import Side, count, decode, guarded, lane_first
from rammer.devices.cuda.emit.wait import emit_wait


def emit_map(scope: Scope, sides: Sequence[Side]) -> None:
    """Write the loop over the points of one rTask."""
    writer = scope.writer
    emit_wait(writer)
    ordered = lane_first(scope.operands.kernel, [side for side in sides if side.axis not in scope.operands.chosen])
    with writer.block(f"for (uint32_t point = threadIdx.x; point < {count(ordered)}u; point += RAMMER_THREADS)"):
        positions, conditions = decode(writer, "point", ordered)
        with guarded(writer, conditions):
            scope.enter(positions).store_results()
