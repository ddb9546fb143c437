"""What the busiest thread of a block does for an rTask that is no product in tiles.

It follows the loops of the skeletons `map`, `reduce` and `gemv` as they are emitted: what does not change in a loop is
computed before it, all else as often as the loops around it run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rammer.devices.cuda.tiling.instructions import instructions_of
from rammer.devices.cuda.tiling.lines import LINE_BYTES, Positions, positions, slot_bytes, touched_lines
from rammer.ir.expr import Axis, Expr, Load, Reduce, TensorExpr, nodes
from rammer.ir.kernel_form import GemvForm, MapForm, ReduceForm
from rammer.ir.task import RKernel
from rammer.tiling.addresses import Accesses, accesses_of
from rammer.tiling.gemm import WARP
from rammer.tiling.pattern import choices, chosen_axes, contraction, reduction_order
from rammer.tiling.rows import Rows, by_rows, outer_reductions, phases, rows_of

_Sides = Sequence[tuple[Axis, int]]
"""Axes with their sizes in a tile, the fastest first."""

# Instructions: for the position along an axis from the number of a point, for a loop's turn, for an access and for each
# check of one.
_DECODE, _TURN, _ACCESS, _CHECK = 5, 6, 3, 3
_EXCHANGED = 2  # a value
# Loops that the compiler unrolls whole, or by so much: loads of so many elements are in flight together.
_UNROLLED_WHOLE, _UNROLLED_AXIS, _UNROLLED = 16, 8, 4
_GEMV_REGISTERS = 96  # of a thread, for what it loads
_REGISTER_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadWork:
    """What the busiest thread does, and its block.

    Attributes:
        threads: of the block that are busy.
        waits: for memory, one after the other.
        instructions: but for exchanges and barriers.
        exchanges: with other threads of the warp, one after the other.
        barriers: of a block or a part of it.
        found: lines that all warps ask for, load by load.
        missed: of these, and of lines that are stored, those that the first level of the cache has not.
    """

    threads: int
    waits: float
    instructions: float
    exchanges: float
    barriers: float
    found: float
    missed: float


def thread_work(kernel: RKernel, cache_bytes: int) -> ThreadWork:
    """What the busiest thread does for a full rTask; the operands of one are found again if they take `cache_bytes`.

    Raises:
        ValueError: the rKernel is a product in tiles, or keeps its weights.
    """
    match kernel.form:
        case MapForm():
            return _of_map(kernel, kernel.form, cache_bytes)
        case GemvForm():
            return _of_gemv(kernel, kernel.form, cache_bytes)
        case ReduceForm():
            lane, (_, used) = kernel.tile.lane, outer_reductions(kernel.expr)
            if lane is not None and kernel.expr.axes[lane] in used:
                return _of_columns(kernel, kernel.form, cache_bytes)
            return _of_rows(kernel, kernel.form, cache_bytes)
    raise ValueError(f"its threads do not work each for itself: {kernel.form}")


@dataclass(slots=True)
class _Count:
    """Adds up what is computed, loaded and stored; the threads of a warp stand at `at`."""

    kernel: RKernel
    accesses: Accesses
    at: Positions
    instructions: float = 0
    stored: float = 0
    asked: dict[int, float] = field(default_factory=dict)

    def value(self, node: Expr, times: float, along: Axis | None, vector: int) -> None:
        """A value that is computed so many times for all `vector` elements along an axis, or for each of them."""
        together = 1
        if along in self.accesses.free[node] and vector > 1:
            if isinstance(node, Load) and self._is_vector(node, along, vector):
                together = vector
            else:
                times *= vector
        match node:
            case Load():
                address = self.accesses.loads[node]
                self.instructions += times * (_ACCESS + _CHECK * len(address.checks) + 2 * len(address.parts))
                layout, element_bytes = self.accesses.layouts[node.slot], node.dtype.itemsize_bytes
                lines = touched_lines(node.indices, layout, element_bytes, together, self.at)
                self.asked[node.slot] = self.asked.get(node.slot, 0.0) + times * lines
            case _:
                self.instructions += times * instructions_of(node)

    def store(self, times: float, along: Axis | None, vector: int) -> None:
        """The outputs of so many vectors of points."""
        expr = self.accesses.expr
        for number, output in enumerate(expr.outputs):
            together = along is not None and self.accesses.stores_vectors(number, along, vector, self.kernel.alignments)
            stores = times * (1 if together else vector)
            converted = vector * times if output.body.dtype is not output.type.dtype else 0
            layout = self.accesses.layouts[len(expr.inputs) + number]
            width, element_bytes = vector if together else 1, output.type.dtype.itemsize_bytes
            self.instructions += stores * _ACCESS + converted
            self.stored += stores * touched_lines(output.indices, layout, element_bytes, width, self.at)

    def decode(self, times: float, sides: _Sides) -> None:
        """Positions along sides, from a number."""
        self.instructions += times * (_TURN + _DECODE * sum(size > 1 for _, size in sides[1:]))

    def work(
        self, threads: int, waits: float, exchanges: float = 0, barriers: float = 0, *, cache_bytes: int
    ) -> ThreadWork:
        """All of it, by so many threads."""
        warps = threads / WARP
        lines = [bytes_ / LINE_BYTES for bytes_ in slot_bytes(self.kernel, self.kernel.tile.task, LINE_BYTES)]
        is_kept = sum(lines[slot] for slot in self.asked) * LINE_BYTES <= cache_bytes
        asked = {slot: times * warps for slot, times in self.asked.items()}
        missed = sum(min(times, lines[slot]) if is_kept else times for slot, times in asked.items())
        return ThreadWork(
            threads=threads,
            waits=waits,
            instructions=self.instructions,
            exchanges=exchanges,
            barriers=barriers,
            found=sum(asked.values()),
            missed=missed + self.stored * warps,
        )

    def _is_vector(self, load: Load, along: Axis, vector: int) -> bool:
        return self.accesses.loads_vectors(load, along, vector, self.kernel.alignments)


def _sides(kernel: RKernel) -> _Sides:
    """As threads take them (`emit.points.lane_first`)."""
    sizes = [(axis, min(size, axis.extent)) for axis, size in zip(kernel.expr.axes, kernel.tile.task, strict=True)]
    lane = [] if kernel.tile.lane is None else [sizes[kernel.tile.lane]]
    return [*lane, *(side for side in reversed(sizes) if side not in lane)]


def _count_of(sides: _Sides) -> int:
    return math.prod(size for _, size in sides)


def _depth(roots: Iterable[Expr]) -> int:
    """Loads that wait for each other, at most."""
    depth: dict[Expr, int] = {}
    roots = tuple(roots)
    for node in nodes(*roots):
        below = max((depth[child] for child in node.children), default=0)
        depth[node] = below + 1 if isinstance(node, Load) else below
    return max((depth[root] for root in roots), default=0)


def _of_map(kernel: RKernel, form: MapForm, cache_bytes: int) -> ThreadWork:
    expr, accesses = kernel.expr, accesses_of(kernel.expr, kernel.layouts)
    whole = {axis for axis, size in zip(expr.axes, kernel.tile.task, strict=True) if size == axis.extent}
    chosen = [axis for axis in chosen_axes(expr) if axis in whole]
    free_choices = choices(expr) if chosen else frozenset[Expr]()
    sides = [side for side in _sides(kernel) if side[0] not in chosen]
    along = sides[0][0] if sides else None
    vectors = -(-_count_of(sides) // form.vector)
    own = -(-vectors // form.threads)
    count = _Count(kernel, accesses, positions(sides, form.vector))
    for node in accesses.reach(accesses.results):
        if node not in free_choices:
            free = accesses.free[node]
            points = math.prod(axis.extent for axis in chosen if axis in free)
            count.value(node, (own if free else 1) * points, along, form.vector)
    count.store(own * math.prod(axis.extent for axis in chosen), along, form.vector)
    count.decode(own, sides)
    waits = -(-own // form.turns) * _depth(accesses.results)
    return count.work(min(form.threads, vectors), waits, cache_bytes=cache_bytes)


def _order(accesses: Accesses, reduction: Reduce) -> tuple[Axis, ...]:
    loads = [node for node in nodes(reduction.body) if isinstance(node, Load)]
    return reduction_order(loads, reduction.axes, accesses.layouts)


def _turns(accesses: Accesses, reductions: Iterable[Reduce]) -> dict[Axis, int]:
    """How often the body of the loop along each axis runs, of reductions that a thread folds loop by loop."""
    turns: dict[Axis, int] = {}
    for reduction in reductions:
        total = 1
        for axis in _order(accesses, reduction):
            total *= axis.extent
            turns[axis] = total
    return turns


def _loops(free: Collection[Axis], expr: TensorExpr, turns: Mapping[Axis, int]) -> int:
    """How often a value is computed in all the reductions whose elements it depends on."""
    inner = [[turns[axis] for axis in one.axes if axis in free and axis in turns] for one in expr.reductions]
    return math.prod(max(found) for found in inner if found)


def _fold_waits(accesses: Accesses, reduction: Reduce) -> float:
    """Waits of a thread that folds all elements of a reduction: the compiler unrolls short loops."""
    order = _order(accesses, reduction)
    elements = math.prod(axis.extent for axis in order)
    if elements <= _UNROLLED_WHOLE:
        return 1
    last = order[-1].extent
    return elements / (last if last <= _UNROLLED_AXIS else _UNROLLED)


def _of_columns(kernel: RKernel, form: ReduceForm, cache_bytes: int) -> ThreadWork:
    expr, accesses = kernel.expr, accesses_of(kernel.expr, kernel.layouts)
    reductions, used = outer_reductions(expr)
    outer = [side for side in _sides(kernel) if side[0] in used]
    inner = [side for side in _sides(kernel) if side[0] not in used]
    along, across = outer[0][0], form.threads // form.team
    vectors = -(-_count_of(outer) // form.vector)
    rounds, inner_turns = -(-vectors * form.team // form.threads), -(-_count_of(inner) // form.team)
    elements = [(axis, axis.extent) for axis in reversed(_order(accesses, reductions[0]))] if across < WARP else []
    at = {**positions(outer, form.vector, across), **positions(elements, apart=across)}
    count = _Count(kernel, accesses, at)
    turns = _turns(accesses, expr.reductions)
    for reduction in reductions if form.team > 1 else ():
        turns |= dict.fromkeys(reduction.axes, -(-_points(reduction) // form.team))
    inner_axes = {axis for axis, _ in inner}
    for node in accesses.reach(accesses.results):
        free = accesses.free[node]
        times = (rounds if free else 1) * _loops(free, expr, turns) * (inner_turns if free & inner_axes else 1)
        count.value(node, times, along, form.vector)
    waits = exchanges = barriers = 0.0
    for axes, members in phases(reductions):
        own = -(-_points(members[0]) // form.team)
        count.instructions += rounds * own * form.vector * len(members)
        if form.team == 1:
            waits += _fold_waits(accesses, members[0])
            continue
        waits += -(-own // form.turns)
        count.instructions += rounds * own * _DECODE * sum(axis.extent > 1 for axis in axes)
        exchanges += rounds * len(members) * form.vector * math.log2(max(1, WARP // across))
        barriers += rounds * 2 * len(members)
    if accesses.outer_loads():
        waits += _depth(accesses.results) * (-(-inner_turns // form.turns) if inner else 1)
    count.store(rounds * inner_turns, along, form.vector)
    count.decode(rounds, outer)
    threads = min(form.threads, vectors * form.team)
    return count.work(threads, rounds * waits, exchanges, barriers, cache_bytes=cache_bytes)


def _points(reduction: Reduce) -> int:
    return math.prod(axis.extent for axis in reduction.axes)


def _of_rows(kernel: RKernel, form: ReduceForm, cache_bytes: int) -> ThreadWork:
    rows = rows_of(kernel.expr, kernel.layouts, kernel.tile)
    moved = by_rows(kernel, rows)
    accesses = accesses_of(rows.expr, kernel.layouts)
    sizes = dict(zip(rows.expr.axes, moved.tile.task, strict=True))
    outer = [(axis, sizes[axis]) for axis in reversed(rows.outer)]
    axes = dict.fromkeys(axis for axis, _ in rows.phases)
    inner = [(axis, sizes[axis]) for axis in reversed(rows.inner) if axis not in axes]
    rounds, inner_turns = -(-_count_of(outer) * form.team // form.threads), -(-_count_of(inner) // form.team)
    at = {**positions(outer, apart=form.team), **positions(inner, threads=form.team)}
    for along in axes:
        at |= positions([(along, along.extent)], form.vector, form.team)
    count = _Count(moved, accesses, at)
    there = {one for _, members in rows.phases for one in members}
    inside = [one for one in rows.expr.reductions if one not in there]
    turns = _turns(accesses, inside)
    known: set[Expr] = set()
    waits = 0.0
    for axis, roots, is_store in _passes(rows, accesses):
        own = 1 if axis is None else -(-axis.extent // (form.team * form.vector))
        is_whole = axis is None or own <= form.turns
        reached = accesses.reach(roots, there)
        has_loads = False
        for node in reached:
            free = accesses.free[node]
            on_row = axis is not None and axis in free
            if node in known and (is_whole or not on_row):
                continue
            # Constants that are the same for all rows are brought once, before the first.
            is_fixed = isinstance(node, Load) and node.slot in kernel.constants and is_whole and free == {axis}
            times = (own if on_row else 1) * (rounds if free and not is_fixed else 1) * _loops(free, rows.expr, turns)
            if axis is None and any(side in free for side, _ in inner):
                times *= inner_turns
            count.value(node, times, axis, form.vector)
            has_loads |= isinstance(node, Load) and not is_fixed
        known.update(reached)
        if has_loads or not is_whole:
            waits += 1 if is_whole else -(-own // form.turns)
        if is_store:
            count.store(rounds * (inner_turns if axis is None else own), axis, 1 if axis is None else form.vector)
    waits += sum(_fold_waits(accesses, one) - 1 for one in inside)
    exchanged = math.log2(min(form.team, WARP))
    for along, members in rows.phases:
        own = -(-along.extent // (form.team * form.vector))
        count.instructions += rounds * len(members) * (own * form.vector + _EXCHANGED * exchanged)
    count.decode(rounds, [(Axis("row", 1), 1), *outer])
    return count.work(
        min(form.threads, _count_of(outer) * form.team),
        rounds * waits,
        rounds * len(rows.phases) * exchanged,
        rounds * len(rows.phases) * (form.team > WARP),
        cache_bytes=cache_bytes,
    )


def _passes(rows: Rows, accesses: Accesses) -> list[tuple[Axis | None, tuple[Expr, ...], bool]]:
    """The passes over a row: the axis, what is computed of it, and whether it is stored. The last may be along none."""
    folds: list[tuple[Axis | None, tuple[Expr, ...], bool]] = [
        (axis, tuple(one.body for one in members), False) for axis, members in rows.phases
    ]
    return [*folds, (rows.inner[0] if rows.is_joined else None, accesses.results, True)]


def _of_gemv(kernel: RKernel, form: GemvForm, cache_bytes: int) -> ThreadWork:
    accesses, found = accesses_of(kernel.expr, kernel.layouts), contraction(kernel.expr)
    assert found is not None  # it is a product
    sides = _sides(kernel)
    along, rounds = sides[0][0], -(-_count_of(sides) // form.width)
    order = _order(accesses, found.terms[0].reduce)
    elements = [(axis, axis.extent) for axis in reversed(order)] if form.across < WARP else []
    at = {**positions(sides, form.vector, form.across), **positions(elements, apart=form.across)}
    count = _Count(kernel, accesses, at)
    known: set[Expr] = set()
    waits = 0.0
    for group in found.groups:
        own = -(-math.prod(axis.extent for axis in group.axes) // form.splits)
        reached = accesses.reach([operand for term in group.terms for operand in term.operands])
        registers = 0
        for node in reached:
            free = accesses.free[node]
            if node not in known:
                count.value(node, (own if free & set(group.axes) else 1) * (rounds if free else 1), along, form.vector)
            if isinstance(node, Load):
                vector = form.vector if along in free else 1
                registers += -(-node.dtype.itemsize_bytes * vector // _REGISTER_BYTES)
        known.update(reached)
        count.instructions += rounds * own * (form.vector * len(group.terms) + 2)
        waits += -(-own // max(1, min(own, _GEMV_REGISTERS // max(1, registers))))
    for node in accesses.reach(accesses.results):
        if node not in known:
            count.value(node, rounds, None, 1)
    count.store(rounds, None, 1)
    exchanges = barriers = 0.0
    if form.splits > 1:
        parts = min(form.splits, form.threads // WARP)
        count.instructions += rounds * len(found.terms) * form.width / form.threads * parts * _UNROLLED
        exchanges = rounds * len(found.terms) * form.vector * math.log2(max(1, WARP // form.across))
        barriers = 2.0 * rounds
    return count.work(form.threads, rounds * waits, exchanges, barriers, cache_bytes=cache_bytes)
