"""Rows of padded operands, copied into a small array together with their padding.

Lanes that run along a padded dimension would have to test each load. From a copy that has the padding in it they load
as from any other operand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.cpu.emit.nest import Range
from rammer.devices.cpu.emit.scalar import C_TYPES, literal
from rammer.devices.cpu.emit.scope import Position, Scope
from rammer.ir.expr import Axis, Load
from rammer.ir.pattern import Border


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A copied row: the element for a lane and a tap is `array[(lane - start) * step + sum(steps * tap)]`."""

    load: Load
    array: str
    start: str
    step: int
    steps: Mapping[Axis, int]

    def element(self, lane: Axis, tap: Mapping[Axis, int]) -> str:
        """The element at the lane variable, for a tap."""
        offset = sum(step * tap[axis] for axis, step in self.steps.items())
        factor = "" if self.step == 1 else f" * {self.step}"
        return f"{self.array}[({lane.name} - {self.start}){factor} + {offset}]"


def stage_row(scope: Scope, border: Border, lane: Axis, strip: Range, width: int, taps: Sequence[Axis]) -> Row | None:
    """Copy what a strip of up to `width` lanes loads along a border, for all `taps`; None where it is no plain row.

    `scope` has a position for every axis of the load but the lane and the taps.
    """
    load, fill = border.load, border.load.fill
    address = scope.operands.loads[load]
    steps = {axis: border.form.coefficient(axis) for axis in taps if border.form.coefficient(axis)}
    step = border.form.coefficient(lane)
    others = [check for check in scope.open_checks(load) if check.dim != border.dim]
    if fill is None or others or address.parts or address.atoms or min((step, *steps.values())) < 0:
        return None
    stride = address.form.coefficient(lane) // step
    if any(address.form.coefficient(axis) != stride * steps.get(axis, 0) for axis in taps):
        return None
    reach = sum(count * (axis.extent - 1) for axis, count in steps.items())

    writer = scope.writer
    first = scope.enter({lane: Position(strip.lo), **{axis: Position("") for axis in taps}})
    array = writer.name("row")
    length = (width - 1) * step + reach + 1
    (check,) = (check for check in address.checks if check.dim == border.dim)
    origin = writer.let("int64_t", f"{array}_first", first.linear(check.form))
    needed = f"({strip.hi} - {strip.lo} - 1) * {step} + {reach + 1}"
    lo = writer.let("int64_t", f"{array}_lo", f"rammer_max_i64(0, -{origin})")
    hi = writer.let("int64_t", f"{array}_hi", f"rammer_min_i64({needed}, {border.extent} - {origin})")
    writer.line(f"{C_TYPES[load.type]} {array}[{length}];")
    with writer.loop("i", "0", str(length), lanes=True):
        writer.line(f"{array}[i] = {literal(fill.value, fill.type)};")
    with writer.loop("i", lo, hi, lanes=True):
        writer.line(f"{array}[i] = in{load.slot}[{first.address(address)} + i * {stride}];")
    return Row(load=load, array=array, start=strip.lo, step=step, steps=steps)
