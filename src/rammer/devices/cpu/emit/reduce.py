"""The skeleton `reduce`: any expression with reductions.

A reduction is computed once for all points that share it, in loops outside of theirs. Partial results lie side by
side in a small array that loops over lanes update, in one of two ways:

- *across* the lane axis: a strip of it is reduced together, each lane its own point (pooling, sums over rows); the
  taps of a short window are written one by one, those in the padding left out;
- *along* the reduction: lanes take turns at the elements and are combined at the end (softmax, averages over planes).
  Costly elements that the results take again (the exponentials of a softmax) are kept in an array.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rammer.devices.codegen.scalar import C_TYPES, COMBINE, call_text, literal
from rammer.devices.codegen.scope import Position, Scope, Staged
from rammer.devices.cpu.emit.nest import Loop, Range, fused, nest, within
from rammer.devices.cpu.emit.parameters import parameters
from rammer.devices.cpu.emit.stage import Window, emit_window, window_of
from rammer.devices.cpu.emit.taps import MAX_TAPS, Settled, settle
from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Call, Load, Reduce, ScalarFn, nodes, substitute
from rammer.tiling.addresses import Address, Linear
from rammer.tiling.borders import Border, borders
from rammer.tiling.pattern import reduction_order

# Vectors of partial results: several, so that one result does not wait for the one before.
_STRIP_VECTORS = 4
# From so many vectors of elements on these are worth it; a part of a vector has so many lanes at least.
_LONG_VECTORS = 48
_LEAST_LANES = 4
_MAX_WINDOW_BYTES = 40 << 10
_MAX_KEPT_BYTES = 8 << 10
_COSTLY = frozenset({ScalarFn.EXP, ScalarFn.TANH, ScalarFn.ERF, ScalarFn.SIGMOID, ScalarFn.LOG, ScalarFn.POW})

_AtLane = Callable[[Scope], Scope]


def emit_reduce(scope: Scope, ranges: Mapping[Axis, Range]) -> None:
    """Write the loops over one rTask: axes that reductions depend on, reductions, then the other axes."""
    kernel, free = scope.operands.kernel, scope.operands.free
    axes, results = kernel.expr.axes, scope.operands.results
    lane = axes[kernel.tile.lane] if kernel.tile.lane is not None else None
    shared = [reduction for reduction in kernel.expr.reductions if free[reduction] <= frozenset(axes)]
    uses = {axis: sum(axis in free[reduction] for reduction in shared) for axis in axes}
    across = [] if lane is None else [reduction for reduction in shared if lane in free[reduction]]
    padded = [] if lane is None else _padded_along(scope, lane, across)
    along = frozenset[Axis]().union(*(_padded_axes(scope, load) for load in padded))
    outer = [axis for axis in axes if uses[axis] and axis is not lane]
    outer.sort(key=lambda axis: (-uses[axis], axis in along))
    inner = [Loop(axes=(axis,), range=ranges[axis]) for axis in axes if not uses[axis] and axis is not lane]

    def rest(inside: Scope, settled: Settled) -> None:
        if lane is None:
            nest(inside, inner, results, Scope.store_results)
        elif uses[lane]:
            _emit_strips(inside, lane, ranges[lane], across, settled, inner)
        else:
            lanes = Loop(axes=(lane,), range=ranges[lane], lanes=True)
            nest(inside, [*inner, lanes], results, Scope.store_results)

    loops = [Loop(axes=(axis,), range=ranges[axis]) for axis in outer]
    depth, windows = _windows(scope, padded, lane, outer, ranges)

    def staged(inside: Scope) -> None:
        for window in windows:
            emit_window(inside, window)
        settle(inside, loops[depth:], {r: _borders_across(inside, r, lane) for r in across}, results, rest)

    nest(scope, loops[:depth], results, staged)


def _padded_along(scope: Scope, lane: Axis, reductions: Sequence[Reduce]) -> list[Load]:
    """The loads in `reductions` that may leave their operand along the lane axis."""
    loads = [node for node in nodes(*reductions) if isinstance(node, Load)]
    return [
        load
        for load in loads
        if any(check.form.coefficient(lane) for check in scope.operands.loads[load].checks)
        and scope.operands.kernel.layouts[load.slot].panel is None
    ]


def _padded_axes(scope: Scope, load: Load) -> frozenset[Axis]:
    """The axes that move a load along dimensions it may leave."""
    forms = [check.form for check in scope.operands.loads[load].checks]
    return frozenset(atom for form in forms for atom, _ in form.terms if isinstance(atom, Axis))


def _windows(
    scope: Scope, padded: Sequence[Load], lane: Axis | None, outer: Sequence[Axis], ranges: Mapping[Axis, Range]
) -> tuple[int, list[Window]]:
    """How many of the outer loops stand around the copies of padded operands, as few as their size allows."""
    kernel = scope.operands.kernel
    lengths = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    summed = {axis: (Range.whole(axis.extent), axis.extent) for axis in kernel.expr.reduce_axes}
    for depth in range(len(outer) + 1):
        running = [*outer[depth:], *(() if lane is None else (lane,))]
        spans = {**{axis: (ranges[axis], lengths[axis]) for axis in running}, **summed}
        windows = [window for load in padded if (window := window_of(load, spans)) is not None]
        if sum(window.nbytes for window in windows) <= _MAX_WINDOW_BYTES:
            return depth, windows
    return len(outer), []


def _emit_strips(
    scope: Scope, lane: Axis, bounds: Range, reductions: Sequence[Reduce], settled: Settled, inner: Sequence[Loop]
) -> None:
    """Reduce a strip of the lane axis at a time, then run the other axes over it."""
    width = min(_STRIP_VECTORS * scope.operands.kernel.form.vector, bounds.count or lane.extent)
    for strips in _strips(bounds, width):
        start = f"{lane.name}_strip"
        with scope.writer.loop(start, strips.lo, strips.hi, width):
            if strips.count is None:
                end = f"rammer_min_i64({start} + {width}, {strips.hi})"
                strip = Range(start, scope.writer.let("int64_t", f"{lane.name}_past", end))
            else:
                count = min(width, strips.count)
                strip = Range(start, f"{start} + {count}", count)
            _emit_strip(scope.enter({}), lane, strip, width, reductions, settled, inner)


def _strips(bounds: Range, width: int) -> Iterator[Range]:
    """Points that are strips of `width`, and those that are a narrower one; all where their number is not known."""
    if bounds.count is None or bounds.count % width == 0:
        yield bounds
        return
    rest = bounds.count % width
    whole = bounds.count - rest
    if whole:
        yield Range(bounds.lo, f"{bounds.lo} + {whole}", whole)
    yield Range(f"{bounds.lo} + {whole}", bounds.hi, rest)


def _emit_strip(
    scope: Scope,
    lane: Axis,
    strip: Range,
    width: int,
    reductions: Sequence[Reduce],
    settled: Settled,
    inner: Sequence[Loop],
) -> None:
    arrays: dict[Reduce, str] = {}

    def at_lane(outside: Scope) -> Scope:
        point = outside.enter({lane: Position(lane.name)})
        for reduction, array in arrays.items():
            point.bind(reduction, f"{array}[{lane.name} - {strip.lo}]")
        return point

    for reduction in reductions:
        arrays[reduction] = _fold_across(scope, reduction, lane, strip, width, settled, at_lane)

    def points(inside: Scope) -> None:
        with _over_lanes(inside, lane, strip):
            at_lane(inside).store_results()

    nest(scope, inner, scope.operands.results, points)


@contextmanager
def _over_lanes(scope: Scope, lane: Axis, strip: Range) -> Iterator[None]:
    """A loop over the lanes of a strip.

    Where their number is known it counts from 0: gcc then sees which partial results are which, and keeps them in
    registers.
    """
    writer = scope.writer
    if strip.count is None:
        with writer.loop(lane.name, strip.lo, strip.hi, lanes=True):
            yield
        return
    place = f"{lane.name}_lane"
    with writer.loop(place, "0", str(strip.count), lanes=True):
        writer.let("int64_t", lane.name, f"{strip.lo} + {place}")
        yield


def fold(scope: Scope, node: Reduce) -> str:
    """Write a reduction of which `scope` knows all spatial axes; returns the name of its value."""
    kernel = scope.operands.kernel
    if kernel.tile.lane is not None and kernel.expr.axes[kernel.tile.lane] in scope.positions and not _is_empty(node):
        return _fold_plain(scope, node, fused(_loops(scope, node), scope.operands, (node.body,)))
    return fold_outside_lanes(scope, node)


def fold_outside_lanes(scope: Scope, node: Reduce) -> str:
    """As `fold`, where no axis runs along lanes, so that the reduction may."""
    if _is_empty(node):
        return literal(identity(node.fn, node.dtype), node.dtype)
    kernel = scope.operands.kernel
    loops = fused(_loops(scope, node), scope.operands, (node.body,))
    longest = loops[-1].range.count or 0
    width = _lanes_along(longest, kernel.form.vector)
    if longest < 2 * kernel.form.vector and any(axis in scope.positions for axis in kernel.expr.reduce_axes):
        width = 1  # the loop of another reduction around it runs along lanes
    return _fold_plain(scope, node, loops) if width == 1 else _fold_along(scope, node, loops, width)


def _lanes_along(count: int, vector: int) -> int:
    """How many lanes take turns at so many elements; 1 where they are taken one by one.

    Several vectors only where each has many turns, for what is left over costs more than it gains. Less than two
    vectors of elements are taken by a half or a quarter of one.
    """
    if count >= _LONG_VECTORS * vector:
        return _STRIP_VECTORS * vector
    if count >= 2 * vector:
        return vector
    return next((lanes for lanes in (vector // 2, vector // 4) if lanes >= _LEAST_LANES and count >= 2 * lanes), 1)


def _is_empty(node: Reduce) -> bool:
    return any(axis.extent == 0 for axis in node.axes)


def _loops(scope: Scope, node: Reduce) -> list[Loop]:
    """The loops over a reduction's axes, short strides innermost."""
    loads = [load for load in nodes(node.body) if isinstance(load, Load)]
    order = reduction_order(loads, node.axes, scope.operands.kernel.layouts)
    return [Loop(axes=(axis,), range=Range.whole(axis.extent)) for axis in order]


