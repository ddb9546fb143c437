"""The skeleton `reduce` by rows: a team of threads has a row, and neighbours in it take neighbouring vectors.

    for each row of the team
      for each phase, and for the outputs
        bring what it needs of the row into registers, unless it is there
        fold it; put the parts of the team together

A row that a team has in registers as a whole is loaded once, and what several phases compute of its elements is kept.
A longer one passes through them block by block, for each phase again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.fold import Total
from rammer.devices.cuda.emit.loads import is_constant
from rammer.devices.cuda.emit.map import Team, each_turn, emit_points
from rammer.devices.cuda.emit.points import Side, count, decode_inside, guarded
from rammer.devices.cuda.emit.vectors import Registers, Vector, pending, store_vector
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.expr import Axis, Call, Cast, Expr, Load, Reduce
from rammer.ir.kernel_form import MapForm, ReduceForm
from rammer.tiling.gemm import WARP
from rammer.tiling.rows import Rows


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
    with ExitStack() as stack:
        stack.enter_context(writer.block(f"for (uint32_t first = 0; first < {row_count}u; first += {teams})"))
        is_ragged = row_count % teams != 0
        number = "first + team.number()"
        writer.let("uint32_t", "row", f"min({number}, {row_count - 1}u)" if is_ragged else number)
        positions, conditions = decode_inside(writer, "row", outer)
        conditions += [f"{number} < {row_count}u"] if is_ragged else []
        at_row = scope.enter(positions)
        # Parts of a warp without a row of their own go along: all of its lanes take part in what a team puts together.
        has_warps = form.team >= WARP
        stack.enter_context(guarded(writer, conditions if has_warps else []))
        for one in passes:
            if one.reductions:
                one.fold(at_row)
        at_row.hoist(scope.operands.results)
        with guarded(writer, [] if has_warps else conditions):
            if rows.is_joined:
                passes[-1].store(at_row)
            elif inner:
                emit_points(at_row, inner, _team(form), MapForm())
            else:
                with guarded(writer, ["team.rank() == 0"]):
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
        with self._blocks(at_row) as (block, registers):
            kept = self._kept(at_row) if self.is_whole else []
            registers.declare(at_row, kept)
            with self._vectors(at_row, block) as vector, vector.lanes(at_row) as at_lane:
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
        with self._blocks(at_row) as (block, registers), self._vectors(at_row, block) as vector:
            store_vector(at_row, vector, registers)

    @contextmanager
    def _blocks(self, at_row: Scope) -> Iterator[tuple[str, Registers]]:
        """For each block of the row, what the pass loads of it is in registers."""
        writer = at_row.writer
        if self.is_whole:
            self._bring(at_row, "0", self.registers)
            yield "0", self.registers
            return
        with writer.block(f"for (uint32_t block = 0; block < {self.share}::BLOCKS; ++block)"):
            registers = Registers(self.axis, self.form.vector, self.form.turns)
            self._bring(at_row, "block", registers)
            yield "block", registers

    def _bring(self, at_row: Scope, block: str, registers: Registers) -> None:
        loads = self.loads(at_row, self.roots)
        registers.declare(at_row, loads)
        if loads:
            with self._vectors(at_row, block) as vector:
                registers.bring(at_row, vector, loads)

    def bring_constants(self, scope: Scope) -> None:
        """Write the loads of constants that are the same for all rows."""
        free = scope.operands.free
        loads = [
            load for load in self.loads(scope, self.roots) if free[load] == {self.axis} and is_constant(scope, load)
        ]
        self.registers.declare(scope, loads)
        if loads:
            with self._vectors(scope, "0") as vector:
                self.registers.bring(scope, vector, loads)

    def loads(self, scope: Scope, roots: Iterable[Expr]) -> list[Load]:
        """The loads along the row that `roots` take and that are not in registers."""
        return [node for node in self._pending(scope, roots) if isinstance(node, Load)]

    def _kept(self, scope: Scope) -> list[Expr]:
        """What this pass computes of the row and later ones need again."""
        here = [node for node in self._pending(scope, self.roots) if isinstance(node, Call | Cast)]
        later = pending(self.later, {*self.registers.kept, *here})
        below = {child for node in later for child in node.children} | set(self.later)
        return [node for node in here if node in below]

    def _pending(self, scope: Scope, roots: Iterable[Expr]) -> list[Expr]:
        free = scope.operands.free
        return [node for node in pending(roots, self.registers.kept) if self.axis in free[node]]

    @contextmanager
    def _vectors(self, scope: Scope, block: str) -> Iterator[Vector]:
        """What a thread does for each of its vectors in a block."""
        with each_turn(scope.writer, self.share, block, _team(self.form)):
            yield Vector(axis=self.axis, first=Position("element", multiple=self.form.vector), size=self.form.vector)


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


def _team(form: ReduceForm) -> Team:
    return Team(size=str(form.team), rank="team.rank()")
