"""Operands that are *windows*: elements that are short sums, computed on the way into shared memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

from rammer.devices.codegen.scalar import C_TYPES, COMBINE, call_text, literal
from rammer.devices.codegen.scope import Position, Scope
from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Expr, Reduce


def write_windows(at_points: Scope, axis: Axis, element: Expr, together: int) -> None:
    """Write the elements of so many neighbours along `axis` into `value`; `at_points` is the scope at the first."""
    at_points.share_elements(_unrolled)
    place = at_points.positions[axis]
    for number in range(together):
        at_point = at_points.enter({axis: replace(place, offset=place.offset + number)})
        at_points.writer.line(f"value[{number}] = {at_point.value(element)};")


def _unrolled(scope: Scope, node: Reduce) -> str:
    """Write a short reduction point by point; returns the name of its value."""
    total = literal(identity(node.fn, node.dtype), node.dtype)
    for point in itertools.product(*(range(axis.extent) for axis in node.axes)):
        at_point = scope.enter({axis: Position("", i) for axis, i in zip(node.axes, point, strict=True)})
        text = call_text(COMBINE[node.fn], node.dtype, (total, at_point.value(node.body)))
        total = scope.writer.let(C_TYPES[node.dtype], scope.writer.name("total"), text)
    return total