def _borders(scope: Scope, node: Reduce) -> tuple[Border, ...]:
    found = borders([node], scope.operands.kernel.expr.inputs)
    return tuple(border for border in found if not scope.is_staged(border.load))


def _borders_across(scope: Scope, node: Reduce, lane: Axis | None) -> list[Border]:
    return [border for border in _borders(scope, node) if lane not in border.axes]


def _fold_plain(scope: Scope, node: Reduce, loops: Sequence[Loop]) -> str:
    """One element after the other."""
    writer = scope.writer
    total = writer.name("total")
    writer.line(f"{C_TYPES[node.dtype]} {total} = {literal(identity(node.fn, node.dtype), node.dtype)};")
    _reduce_nest(scope, node, loops, _borders(scope, node), lambda inside: _accumulate(inside, node, total))
    return total


def _fold_along(scope: Scope, node: Reduce, loops: Sequence[Loop], width: int) -> str:
    """Lane i takes the elements i, i + width, ... of the innermost loop; then the lanes are folded in halves."""
    writer = scope.writer
    *outer, along = loops
    skipped = _borders(scope, node)
    crossed = [border for border in skipped if any(axis in border.axes for axis in along.axes)]
    lanes = _lane_array(scope, node, width)
    kept = _keep(scope, node)

    def run(inside: Scope) -> None:
        bounds, name = within(inside, along.axes[-1], along.range, crossed), writer.name("TAKE")
        with parameters(writer) as given:
            given.statements(name, lambda: take(inside))
            if bounds.count is None:
                writer.line(f"RAMMER_BY_TURNS_WITHIN({along.name}, {bounds.lo}, {bounds.hi}, {width}, {name})")
            else:
                rest = "_AND_REST" if bounds.count % width else ""
                turns = "TURNS" if width > scope.operands.kernel.form.vector else "VECTORS"
                writer.line(f"RAMMER_BY_{turns}{rest}({along.name}, {bounds.count}, {width}, {name})")

    def take(inside: Scope) -> None:
        point = inside.enter(along.positions, crossed)
        if kept is not None:
            writer.line(f"{kept}[{along.name}] = {point.value(node.body)};")
        _accumulate(point, node, f"{lanes}[{along.name} - {along.name}_turn]")

    _reduce_nest(scope, node, outer, [border for border in skipped if border not in crossed], run)
    writer.line(f"RAMMER_FOLD({lanes}, {width}, a, b, {_combined(node, 'a', 'b')})")
    return f"{lanes}[0]"


