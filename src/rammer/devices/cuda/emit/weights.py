"""Weights of a resident rKernel on their way into registers."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.points import Side, decode, decode_inside, lane_first
from rammer.tiling.persistent_rnn import Part, PersistentRnn


def emit_bring(scope: Scope, sides: Sequence[Side], plan: PersistentRnn) -> None:
    """Write what brings `weights` into registers: all loads are on their way together."""
    writer, kernel, across = scope.writer, scope.operands.kernel, plan.across
    points = lane_first(kernel, sides)
    for part in plan.parts:
        elements = [Side.whole(axis) for axis in part.fastest_first(kernel.layouts)]
        table = part.tables[min(part.tables)]
        chosen = f"in{table}"
        for total, slot in part.tables.items():
            chosen = f"total == {total}u ? in{slot} : {chosen}" if slot != table else chosen
        writer.line("#pragma unroll")
        with writer.loop("i", "0", str(part.slots)):
            writer.let("uint32_t", "row", f"(i + {part.first_slot}) * {across} + lane % {across}")
            writer.let("uint32_t", "total", f"row / {plan.points}u")
            writer.let("uint32_t", "point", f"row % {plan.points}u")
            # Points beyond an axis get weights of others: their sums are not used.
            at_points, _ = decode_inside(writer, "point", points)
            writer.line(f"const auto *const chosen = {chosen};")
            writer.line("#pragma unroll")
            with writer.loop("j", "0", str(part.elements)):
                writer.let("uint32_t", "place", f"lane / {across} * {part.elements} + j")
                element = f"warp * {part.slice} + place"
                writer.let("uint32_t", "element", element if part.is_even else f"min({element}, {part.length - 1}u)")
                at_elements, _ = decode(writer, "element", elements)
                writer.line(f"const auto *const in{table} = chosen;")
                value = scope.enter({**at_points, **at_elements}).value(part.weight)
                present = [*_present(part), *_adds(part, plan)]
                value = f"{' && '.join(present)} ? {value} : 0.0f" if present else value
                writer.line(f"weights[{part.weights_at} + i * {part.elements} + j] = {value};")


def _adds(part: Part, plan: PersistentRnn) -> list[str]:
    """The condition that a part adds to the total of a row."""
    rows = range(part.first_slot * plan.across, (part.first_slot + part.slots) * plan.across)
    own = {total * plan.points + point for total in part.tables for point in range(plan.points)}
    if own.issuperset(rows):
        return []
    return [f"({' || '.join(f'total == {total}u' for total in part.tables)})"]


def _present(part: Part) -> list[str]:
    """Conditions that place `place` of a warp's slice has an element."""
    if part.is_even:
        return []
    return [f"place < {part.slice}u", f"warp * {part.slice} + place < {part.length}u"]
