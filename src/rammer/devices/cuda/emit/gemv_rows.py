"""The skeleton `gemv` by rows (`skeletons/gemv_rows.cuh`): its sizes as constants, and its functors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.gemv import STREAM, emit_epilogue
from rammer.devices.cuda.emit.points import Side, count, decode, guarded, lane_first
from rammer.devices.cuda.emit.vectors import Registers, Vector
from rammer.devices.cuda.emit.wait import emit_wait, waits_one_by_one
from rammer.ir.expr import Call, Load
from rammer.ir.kernel_form import GemvRowsForm
from rammer.tiling.gemv_rows import MatrixVector, matrix_vector


def emit_gemv_rows(scope: Scope, sides: Sequence[Side], form: GemvRowsForm) -> None:
    """Write what computes one rTask."""
    kernel = scope.operands.kernel
    found = matrix_vector(kernel.expr)
    if found is None:
        raise ValueError("no sums over rows")
    writer, points = scope.writer, lane_first(kernel, sides)
    meets = str(waits_one_by_one(kernel)).lower()
    row = f"{form.turns}, {form.vector}, {form.across}, {form.batch}"
    writer.line(
        f"typedef rammer_gemv_rows<{len(found.rows)}, {len(found.wholes)}, {row}, {count(points)}, {meets}> gemv;"
    )
    rows = _Rows(scope, found, form)
    rows.emit_bring(points)
    early = {row.load.slot for row in found.rows} <= kernel.constants
    if not early:
        emit_wait(writer)
    rows.emit_known()
    writer.line(f"rammer_row rows[{form.batch}] = {{}};")
    writer.line("gemv::begin(rows, bring);")
    if early:
        emit_wait(writer)
    rows.emit_vectors()
    rows.emit_multiply()
    emit_epilogue(scope, points, [*(row.reduce for row in found.rows), *found.wholes], count(points))
    writer.line("gemv::run<rammer_early>(scratch, rows, common, bring, multiply, load, finish);")


class _Rows:
    """The functors over what a thread has of a row: `turns` vectors, `across` vectors apart."""

    def __init__(self, scope: Scope, found: MatrixVector, form: GemvRowsForm) -> None:
        self._scope, self._writer, self._found, self._form = scope, scope.writer, found, form
        order = found.order(scope.operands.kernel.layouts)
        self._sides = [Side.whole(axis) for axis in reversed(order)]
        self._vectors = count(self._sides) // form.vector
        factors = [factor for whole in found.wholes if isinstance(whole.body, Call) for factor in whole.body.args]
        self._roots = (*found.others, *factors)
        self._known = Registers(self._sides[0].axis, form.vector, form.turns)

    def emit_bring(self, points: Sequence[Side]) -> None:
        """Write the type of a row, and what asks for that of a point."""
        writer, form = self._writer, self._form
        with writer.block("struct rammer_row", ";"):
            for number, row in enumerate(self._found.rows):
                element = C_TYPES[row.load.dtype]
                with writer.block("union", f" weights{number}[{form.turns}];"):
                    writer.line("uint32_t words[4];")
                    writer.line(f"{element} lane[{form.vector}];")
        with writer.block("const auto bring = [&](uint32_t point, rammer_row &row)", ";"):
            heads, present = decode(writer, "point", points)
            there = writer.let("bool", "there", " && ".join([f"point < {count(points)}u", *present]))
            with self._each_turn(self._scope.enter(heads)) as (at_turn, vector, conditions):
                base = vector.base(at_turn)
                for number, one in enumerate(self._found.rows):
                    evicts = str(self._scope.operands.readers.get(one.load.slot) == STREAM).lower()
                    address, _ = base.element(one.load)
                    place = f"row.weights{number}[turn].words, in{one.load.slot} + ({address})"
                    writer.line(f"rammer_load_now<{evicts}>({place}, {' && '.join([there, *conditions])});")

    def emit_known(self) -> None:
        """Write the loads of vectors that are constants, the first of all.

        Behind a Wait they would come after all that memory was asked for by then.
        """
        constants = self._scope.operands.kernel.constants
        loads = [load for load in self._loads() if load.slot in constants]
        if not loads:
            return
        self._known.declare(self._scope, loads)
        with (
            self._each_turn(self._scope) as (at_turn, vector, conditions),
            guarded(self._writer, conditions),
        ):
            self._known.bring(at_turn, vector, loads)

    def emit_vectors(self) -> None:
        """Write a thread's elements of the vectors, and its parts of the sums that all points have in common."""
        writer, form, found = self._writer, self._form, self._found
        for number, other in enumerate(found.others):
            writer.line(f"{C_TYPES[other.dtype]} vector{number}[{form.turns}][{form.vector}] = {{}};")
        writer.line(f"float common[{max(1, len(found.wholes))}] = {{}};")
        with self._each_turn(self._scope) as (at_turn, vector, conditions), guarded(writer, conditions):
            self._emit_elements(at_turn, vector)

    def _emit_elements(self, at_turn: Scope, vector: Vector) -> None:
        """Write a thread's elements in one turn, with all that they take."""
        writer, found = self._writer, self._found
        loads = [load for load in self._loads() if load not in self._known.kept]
        registers = Registers(vector.axis, vector.size, 1)
        registers.declare(at_turn, loads)
        registers.bring(at_turn, vector, loads)
        for kept in (self._known, registers):
            kept.bind_fixed(at_turn)
        with vector.lanes(at_turn) as at_lane:
            for kept in (self._known, registers):
                kept.bind(at_lane)
            for number, other in enumerate(found.others):
                writer.line(f"vector{number}[turn][lane] = {at_lane.value(other)};")
            for number, whole in enumerate(found.wholes):
                assert isinstance(whole.body, Call)  # a product
                left, right = (at_lane.value(factor) for factor in whole.body.args)
                writer.line(f"common[{number}] += {left} * {right};")

    def _loads(self) -> list[Load]:
        """All loads of the vectors."""
        return [node for node in self._scope.operands.reach(self._roots) if isinstance(node, Load)]

    def emit_multiply(self) -> None:
        """Write a thread's part of the sums of a point."""
        writer, found = self._writer, self._found
        with (
            writer.block("const auto multiply = [&](const rammer_row &row, float *sums)", ";"),
            writer.block("gemv::each_lane([&](int turn, int lane)", ");"),
        ):
            at_lane = self._scope.enter({})
            for number, row in enumerate(found.rows):
                at_lane.bind(row.load, f"row.weights{number}[turn].lane[lane]")
                vector = f"vector{found.others.index(row.other)}[turn][lane]"
                writer.line(f"sums[{number}] += {vector} * {at_lane.value(row.weight)};")

    @contextmanager
    def _each_turn(self, scope: Scope) -> Iterator[tuple[Scope, Vector, list[str]]]:
        """A visit of a thread's vectors: the one of a turn, and conditions that hold if there is one."""
        writer, form = self._writer, self._form
        with writer.block("gemv::each_turn([&](int turn, uint32_t number)", ");"):
            positions, _ = decode(writer, "number", self._sides, form.vector)
            axis = self._sides[0].axis
            vector = Vector(axis=axis, first=positions.pop(axis), size=form.vector)
            ragged = self._vectors % form.across
            yield scope.enter(positions), vector, [f"number < {self._vectors}u"] if ragged else []