def _keep(scope: Scope, node: Reduce) -> str | None:
    """An array for the elements of a reduction, if they cost much and the results take each of them again."""
    (axis, *others), body = node.axes, node.body
    if others or _borders(scope, node) or body.dtype.itemsize_bytes * axis.extent > _MAX_KEPT_BYTES:
        return None
    if not any(isinstance(part, Call) and part.fn in _COSTLY for part in nodes(body)):
        return None
    again = scope.operands.reach(scope.operands.results)
    for other in scope.operands.kernel.expr.axes:
        (value,) = substitute((body,), {axis: other})
        if other.extent == axis.extent and other not in scope.operands.free[node] and value in again:
            array = scope.writer.name("kept")
            scope.writer.line(f"{C_TYPES[body.dtype]} {array}[{axis.extent}];")
            place = Address(form=Linear(((other, 1),), 0), parts=(), checks=())
            scope.stage(value, Staged(array=array, base="", address=place))
            return array
    return None


def _fold_across(
    scope: Scope, node: Reduce, lane: Axis, strip: Range, width: int, settled: Settled, at_lane: _AtLane
) -> str:
    """Write a reduction for every lane of a strip; returns the name of the array.

    The taps of a window are unrolled, so that partial results stay in registers.
    """
    writer = scope.writer
    if _is_empty(node):
        return _lane_array(scope, node, width)
    found = _borders_across(scope, node, lane)
    skipped = [border for border in found if border not in settled.borders]
    loops = _loops(scope, node)
    unrolled = _unrolled([loop.axes[0] for loop in loops], skipped)
    looped = [loop for loop in loops if loop.axes[0] not in unrolled]
    lanes = _lane_array(scope, node, width, filled=bool(looped))
    taps = [dict(zip(unrolled, tap, strict=True)) for tap in itertools.product(*(range(a.extent) for a in unrolled))]

    def run(inside: Scope) -> None:
        points: list[tuple[str, Scope]] = []
        for tap in taps:
            told = settled.told(tap, found)
            condition = " && ".join(dict.fromkeys(text for text in told.values() if text != "1"))
            if "0" not in told.values():
                points.append((condition, inside.enter({axis: Position("", i) for axis, i in tap.items()}, told=told)))
                points[-1][1].hoist((node.body,))
        with _over_lanes(inside, lane, strip):
            element = f"{lanes}[{lane.name} - {strip.lo}]"
            total = writer.name("total")
            first = element if looped else literal(identity(node.fn, node.dtype), node.dtype)
            writer.line(f"{C_TYPES[node.dtype]} {total} = {first};")
            for condition, outside in points:
                point = at_lane(outside.enter({}, settled.borders))
                if not condition:
                    _accumulate(point, node, total)
                    continue
                # Not an `if`: of an expression compilers drop what a run does not have before they do anything else.
                with writer.block(f"{total} = {condition} ? (", tail=f") : {total};"):
                    writer.line(f"{_combined(node, total, point.value(node.body))};")
            writer.line(f"{element} = {total};")

    _reduce_nest(scope, node, looped, skipped, run)
    return lanes


