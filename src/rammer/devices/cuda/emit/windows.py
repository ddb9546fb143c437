"""Staging of operands that are *windows*: elements that are short sums, computed on the way into shared memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

from rammer.devices.codegen.scalar import C_TYPES, COMBINE, call_text, literal
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.points import Side, count, guarded
from rammer.devices.cuda.emit.product import Operand
from rammer.ir.evaluate import identity
from rammer.ir.expr import Reduce

_POINTS_TOGETHER = (4, 2)  # whose windows a thread computes


def stage_windows(scope: Scope, operand: Operand, threads: int) -> None:
    """Compute a step of an operand of windows into shared memory; what lies beyond the operand is 0.

    A thread computes several neighbouring points: it loads once what their windows share.
    """
    writer, element, step = scope.writer, operand.element, operand.steps.size
    side = next((side for side in operand.sides if side.size > 1), operand.sides[0])
    together = _together(side, min(operand.points, count(operand.sides)) * step, threads)
    writer.line("#pragma unroll 1")
    copies = operand.points // together * step
    with writer.block(f"for (uint32_t copy = threadIdx.x; copy < {copies}u; copy += {threads})"):
        writer.let("uint32_t", "element_", f"copy % {step}")
        writer.let("uint32_t", "point_", f"copy / {step} * {together}")
        positions, conditions = operand.decode(writer, "element_")
        values = [writer.name("value") for _ in range(together)]
        for value in values:
            writer.line(f"{C_TYPES[element.dtype]} {value} = 0;")
        with guarded(writer, conditions):
            at_points = scope.enter(positions)
            at_points.share_elements(_unrolled)
            place = positions[side.axis]
            for number, value in enumerate(values):
                at_point = at_points.enter({side.axis: replace(place, offset=place.offset + number)})
                writer.line(f"{value} = {at_point.value(element)};")
        for number, value in enumerate(values):
            writer.line(f"*({operand.place('into', f'(point_ + {number})', 'element_')}) = {value};")


def _together(side: Side, elements: int, threads: int) -> int:
    """How many neighbours along a side each of so many threads takes: a few, but none goes without any for it."""
    fitting = (taken for taken in _POINTS_TOGETHER if side.size % taken == 0 and taken * threads <= elements)
    return 1 if side.is_ragged else next(fitting, 1)


def _unrolled(scope: Scope, node: Reduce) -> str:
    """Write a short reduction point by point; returns the name of its value."""
    total = literal(identity(node.fn, node.dtype), node.dtype)
    for point in itertools.product(*(range(axis.extent) for axis in node.axes)):
        at_point = scope.enter({axis: Position("", i) for axis, i in zip(node.axes, point, strict=True)})
        text = call_text(COMBINE[node.fn], node.dtype, (total, at_point.value(node.body)))
        total = scope.writer.let(C_TYPES[node.dtype], scope.writer.name("total"), text)
    return total
