"""The skeleton `gemv` by rows (`skeletons/gemv_rows.cuh`): its sizes as constants, and its functors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.gemv import STREAM, emit_epilogue
from rammer.devices.cuda.emit.points import Side, count, decode, guarded, lane_first
from rammer.devices.cuda.emit.vectors import Registers, Vector
from rammer.devices.cuda.emit.wait import emit_wait, waits_one_by_one
from rammer.ir.expr import Call, Load
from rammer.ir.kernel_form import GemvRowsForm
from rammer.tiling.addresses import Linear
from rammer.tiling.gemm import WARP
from rammer.tiling.gemv_rows import VECTOR_BYTES, MatrixVector, Row, matrix_vector
from rammer.tiling.packed import PackedWeight

_GROUP = 4  # elements of a vector that a thread makes side by side, where vectors pass through shared memory
_FLOAT_BYTES = 4


def emit_gemv_rows(scope: Scope, sides: Sequence[Side], form: GemvRowsForm) -> None:
    """Write what computes one rTask."""
    kernel = scope.operands.kernel
    found = matrix_vector(kernel.expr)
    if found is None:
        raise ValueError("no sums over rows")
    writer, points = scope.writer, lane_first(kernel, sides)
    meets = str(waits_one_by_one(kernel) and not found.is_packed).lower()
    row = f"{form.turns}, {form.vector}, {form.across}, {form.batch}"
    shares = (form.threads if found.is_packed else form.across) // WARP
    sizes = f"{len(found.rows)}, {len(found.wholes)}, {row}, {count(points)}, {meets}, {shares}"
    writer.line(f"typedef rammer_gemv_rows<{sizes}> gemv;")
    rows = _PackedRows(scope, found, form) if found.is_packed else _Rows(scope, found, form)
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
        factors = [factor for whole in found.wholes if isinstance(whole.body, Call) for factor in whole.body.args]
        self._roots = (*found.others, *factors)
        self._known = self._registers()

    def _registers(self) -> Registers:
        """Room for what a thread has of the vectors, in all turns."""
        return Registers(self._sides[0].axis, self._form.vector, self._form.turns)

    def emit_bring(self, points: Sequence[Side]) -> None:
        """Write the type of a row, and what asks for that of a point."""
        writer = self._writer
        with writer.block("struct rammer_row", ";"):
            for number, row in enumerate(self._found.rows):
                self._declare(number, row)
        with writer.block("const auto bring = [&](uint32_t point, rammer_row &row)", ";"):
            heads, inside = decode(writer, "point", points)
            there = writer.let("bool", "there", " && ".join([f"point < {count(points)}u", *inside]))
            with self._each_turn(self._scope.enter(heads)) as (at_turn, vector, conditions):
                base = vector.base(at_turn)
                for number, one in enumerate(self._found.rows):
                    evicts = str(self._scope.operands.readers.get(one.load.slot) == STREAM).lower()
                    place = f"row.weights{number}[turn].words, {self._address(base, one)}"
                    present = " && ".join([there, *conditions])
                    writer.line(f"rammer_load_now<{evicts}>({place}, {present});")
                    for parameter in one.loads[1:]:
                        from_ = f"in{parameter.slot} + ({base.element(parameter)[0]})"
                        writer.line(f"{self._parameter(number, parameter)} = rammer_load_where({from_}, {present});")

    def _address(self, base: Scope, row: Row) -> str:
        """Where the first element of a vector of a matrix lies; with positions that what is loaded beside it takes."""
        return f"in{row.load.slot} + ({base.element(row.load)[0]})"

    def _declare(self, number: int, row: Row) -> None:
        """Write the members of a row's type that the matrix of a number has."""
        with self._writer.block("union", f" weights{number}[{self._form.turns}];"):
            self._writer.line("uint32_t words[4];")
            if row.packed is None:
                self._writer.line(f"{C_TYPES[row.load.dtype]} lane[{self._form.vector}];")
        for parameter in row.loads[1:]:
            self._writer.line(f"{C_TYPES[parameter.dtype]} of{number}_in{parameter.slot}[{self._form.turns}];")

    @staticmethod
    def _parameter(number: int, parameter: Load) -> str:
        """Where a scale or a zero point of the matrix of a number is in a row, in the present turn."""
        return f"row.of{number}_in{parameter.slot}[turn]"

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
            self._each_part(self._scope) as (at_turn, vector, conditions),
            guarded(self._writer, conditions),
        ):
            self._known.bring(at_turn, vector, loads)

    def emit_vectors(self) -> None:
        """Write a thread's elements of the vectors, and its parts of the sums that all points have in common."""
        writer, form, found = self._writer, self._form, self._found
        for number, other in enumerate(found.others):
            writer.line(f"{C_TYPES[other.dtype]} vector{number}[{form.turns}][{form.vector}] = {{}};")
        writer.line(f"float common[{max(1, len(found.wholes))}] = {{}};")
        with self._each_part(self._scope) as (at_turn, vector, conditions), guarded(writer, conditions):
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
                writer.line(f"{self._element(number)} = {at_lane.value(other)};")
            for number, whole in enumerate(found.wholes):
                assert isinstance(whole.body, Call)  # a product
                left, right = (at_lane.value(factor) for factor in whole.body.args)
                writer.line(f"common[{number}] += {left} * {right};")

    def _element(self, number: int) -> str:
        """Where a thread keeps an element of the vector of a number, in the present turn and lane."""
        return f"vector{number}[turn][lane]"

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
                vector = self._element(found.others.index(row.other))
                writer.line(f"sums[{number}] += {vector} * {at_lane.value(row.weight)};")

    def _each_turn(self, scope: Scope) -> AbstractContextManager[tuple[Scope, Vector, list[str]]]:
        """A visit of a thread's vectors of a row: the one of a turn, and conditions that hold if there is one."""
        return self._each(scope, "gemv::each_turn", self._form.vector, self._form.across)

    def _each_part(self, scope: Scope) -> AbstractContextManager[tuple[Scope, Vector, list[str]]]:
        """Likewise of what a thread makes of the vectors."""
        return self._each_turn(scope)

    @contextmanager
    def _each(self, scope: Scope, visit: str, size: int, threads: int) -> Iterator[tuple[Scope, Vector, list[str]]]:
        """A visit of vectors of so many elements, shared out among so many threads."""
        writer = self._writer
        with writer.block(f"{visit}([&](int turn, uint32_t number)", ");"):
            positions, _ = decode(writer, "number", self._sides, size)
            axis, vectors = self._sides[0].axis, count(self._sides) // size
            vector = Vector(axis=axis, first=positions.pop(axis), size=size)
            yield scope.enter(positions), vector, [f"number < {vectors}u"] if vectors % threads else []


