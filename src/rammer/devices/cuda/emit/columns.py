"""The skeleton `reduce` by columns: neighbouring threads have neighbouring vectors of points, each with its reductions.

Where there are fewer vectors than threads, several threads *split* the elements of the same ones and put their parts
together through shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.fold import Total, ordered_axes, over_elements
from rammer.devices.cuda.emit.map import emit_vectors
from rammer.devices.cuda.emit.points import Side, count, decode, decode_inside, guarded
from rammer.devices.cuda.emit.vectors import Registers, Vector, pending, store_vector
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.expr import Call, Cast, Load, Reduce
from rammer.ir.kernel_form import ReduceForm
from rammer.tiling.rows import outer_reductions, phases


def emit_columns(scope: Scope, outer: Sequence[Side], inner: Sequence[Side], form: ReduceForm) -> None:
    """Write the loops over the vectors of one rTask, which run along the first of `outer`.

    Args:
        scope: of the rTask.
        outer: the axes that reductions depend on.
        inner: those along which outputs alone run.
        form: how threads share them out.
    """
    writer, axis = scope.writer, outer[0].axis
    vectors, across = count(outer) // form.vector, form.threads // form.team
    registers = Registers(axis, form.vector, turns=1)
    writer.line(f"typedef rammer_columns<{across}, {form.vector}> columns;")
    emit_wait(writer)
    head = f"rammer_by_turns<{vectors}u, {across}>(columns::column(), [&](uint32_t group, bool is_there)"
    with writer.block(head, ");"):
        positions, conditions = decode_inside(writer, "group", outer, form.vector)
        conditions.append("is_there")
        vector = Vector(axis=axis, first=positions.pop(axis), size=form.vector)
        at_points = scope.enter(positions)
        # Threads without points of their own go along where all threads put parts together.
        with guarded(writer, [] if form.team > 1 else conditions):
            for axes, reductions in phases(outer_reductions(scope.operands.kernel.expr)[0]):
                if all(one.extent for one in axes):
                    _fold(at_points, vector, registers, reductions, form)
            mine = [*conditions, "columns::split() == 0"] if not inner else conditions
            with guarded(writer, mine if form.team > 1 else []):
                if inner:
                    _store_each(at_points, vector, registers, inner, form)
                else:
                    store_vector(at_points, vector, registers)


def _fold(
    at_points: Scope, vector: Vector, registers: Registers, reductions: Sequence[Reduce], form: ReduceForm
) -> None:
    """Write reductions along the same axes, of all points of a vector."""
    writer = at_points.writer
    bodies = [one.body for one in reductions]
    registers.bind_fixed(at_points)
    known = list(registers.kept)
    registers.declare(at_points, reductions)
    totals = [
        Total.declare(at_points, one, registers.array(one), registers.width(at_points, one)) for one in reductions
    ]
    at_points.hoist(bodies)
    with _over_split(at_points, reductions, form) as at_element:
        at_element.hoist(bodies)
        loads = [node for node in pending(bodies, known) if isinstance(node, Load)]
        along = [load for load in loads if registers.runs_along(at_element, load)]
        brought = Registers(registers.axis, registers.size, turns=1)
        brought.declare(at_element, along)
        brought.bring(at_element, vector, along)
        for total in (one for one in totals if one.width < registers.size):
            total.add(at_element)
        with vector.lanes(at_element) as at_lane:
            registers.bind(at_lane, known)
            brought.bind(at_lane)
            for total in (one for one in totals if one.width == registers.size):
                total.add(at_lane)
    across = form.threads // form.team
    for total in totals if form.team > 1 else ():
        writer.line(f"rammer_columns<{across}, {total.width}>::over({total.name}, scratch, {total.fn});")


@contextmanager
def _over_split(scope: Scope, reductions: Sequence[Reduce], form: ReduceForm) -> Iterator[Scope]:
    """Loops over a thread's part of the elements of reductions."""
    if form.team == 1:
        with over_elements(scope, reductions) as at_element:
            yield at_element
        return
    sides = [Side.whole(axis) for axis in reversed(ordered_axes(scope, reductions))]
    head = f"rammer_over_elements<{count(sides)}, columns::SPLITS, {form.turns}>"
    with scope.writer.block(f"{head}(columns::split(), [&](uint32_t element)", ");"):
        positions, _ = decode(scope.writer, "element", sides)
        yield scope.enter(positions)


def _store_each(
    at_points: Scope, vector: Vector, registers: Registers, inner: Sequence[Side], form: ReduceForm
) -> None:
    """Write the outputs of a vector at all points of `inner`, which the threads that have the vector share out."""
    writer, results, free = at_points.writer, at_points.operands.results, at_points.operands.free
    registers.bind_fixed(at_points)
    at_points.hoist(results)
    axes = {side.axis for side in inner}
    values = [node for node in pending(results, registers.kept) if isinstance(node, Load | Call | Cast)]
    changing = [node for node in values if not axes.isdisjoint(free[node])]
    fixed = [node for node in values if axes.isdisjoint(free[node]) and registers.runs_along(at_points, node)]
    loads = [node for node in fixed if isinstance(node, Load)]
    registers.declare(at_points, loads)
    registers.bring(at_points, vector, loads)
    used = {child for node in changing for child in node.children} | set(results)
    computed = [node for node in fixed if node not in loads and node in used]
    before = list(registers.kept)
    registers.declare(at_points, computed)
    with vector.lanes(at_points) as at_lane:
        registers.bind(at_lane, before)
        for node in computed:
            writer.line(f"{registers.place(at_lane, node)} = {at_lane.value(node)};")

    def at_vector() -> tuple[Scope, Vector, list[str]]:
        positions, conditions = decode(writer, "element", inner)
        return at_points.enter(positions), vector, conditions

    points = count(inner)
    turns = min(-(-points // form.team), form.turns)
    share = f"rammer_share<{points}u, columns::SPLITS, 1, {turns}>"
    loaded = Registers(registers.axis, registers.size, turns, "loaded")
    emit_vectors(at_points, share, "columns::split()", loaded, at_vector, registers)
