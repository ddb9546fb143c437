"""Reductions as threads fold them: what a thread has of one so far, and the loops over its elements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES, COMBINE, call_text, literal
from rammer.devices.codegen.scope import Position, Scope
from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Load, Reduce, nodes
from rammer.tiling.pattern import reduction_order

_UNROLLED = 8  # points of a loop whose loads are all in flight together
_ALL_UNROLLED = 16  # likewise, of all loops over a window


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What a thread has of a reduction, for each of `width` lanes: array `name`, folded by the function `fn`."""

    reduction: Reduce
    name: str
    fn: str
    width: int

    @classmethod
    def declare(cls, scope: Scope, reduction: Reduce, name: str, width: int) -> Total:
        """Begin with nothing, in an array that is there."""
        writer, type_ = scope.writer, C_TYPES[reduction.dtype]
        text = call_text(COMBINE[reduction.fn], reduction.dtype, ("a", "b"))
        fn = writer.let("auto", writer.name("combine"), f"[]({type_} a, {type_} b) {{ return ({type_})({text}); }}")
        writer.line(f"rammer_fill<{width}>({name}, {_nothing(reduction)});")
        return cls(reduction=reduction, name=name, fn=fn, width=width)

    def add(self, at_lane: Scope) -> None:
        """Fold in the element of a lane."""
        place = f"{self.name}[{'lane' if self.width > 1 else '0'}]"
        at_lane.writer.line(f"{place} = {self.fn}({place}, {at_lane.value(self.reduction.body)});")


def fold(scope: Scope, node: Reduce) -> str:
    """Write a reduction that each thread computes for itself; returns the name of its value."""
    if any(axis.extent == 0 for axis in node.axes):
        return _nothing(node)
    total = scope.writer.name("total")
    scope.writer.line(f"{C_TYPES[node.dtype]} {total} = {_nothing(node)};")
    scope.hoist((node.body,))
    with over_elements(scope, (node,)) as at_element:
        at_element.hoist((node.body,))
        value = call_text(COMBINE[node.fn], node.dtype, (total, at_element.value(node.body)))
        scope.writer.line(f"{total} = {value};")
    return total


@contextmanager
def over_elements(scope: Scope, reductions: Sequence[Reduce]) -> Iterator[Scope]:
    """Loops over the elements of reductions along the same axes, one after the other, short strides innermost."""
    axes = ordered_axes(scope, reductions)
    is_short = math.prod(axis.extent for axis in axes) <= _ALL_UNROLLED
    with ExitStack() as stack:
        for axis in axes:
            if is_short or (axis is axes[-1] and axis.extent <= _UNROLLED):
                scope.writer.line("#pragma unroll")
            stack.enter_context(scope.writer.loop(axis.name, "0", str(axis.extent)))
            scope = scope.enter({axis: Position(axis.name)})
            scope.hoist(reduction.body for reduction in reductions)
        yield scope


def ordered_axes(scope: Scope, reductions: Sequence[Reduce]) -> tuple[Axis, ...]:
    """The axes of reductions, short strides innermost."""
    loads = [node for node in nodes(*(one.body for one in reductions)) if isinstance(node, Load)]
    return reduction_order(loads, reductions[0].axes, scope.operands.kernel.layouts)


def _nothing(node: Reduce) -> str:
    """The value of a reduction over no elements, in its type."""
    return f"({C_TYPES[node.dtype]}){literal(identity(node.fn, node.dtype), node.dtype)}"