class _PackedRows(_Rows):
    """Likewise, where rows are of numbers of few bits: all threads of a block make what they are multiplied with."""

    @property
    def _packed(self) -> str:
        return f"rammer_packed<{self._found.rows[0].bits}>"

    @property
    def _groups(self) -> int:
        """In how many parts the threads of a block make a vector."""
        return self._found.elements // _GROUP

    def _registers(self) -> Registers:
        """Room for what a thread makes of the vectors, in all turns."""
        return Registers(self._sides[0].axis, _GROUP, -(-self._groups // self._form.threads))

    def _each_part(self, scope: Scope) -> AbstractContextManager[tuple[Scope, Vector, list[str]]]:
        return self._each(scope, f"gemv::each_group<{self._groups}u>", _GROUP, self._form.threads)

    def _element(self, number: int) -> str:
        return f"part{number}[lane]"

    def _address(self, base: Scope, row: Row) -> str:
        """As of `_Rows`, by the numbers of vectors and blocks: nothing is left to divide."""
        assert row.packed is not None  # all of them are
        form, inner = base.operands.loads[row.load].form, row.load.indices[-1]
        outer = tuple((atom, step // VECTOR_BYTES) for atom, step in form.terms if atom is not inner)
        whole = base.linear(Linear(outer, form.offset // VECTOR_BYTES))
        self._bind_block(base, row.packed)
        index = self._writer.index_type
        return f"(const rammer_vector<uint32_t, 4> *)in{row.load.slot} + ({whole} + ({index})number)"

    def _bind_block(self, base: Scope, packed: PackedWeight) -> None:
        """Let the scope of a vector find the number of its block."""
        vectors = packed.block // self._form.vector
        block = "number" if vectors == 1 else f"(number / {vectors}u)"
        base.bind(packed.axis // packed.block, f"({self._writer.index_type}){block}")

    def emit_vectors(self) -> None:
        """Write what makes the vectors and parts of the common sums, and takes a thread's elements, made ready."""
        writer, form, found = self._writer, self._form, self._found
        others = range(len(found.others))
        size = found.elements * _FLOAT_BYTES
        for number in others:
            offset = form.scratch_bytes - found.staged_bytes + number * size
            writer.line(f"float *const staged{number} = (float *)(scratch + {offset});")
        writer.line(f"float common[{max(1, len(found.wholes))}] = {{}};")
        with self._each_part(self._scope) as (at_turn, vector, conditions), guarded(writer, conditions):
            for number in others:
                writer.line(f"float part{number}[{_GROUP}];")
            self._emit_elements(at_turn, vector)
            for number in others:
                writer.line(f"{self._packed}::put(staged{number}, number, part{number});")
        writer.line("rammer_meet();" if waits_one_by_one(self._scope.operands.kernel) else "__syncthreads();")
        for number in others:
            writer.line(
                f"float vector{number}[{form.turns}][{form.vector}] = {{}}, total{number}[{form.turns}] = {{}};"
            )
        with self._each_turn(self._scope) as (_, _, conditions), guarded(writer, conditions):
            for number in others:
                taken = f"{self._packed}::take(staged{number}, number, vector{number}[turn])"
                writer.line(f"total{number}[turn] = {taken};")

    def emit_multiply(self) -> None:
        """Write a thread's part of the sums of a point: what zero points take away is the same for all of a vector."""
        writer, found = self._writer, self._found
        with (
            writer.block("const auto multiply = [&](const rammer_row &row, float *sums)", ";"),
            self._each_turn(self._scope) as (at_turn, vector, _),
        ):
            for number, row in enumerate(found.rows):
                assert row.packed is not None  # all of them are
                base, other = vector.base(at_turn), found.others.index(row.other)
                self._bind_block(base, row.packed)
                for parameter in row.packed.parameters:
                    base.bind(parameter, self._parameter(number, parameter))
                zero, scale = base.value(row.packed.zero), base.value(row.packed.scale)
                operands = f"row.weights{number}[turn].words, vector{other}[turn], -{zero} * total{other}[turn]"
                product = f"{self._packed}::multiply({operands})"
                writer.line(f"sums[{number}] += {product} * ({scale} * {self._packed}::unit());")
