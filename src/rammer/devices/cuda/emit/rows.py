"""The skeleton `reduce` by rows: a team of threads has a row, and neighbours in it take neighbouring vectors.

    for each row of the team
      for each phase, and for the outputs
        bring what it needs of the row into registers, unless it is there
        fold it; put the parts of the team together

A row that a team has in registers as a whole is loaded once, and what several phases compute of its elements is kept.
A longer one passes through them block by block, for each phase again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.fold import Total
from rammer.devices.cuda.emit.loads import is_constant
from rammer.devices.cuda.emit.map import emit_points, run
from rammer.devices.cuda.emit.points import Side, count, decode_inside, guarded
from rammer.devices.cuda.emit.vectors import Registers, Vector, pending, store_vector
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.expr import Axis, Call, Cast, Expr, Load, Reduce
from rammer.ir.kernel_form import MapForm, ReduceForm
from rammer.tiling.gemm import WARP
from rammer.tiling.rows import Rows

_RANK = "team.rank()"


def emit_rows(scope: Scope, sides: Sequence[Side], rows: Rows, form: ReduceForm) -> None:
    """Write the loop over the rows of one rTask, whose expression is by rows."""
    writer = scope.writer
    outer = [side for side in reversed(sides) if side.axis in rows.outer]
    inner = [side for side in reversed(sides) if side.axis not in rows.outer]
    row_count, teams = count(outer), form.threads // form.team
    writer.line(f"rammer_team<{form.team}> team(scratch);")
    passes = _passes(scope, rows, form)
    for one in passes:
        if one.is_whole:
            one.bring_constants(scope)
    emit_wait(writer)
    head = f"rammer_by_turns<{row_count}u, {teams}>(team.number(), [&](uint32_t row, bool is_there)"
    with writer.block(head, ");"):
        positions, conditions = decode_inside(writer, "row", outer)
        conditions.append("is_there")
        at_row = scope.enter(positions)
        # Parts of a warp without a row of their own go along: all of its lanes take part in what a team puts together.
        has_warps = form.team >= WARP
        with guarded(writer, conditions if has_warps else []):
            for one in passes:
                if one.reductions:
                    one.fold(at_row)
            at_row.hoist(scope.operands.results)
            with guarded(writer, [] if has_warps else conditions):
                if rows.is_joined:
                    passes[-1].store(at_row)
                elif inner:
                    emit_points(at_row, inner, str(form.team), _RANK, MapForm())
                else:
                    with guarded(writer, [f"{_RANK} == 0"]):
                        at_row.store_results()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    """A pass over a row: of each element along `axis` it computes `roots`, and folds them into `reductions`, if any.

    Without these it stores the outputs. `share` says how a team shares out the row, `later` what passes after it
    compute. What is kept of the row lies in `registers`, which all passes along the axis have in common.
    """

    axis: Axis
    roots: tuple[Expr, ...]
    reductions: tuple[Reduce, ...]
    later: tuple[Expr, ...]
    share: str
    form: ReduceForm
    registers: Registers

    @property
    def is_whole(self) -> bool:
        """Whether a team has the whole row in registers."""
        return self.axis.extent <= self.form.team * self.form.vector * self.form.turns

    def fold(self, at_row: Scope) -> None:
        """Write the reductions of a row, and let its scope find them."""
        writer = at_row.writer
        at_row.hoist(self.roots)
        totals = [self._total(at_row, reduction) for reduction in self.reductions]
        with self._over_row(at_row) as (registers, kept, vector), vector.lanes(at_row) as at_lane:
            registers.bind(at_lane, [node for node in registers.kept if node not in kept])
            for total in totals:
                total.add(at_lane)
            for node in kept:
                writer.line(f"{registers.place(at_lane, node)} = {at_lane.value(node)};")
        for total in totals:
            text = f"team.over(rammer_over_lanes<{total.width}>({total.name}, {total.fn}), {total.fn})"
            at_row.bind(total.reduction, writer.let(C_TYPES[total.reduction.dtype], writer.name("whole"), text))

    def _total(self, at_row: Scope, reduction: Reduce) -> Total:
        name = at_row.writer.name("total")
        at_row.writer.line(f"{C_TYPES[reduction.dtype]} {name}[{self.form.vector}];")
        return Total.declare(at_row, reduction, name, self.form.vector)

    def store(self, at_row: Scope) -> None:
        """Write the outputs of a row."""
        with self._over_row(at_row) as (registers, _, vector):
            store_vector(at_row, vector, registers)

    @contextmanager
    def _over_row(self, at_row: Scope) -> Iterator[tuple[Registers, Sequence[Expr], Vector]]:
        """What is written inside is for each vector of a row, whose loads are in registers.

        With these comes what it is to keep.
        """
        loads = self._loads(at_row)
        if self.is_whole:
            self._bring(at_row, loads)
            kept = self._kept(at_row)
            self.registers.declare(at_row, kept)
            with self._each(at_row) as vector:
                yield self.registers, kept, vector
            return
        loaded = Registers(self.axis, self.form.vector, self.form.turns, "loaded")
        with run(at_row, self.share, _RANK, loaded, loads, lambda: (at_row, self._vector, [])) as (_, vector):
            yield loaded, (), vector

    def bring_constants(self, scope: Scope) -> None:
        """Write the loads of constants that are the same for all rows."""
        free = scope.operands.free
        alike = [load for load in self._loads(scope) if free[load] == {self.axis} and is_constant(scope, load)]
        self._bring(scope, alike)

    def _bring(self, scope: Scope, loads: Sequence[Load]) -> None:
        self.registers.declare(scope, loads)
        if loads:
            with self._each(scope) as vector:
                self.registers.bring(scope, vector, loads)

    @contextmanager
    def _each(self, scope: Scope) -> Iterator[Vector]:
        """What is written inside is for each vector of a whole row."""
        head = f"{self.share}::each(0, {_RANK}, [&](int turn, {scope.writer.index_type} element)"
        with scope.writer.block(head, ");"):
            yield self._vector

    @property
    def _vector(self) -> Vector:
        size = self.form.vector
        return Vector(axis=self.axis, first=Position("element", multiple=size), size=size)

    def _loads(self, scope: Scope) -> list[Load]:
        """The loads along the row that are not in registers."""
        return [node for node in self._pending(scope) if isinstance(node, Load)]

    def _kept(self, scope: Scope) -> list[Expr]:
        """What this pass computes of the row and later ones need again."""
        here = [node for node in self._pending(scope) if isinstance(node, Call | Cast)]
        later = pending(self.later, {*self.registers.kept, *here})
        below = {child for node in later for child in node.children} | set(self.later)
        return [node for node in here if node in below]

    def _pending(self, scope: Scope) -> list[Expr]:
        free = scope.operands.free
        return [node for node in pending(self.roots, self.registers.kept) if self.axis in free[node]]


def _passes(scope: Scope, rows: Rows, form: ReduceForm) -> list[_Pass]:
    """The passes over a row, with what their axes' shares are called."""
    writer, registers, shares = scope.writer, {}, {}
    for axis in dict.fromkeys(axis for axis, _ in rows.phases):
        shares[axis] = writer.name("share")
        registers[axis] = Registers(axis, form.vector, form.turns)
        sizes = f"{axis.extent}u, {form.team}, {form.vector}, {form.turns}"
        writer.line(f"typedef rammer_share<{sizes}> {shares[axis]};")
    steps = [(axis, tuple(one.body for one in reductions), reductions) for axis, reductions in rows.phases]
    if rows.is_joined:
        steps.append((rows.inner[0], scope.operands.results, ()))
    return [
        _Pass(
            axis=axis,
            roots=roots,
            reductions=reductions,
            later=tuple(root for other, more, _ in steps[number + 1 :] if other is axis for root in more),
            share=shares[axis],
            form=form,
            registers=registers[axis],
        )
        for number, (axis, roots, reductions) in enumerate(steps)
    ]
