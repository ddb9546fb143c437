"""Loop nests: ranges, the fusion of neighbouring axes, and bounds that leave out the padding."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.codegen.scope import Operands, Position, Scope
from rammer.ir.expr import Axis, Expr, Load
from rammer.ir.region import Interval, interval_of
from rammer.tiling.addresses import Address, Linear, combine
from rammer.tiling.borders import Border


@dataclass(frozen=True, slots=True)
class Range:
    """C expressions for `lo <= i < hi`; `count` is their distance where it is always the same."""

    lo: str
    hi: str
    count: int | None = None

    @classmethod
    def whole(cls, extent: int) -> Range:
        """All of an axis."""
        return cls("0", str(extent), extent)

    def within(self, part: Interval, whole: Interval) -> Range:
        """Those of these points that are in a part of the whole axis."""
        if part == whole:
            return self
        if self.count == whole.extent:
            return Range(str(part.lo), str(part.hi), part.extent)
        return Range(f"rammer_max_i64({self.lo}, {part.lo})", f"rammer_min_i64({self.hi}, {part.hi})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """One loop over several axes that lie behind each other in memory, outermost first; mostly over one.

    The iterations of a loop over `lanes` may run at the same time.
    """

    axes: tuple[Axis, ...]
    range: Range
    lanes: bool = False

    @property
    def name(self) -> str:
        """The loop variable."""
        return self.axes[-1].name

    @property
    def positions(self) -> dict[Axis, Position]:
        """The innermost axis counts all points; in linear addresses the others may then stand at 0."""
        return {**{axis: Position("") for axis in self.axes}, self.axes[-1]: Position(self.name)}


@dataclass(frozen=True, slots=True)
class Runs:
    """An axis, cut where padding begins or ends; in the code for a run its number is `<axis>_run`."""

    axis: Axis
    parts: tuple[Interval, ...]

    @classmethod
    def cut(cls, axis: Axis, spans: Iterable[Interval]) -> Runs:
        """Cuts at both ends of each span."""
        cuts = {0, axis.extent, *(end for span in spans for end in span if 0 < end < axis.extent)}
        return cls(axis, tuple(Interval(*ends) for ends in itertools.pairwise(sorted(cuts))))

    def within(self, span: Interval) -> str:
        """Whether a run lies in a span that the axis has been cut for, in C: what its number tells."""
        numbers = [number for number, part in enumerate(self.parts) if span.contains(part)]
        if not numbers:
            return "0"
        tests = [f"{self.axis.name}_run >= {numbers[0]}"] if numbers[0] else []
        tests += [f"{self.axis.name}_run <= {numbers[-1]}"] if numbers[-1] + 1 < len(self.parts) else []
        return " && ".join(tests) or "1"

    def loop(self, scope: Scope, loop: Loop, told: Mapping[Border, str], body: Callable[[Scope], None]) -> None:
        """A loop over the axis, run by run; `body` is written once, where `told` says what is no padding."""
        writer, name = scope.writer, f"AT_{self.axis.name.upper()}"
        writer.include("runs.h")
        with writer.macro(name):
            body(scope.enter(loop.positions, told=told))
        for number, part in enumerate(self.parts):
            bounds = loop.range.within(part, Interval(0, self.axis.extent))
            writer.line(f"RAMMER_RUN({loop.name}, {number}, {bounds.lo}, {bounds.hi}, {name})")
        writer.undefine(name)


def nest(scope: Scope, loops: Sequence[Loop], roots: Sequence[Expr], body: Callable[[Scope], None]) -> None:
    """Loops around `body`; what `roots` need is written as far outside as it can be."""
    scope.hoist(roots)
    if not loops:
        body(scope)
        return
    first, *rest = loops
    with scope.writer.loop(first.name, first.range.lo, first.range.hi, lanes=first.lanes):
        nest(scope.enter(first.positions), rest, roots, body)


def fused(loops: Sequence[Loop], operands: Operands, roots: Sequence[Expr]) -> tuple[Loop, ...]:
    """Join neighbouring loops where every address steps from the end of the inner to the next of the outer one.

    Args:
        loops: outermost first. A loop can only be joined to an outer one if it runs whole.
        operands: the rKernel's; its stores count if `roots` are its results.
        roots: what is computed inside. An axis whose own value is used stays alone.
    """
    inside = operands.reach(roots)
    places = [operands.loads[node] for node in inside if isinstance(node, Load)]
    if set(roots) >= set(operands.results):
        places += operands.stores
    used = frozenset(node for node in inside if isinstance(node, Axis))
    result: list[Loop] = []
    for loop in loops:
        if result and _continues(result[-1].axes[-1], loop, places, used):
            outer = result.pop()
            result.append(_join(outer, loop))
        else:
            result.append(loop)
    return tuple(result)


def _continues(outer: Axis, loop: Loop, addresses: Sequence[Address], used: frozenset[Axis]) -> bool:
    (axis,) = loop.axes
    if loop.range.count != axis.extent or axis in used or outer in used:
        return False
    return all(
        address.is_linear_in(outer)
        and address.is_linear_in(axis)
        and address.form.coefficient(outer) == address.form.coefficient(axis) * axis.extent
        for address in addresses
    )


def _join(outer: Loop, inner: Loop) -> Loop:
    extent = inner.axes[0].extent
    count = outer.range.count
    fused_range = Range(
        _scaled(outer.range.lo, extent), _scaled(outer.range.hi, extent), None if count is None else count * extent
    )
    return Loop(axes=(*outer.axes, *inner.axes), range=fused_range, lanes=inner.lanes)


def _scaled(text: str, factor: int) -> str:
    return str(int(text) * factor) if text.isdecimal() else f"{text} * {factor}"


def within(scope: Scope, axis: Axis, bounds: Range, borders: Iterable[Border]) -> Range:
    """The part of `bounds` in which no border is crossed; all other axes of the borders have a position in `scope`."""
    lows, highs = {bounds.lo: None}, {bounds.hi: None}
    for border in borders:
        low, high = _inside(scope, axis, border)
        lows.update(dict.fromkeys(low))
        highs.update(dict.fromkeys(high))
    if len(lows) == len(highs) == 1:
        return bounds
    name = scope.writer.name(f"{axis.name}_within")
    return Range(
        _bound(scope, f"{name}_lo", "rammer_max_i64", tuple(lows)),
        _bound(scope, f"{name}_hi", "rammer_min_i64", tuple(highs)),
    )


def _bound(scope: Scope, name: str, function: str, texts: Sequence[str]) -> str:
    first, *others = texts
    if not others:
        return first
    text = first
    for other in others:
        text = f"{function}({text}, {other})"
    return scope.writer.let("int64_t", name, text)


def _inside(scope: Scope, axis: Axis, border: Border) -> tuple[list[str], list[str]]:
    """Lower and upper bounds of `axis` where `0 <= step * axis + rest < extent`, as far as they can matter."""
    step = border.form.coefficient(axis)
    rest = Linear(tuple(term for term in border.form.terms if term[0] is not axis), border.form.offset)
    span = interval_of(border.load.indices[border.dim], {})
    below, above = span is None or span.lo < 0, span is None or span.hi > border.extent
    to_end = combine(Linear((), border.extent - 1), rest, -1)  # extent - 1 - rest
    to_start = combine(Linear((), 0), rest, -1)
    if step > 0:
        # ceil(-rest / step) and floor((extent - 1 - rest) / step) + 1
        low = scope.linear(to_start) if step == 1 else f"-{_floor(scope, rest, step)}"
        high = scope.linear(_plus_one(to_end)) if step == 1 else f"{_floor(scope, to_end, step)} + 1"
        return [low] if below else [], [high] if above else []
    # floor((rest - extent) / |step|) + 1 and floor(rest / |step|) + 1
    from_end = combine(Linear((), -border.extent), rest, 1)
    low, high = (f"{_floor(scope, form, -step)} + 1" for form in (from_end, rest))
    return [low] if above else [], [high] if below else []


def _plus_one(form: Linear) -> Linear:
    return Linear(form.terms, form.offset + 1)


def _floor(scope: Scope, form: Linear, step: int) -> str:
    return f"rammer_floordiv_i64({scope.linear(form)}, {step})"