def _unrolled(axes: Sequence[Axis], skipped: Sequence[Border]) -> tuple[Axis, ...]:
    """The innermost reduction axes that have few points together, up to one whose loop is cut short at a border."""
    unrolled: list[Axis] = []
    points = 1
    for axis in reversed(axes):
        points *= axis.extent
        if points > MAX_TAPS or any(axis in border.axes for border in skipped):
            break
        unrolled.insert(0, axis)
    return tuple(unrolled)


def _reduce_nest(
    scope: Scope, node: Reduce, loops: Sequence[Loop], skipped: Sequence[Border], body: Callable[[Scope], None]
) -> None:
    """Loops over a reduction's axes, bounded so that no border in `skipped` is crossed."""
    scope.hoist((node.body,))
    if not loops:
        body(scope)
        return
    first, *rest = loops
    later = [axis for loop in rest for axis in loop.axes]
    crossed = [b for b in skipped if first.axes[-1] in b.axes and not any(axis in b.axes for axis in later)]
    bounds = within(scope, first.axes[-1], first.range, crossed)
    with scope.writer.loop(first.name, bounds.lo, bounds.hi):
        _reduce_nest(scope.enter(first.positions, crossed), node, rest, skipped, body)


def _lane_array(scope: Scope, node: Reduce, width: int, *, filled: bool = True) -> str:
    """An array of partial results; where it is `filled`, each is the identity."""
    writer = scope.writer
    writer.include("reduce.h")
    name, type_ = writer.name("lanes"), C_TYPES[node.dtype]
    if filled:
        first = literal(identity(node.fn, node.dtype), node.dtype)
        writer.line(f"RAMMER_PARTIAL_RESULTS({type_}, {name}, {width}, {first})")
    else:
        writer.line(f"{type_} {name}[{width}];")
    return name


def _accumulate(point: Scope, node: Reduce, target: str) -> None:
    point.writer.line(f"{target} = {_combined(node, target, point.value(node.body))};")


def _combined(node: Reduce, a: str, b: str) -> str:
    return call_text(COMBINE[node.fn], node.dtype, (a, b))
