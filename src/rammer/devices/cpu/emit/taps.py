"""Short reductions over windows: which of their taps lie inside is settled when the code is written.

A loop is cut into runs of positions at which the same taps lie inside of the padded operand (`skeletons/runs.h`). For
each run just these are compiled, so nothing is tested, and partial results stay in registers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.codegen.scope import Scope
from rammer.devices.cpu.emit.nest import Loop, Runs
from rammer.ir.expr import Axis, Expr, Reduce
from rammer.tiling.borders import Border

MAX_TAPS = 25
_MAX_TAPS_COMPILED = 256  # in all runs together


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """Borders that are settled by the runs of axes."""

    borders: tuple[Border, ...]
    runs: Mapping[Axis, Runs]

    def told(self, tap: Mapping[Axis, int], borders: Sequence[Border]) -> dict[Border, str]:
        """Of those of `borders` that are settled, whether a tap does not cross them, in C."""
        texts = {}
        for border in borders:
            if border in self.borders:
                (axis,) = (axis for axis in border.axes if axis in self.runs)
                texts[border] = self.runs[axis].within(border.span(axis, tap))
        return texts


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
    if taps * math.prod(len(of_axis.parts) for of_axis in runs.values()) > _MAX_TAPS_COMPILED:
        borders, runs = [], {}
    settled = Settled(borders=tuple(borders), runs=runs)

    def nest(outside: Scope, rest: Sequence[Loop]) -> None:
        outside.hoist(roots)
        if not rest:
            body(outside, settled)
            return
        first, *others = rest
        (axis,) = first.axes
        if axis in runs and len(runs[axis].parts) > 1:
            runs[axis].loop(outside, first, {}, lambda inside: nest(inside, others))
            return
        with outside.writer.loop(first.name, first.range.lo, first.range.hi):
            nest(outside.enter(first.positions), others)

    nest(scope, loops)


def _is_settled(border: Border, node: Reduce, axes: Mapping[Axis, Loop]) -> bool:
    """Whether a border depends on few taps and on one loop."""
    taps = math.prod(axis.extent for axis in node.axes)
    others = [axis for axis in border.axes if axis not in node.axes]
    return taps <= MAX_TAPS and len(others) == 1 and others[0] in axes


def _runs(axis: Axis, borders: Sequence[Border]) -> Runs:
    """The parts of an axis in which no tap crosses a border that it does not cross at the part's beginning."""
    spans = []
    for border in borders:
        others = [other for other in border.axes if other is not axis]
        for point in itertools.product(*(range(other.extent) for other in others)):
            spans.append(border.span(axis, dict(zip(others, point, strict=True))))
    return Runs.cut(axis, spans)
