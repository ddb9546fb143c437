"""Short reductions over windows: which of their taps lie inside is settled when the code is written.

A loop is cut into runs of positions at which the same taps lie inside of the padded operand. Each run has code of its
own for just these, so nothing is tested, and partial results stay in registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.codegen.scope import Scope
from rammer.devices.cpu.emit.nest import Loop, parts_of
from rammer.ir.expr import Axis, Expr, Reduce
from rammer.ir.region import Interval
from rammer.tiling.borders import Border

MAX_TAPS = 25
_MAX_LINES = 256  # of taps, in all runs together


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Borders that are settled where each axis in `starts` is in a run that begins there."""

    borders: tuple[Border, ...]
    starts: Mapping[Axis, int]

    def inside(self, tap: Mapping[Axis, int], borders: Sequence[Border]) -> bool:
        """Whether a tap crosses none of those of `borders` that are settled."""
        return all(border.inside({**self.starts, **tap}) for border in borders if border in self.borders)


def settle(
    scope: Scope,
    loops: Sequence[Loop],
    found: Mapping[Reduce, Sequence[Border]],
    roots: Sequence[Expr],
    body: Callable[[Scope, Settled], None],
) -> None:
    """Loops around `body`, run by run, if the borders `found` of reductions are worth it.

    What `roots` need is written as far outside as it can be.
    """
    axes = {axis: loop for loop in loops for axis in loop.axes}
    pairs = [(border, node) for node, of_node in found.items() for border in of_node]
    # All or none: reductions share borders, and a loop that one border needs hides the taps of the others.
    all_are = all(_is_settled(border, node, axes) for border, node in pairs)
    borders = [border for border, _ in pairs] if all_are else []
    runs = {axis: _runs(axis, [border for border in borders if axis in border.axes]) for axis in axes}
    taps = sum(math.prod(axis.extent for axis in node.axes) for node in found)
    if taps * math.prod(len(parts) for parts in runs.values()) > _MAX_LINES:
        borders, runs = [], {axis: (Interval(0, axis.extent),) for axis in axes}

    def nest(outside: Scope, rest: Sequence[Loop], starts: Mapping[Axis, int]) -> None:
        outside.hoist(roots)
        if not rest:
            body(outside, Settled(borders=tuple(borders), starts=starts))
            return
        (axis,) = rest[0].axes
        for run in runs[axis]:
            bounds = rest[0].range.within(run, Interval(0, axis.extent))
            with outside.writer.loop(rest[0].name, bounds.lo, bounds.hi):
                nest(outside.enter(rest[0].positions), rest[1:], {**starts, axis: run.lo})

    nest(scope, loops, {})


def _is_settled(border: Border, node: Reduce, axes: Mapping[Axis, Loop]) -> bool:
    """Whether a border depends on few taps and on one loop."""
    taps = math.prod(axis.extent for axis in node.axes)
    others = [axis for axis in border.axes if axis not in node.axes]
    return taps <= MAX_TAPS and len(others) == 1 and others[0] in axes


def _runs(axis: Axis, borders: Sequence[Border]) -> tuple[Interval, ...]:
    """The parts of an axis in which no tap crosses a border that it does not cross at the part's beginning."""
    spans = []
    for border in borders:
        others = [other for other in border.axes if other is not axis]
        for point in itertools.product(*(range(other.extent) for other in others)):
            spans.append(border.span(axis, dict(zip(others, point, strict=True))))
    return parts_of(axis, spans)
