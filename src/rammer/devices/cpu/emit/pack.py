"""Copies of lane operands whose lanes lie apart, are converted or may be padding (`skeletons/stage.h`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cpu.emit.micro import Block, Pack
from rammer.devices.cpu.emit.parameters import parameters
from rammer.ir.expr import Axis, Expr
from rammer.tiling.addresses import Linear
from rammer.tiling.packing import pack_points, packed_operands, scattered_operands
from rammer.tiling.pattern import Group


def emit_packs(scope: Scope, block: Block) -> dict[tuple[Group, Expr], Pack]:
    """Write the copies for a block of lanes, where they pay."""
    kernel = scope.operands.kernel
    rows = math.prod(block.sizes[axis] for axis in block.rows)
    lanes = block.sizes[block.lane]
    scattered = scattered_operands(kernel.expr, block.found, block.lane, kernel.layouts)
    packed = packed_operands(block.found, scattered, lanes, rows)
    return {(group, operand): _emit_pack(scope, block, group, operand) for group, operand in packed}


def _emit_pack(scope: Scope, block: Block, group: Group, operand: Expr) -> Pack:
    """Copy one operand: at each point of its reduction axes the lanes of the block, zeros for absent ones."""
    writer, lane = scope.writer, block.lane
    lanes, present = block.sizes[lane], block.counts[lane]
    axes = [axis for axis in group.axes if axis in block.found.free[operand]]
    form = numbering(axes)
    array = writer.name("pack")
    size = pack_points(block.found, group, operand) * lanes
    writer.include("stage.h")
    writer.line(f"{C_TYPES[operand.dtype]} {array}[{size}] RAMMER_ALIGNED;")

    def copy(inside: Scope, rest: list[Axis]) -> None:
        inside.hoist((operand,))
        if rest:
            first, *others = rest
            with writer.loop(first.name, "0", str(first.extent)):
                copy(inside.enter({first: Position(first.name)}), others)
            return
        to = f"{array} + ({inside.linear(form)}) * {lanes}"
        with parameters(writer) as given:
            given.value("ELEMENT", lambda: inside.enter({lane: Position(lane.name)}).value(operand))
            writer.line(f"RAMMER_PACK({to}, {lanes}, {lane.name}, {lane.name}_block, {present}, ELEMENT)")

    copy(scope.enter({}), axes)
    return Pack(array=array, form=form)


def numbering(axes: Sequence[Axis]) -> Linear:
    """The row-major number of a point of `axes`."""
    terms: list[tuple[Expr, int]] = []
    step = 1
    for axis in reversed(axes):
        terms.insert(0, (axis, step))
        step *= axis.extent
    return Linear(tuple(terms), 0)
