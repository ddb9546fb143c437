"""The elementwise rest of a resident rKernel, and the constants that it keeps in shared memory.

Each total of a point is finished by a lane of its own, then the point by the first of these.
"""

from __future__ import annotations

from collections.abc import Sequence

from rammer.devices.codegen.scalar import call_text
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.points import Side, decode_inside, guarded, lane_first
from rammer.ir.expr import Axis, ScalarFn
from rammer.ir.types import DType
from rammer.tiling.persistent_rnn import PersistentRnn, epilogue_loads, kept_loads


def emit_keep(scope: Scope, sides: Sequence[Side], plan: PersistentRnn) -> None:
    """Write what brings other constants into shared memory, those of a point by the lanes that need them."""
    writer = scope.writer
    with writer.block(f"if (warp < {plan.point_warps}u)"):
        at_point = scope.enter(write_point(writer, plan, lane_first(scope.operands.kernel, sides))[0])
        # All loads before the first store: the compiler does not know that they are of other memory.
        biases = [_own_bias(at_point, plan, i) for i in range(max(len(one.biases) for one in plan.gates))]
        kept = [at_point.value(load) for load in kept_loads(scope.operands, plan)]
        writer.line("__syncwarp();")  # lanes may still read those of another rKernel
        writer.line(f"shared[{plan.kept_at} + {_own_row(plan)}] = {' + '.join(biases) or '0.0f'};")
        place = plan.kept_at + plan.rows
        for value in kept:
            writer.line(f"shared[{place} + point] = {value};")
            place += plan.points
        writer.line("__syncwarp();")


def hoist_rest(at_point: Scope, plan: PersistentRnn) -> None:
    """Load what the rest reads that does not stay."""
    kept = kept_loads(at_point.operands, plan)
    at_point.hoist(load for load in epilogue_loads(at_point.operands, plan) if load not in kept)


def emit_rest(at_point: Scope, conditions: Sequence[str], plan: PersistentRnn) -> None:
    """Write the rest: the sums of all warps lie in `partial`, `conditions` say that a lane has such a point."""
    writer, points, totals = at_point.writer, plan.points, len(plan.gates)
    with writer.block(f"if (warp < {plan.point_warps}u)"):
        writer.let("uint32_t", "own_row", _own_row(plan))
        total = f"rammer_sum_warps<{plan.rows}>(partial + own_row) + shared[{plan.kept_at} + own_row]"
        own = _finished(writer, plan, writer.let("float", "own", total))
        for number, one in enumerate(plan.gates):
            value = f"__shfl_sync(0xffffffffu, {own}, place * {totals} + {number})"
            at_point.bind(one.node, writer.let("float", writer.name("total"), value))
        for number, load in enumerate(kept_loads(at_point.operands, plan)):
            value = f"shared[{plan.kept_at + plan.rows + number * points} + point]"
            at_point.bind(load, writer.let("float", writer.name("kept"), value))
        at_point.hoist(at_point.operands.results)
        with guarded(writer, [f"lane % {totals} == 0", *conditions]):
            at_point.store_results()


def write_point(writer: Writer, plan: PersistentRnn, sides: Sequence[Side]) -> tuple[dict[Axis, Position], list[str]]:
    """The positions of the point that a lane has a total of, and conditions that there is such a point."""
    per_warp, points = plan.points_per_warp, plan.points
    writer.let("uint32_t", "place", f"min(lane / {len(plan.gates)}, {per_warp - 1}u)")
    writer.let("uint32_t", "point", f"min(warp * {per_warp} + place, {points - 1}u)")
    positions, conditions = decode_inside(writer, "point", sides)
    conditions.append(f"lane < {per_warp * len(plan.gates)}u")
    if points % per_warp:
        conditions.append(f"warp * {per_warp} + place < {points}u")
    return positions, conditions


def _own_row(plan: PersistentRnn) -> str:
    """The row of the total that a lane finishes."""
    return f"lane % {len(plan.gates)} * {plan.points} + point"


def _own_bias(scope: Scope, plan: PersistentRnn, number: int) -> str:
    """The value of a bias of the total that a lane finishes."""
    writer, count = scope.writer, len(plan.gates)
    chosen = "nullptr"
    for i, total in enumerate(plan.gates):
        if number < len(total.biases):
            bias = total.biases[number]
            chosen = f"lane % {count} == {i} ? &in{bias.slot}[{scope.element(bias)[0]}] : {chosen}"
    bias_from = writer.let("float *", writer.name("from"), chosen)
    return writer.let("float", writer.name("bias"), f"{bias_from} == nullptr ? 0.0f : *{bias_from}")


def _finished(writer: Writer, plan: PersistentRnn, own: str) -> str:
    """The function of a lane's total: all lanes compute each, for lanes in branches of their own take turns."""
    lanes: dict[ScalarFn | None, list[int]] = {}
    for number, total in enumerate(plan.gates):
        lanes.setdefault(total.function, []).append(number)
    finished = ""
    for function, numbers in lanes.items():
        text = own if function is None else call_text(function, DType.FLOAT32, [own])
        value = writer.let("float", writer.name("finished"), text)
        condition = " || ".join(f"lane % {len(plan.gates)} == {number}" for number in numbers)
        finished = f"{condition} ? {value} : {finished}" if finished else value
    return writer.let("float", "mine", finished)
