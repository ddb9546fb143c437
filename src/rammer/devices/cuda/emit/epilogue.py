"""From sums in shared memory to results in memory (`skeletons/epilogue.cuh`): the elementwise rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.devices.cuda.emit.vectors import Registers, Vector, store_vector
from rammer.ir.expr import Axis, Expr, Load, Reduce

_VECTOR_BYTES = 16  # of a load or a store
_WIDTHS = (1, 2, 4, 8)  # elements of a thread at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Epilogue:
    """The rest of a tile of `rows` by `columns`, each list fastest first.

    Its `sums` lie at the beginning of scratch, row by row, `pitch` elements apart. The last `threads` of a block make
    the results; the sums are there, or behind the statement `awaits`. `of_rows` are values that have a place for each
    `row`.
    """

    sums: Reduce
    rows: tuple[Side, ...]
    columns: tuple[Side, ...]
    pitch: int
    threads: int
    awaits: str = ""
    of_rows: Mapping[Expr, str] = field(default_factory=dict)

    def emit(self, scope: Scope) -> None:
        """Write it."""
        writer, width, axis = scope.writer, self._width(scope), self.columns[0].axis
        sizes = f"{count(self.rows)}, {count(self.columns)}, {width}, {self.pitch}, {self.threads}"
        writer.line(f"typedef rammer_epilogue<{sizes}> epilogue;")
        writer.line("const float *sums = (const float *)scratch;")
        total, loaded, own = (Registers(axis, width, 1) for _ in range(3))
        loads = self._early(scope, width)
        shared = self._of_columns(scope, loads)
        rest = [load for load in loads if load not in shared]
        if shared:
            writer.let("uint32_t", "column", "epilogue::column()")
            loaded.declare(scope, shared)
            positions, _ = decode(writer, "column", self.columns)
            at_column, vector = self._vector(scope, positions, width)
            loaded.bring(at_column, vector, shared)
        if self.awaits:
            own.declare(scope, rest)
            if rest:
                with self._each(scope, "first", width) as (at_vector, vector):
                    own.bring(at_vector, vector, rest)
            writer.line(self.awaits)
        with self._each(scope, "run", width) as (at_vector, vector):
            if not self.awaits:
                own.declare(at_vector, rest)
                own.bring(at_vector, vector, rest)
            elif rest and count(self.rows) > self._down(width):
                with writer.block("if (row != epilogue::row())"):
                    own.bring(at_vector.enter({}), vector, rest)
            total.declare(at_vector, [self.sums])
            writer.line(f"epilogue::load({total.array(self.sums)}, sums, row, column);")
            at_vector.bind(self.sums, total.array(self.sums))  # what they are made of is not looked at again
            for node, text in self.of_rows.items():
                at_vector.bind(node, text)
            store_vector(at_vector, vector, total, loaded, own)

    @contextmanager
    def _each(self, scope: Scope, function: str, width: int) -> Iterator[tuple[Scope, Vector]]:
        """The call of a function for vectors of a thread: the scope of one that has results, and what it is."""
        writer = scope.writer
        with writer.block(f"epilogue::{function}([&](uint32_t row, uint32_t column)", ");"):
            rows, conditions = decode(writer, "row", self.rows)
            columns, beyond = decode(writer, "column", self.columns)
            with guarded(writer, [*conditions, *beyond]):
                yield self._vector(scope, {**rows, **columns}, width)

    def _vector(self, scope: Scope, positions: dict[Axis, Position], width: int) -> tuple[Scope, Vector]:
        """The vector that begins at some positions, and its scope."""
        axis = self.columns[0].axis
        vector = Vector(axis=axis, first=replace(positions.pop(axis), multiple=width), size=width)
        return scope.enter(positions), vector

    def _early(self, scope: Scope, width: int) -> list[Load]:
        """What is loaded before sums are looked at: what one load brings for a vector."""
        vector = Vector(axis=self.columns[0].axis, size=width)
        loads = scope.operands.outer_loads([self.sums, *self.of_rows])
        return [
            load
            for load in loads
            if load.slot not in scope.operands.readers
            and not scope.operands.loads[load].checks
            and vector.is_loaded(scope, load)
        ]

    def _of_columns(self, scope: Scope, loads: Sequence[Load]) -> list[Load]:
        """What a thread loads ahead for all its vectors; nothing where a tile may have columns beyond the results."""
        rows = {side.axis for side in self.rows}
        if any(side.is_ragged for side in self.columns):
            return []
        return [load for load in loads if rows.isdisjoint(scope.operands.free[load])]

    def _width(self, scope: Scope) -> int:
        """Neighbouring columns that a thread takes at a time: the fewest with which threads have the fewest rows.

        Two whole rows of half as many take less time than one of the widest vectors. Where others multiply, there are
        fewer threads: of the two widest, it is the one with which no thread has more results than it must.
        """
        kernel, lane, rows = scope.operands.kernel, self.columns[0], count(self.rows)
        element_bytes = min(output.type.dtype.itemsize_bytes for output in kernel.expr.outputs)
        widths = [
            width
            for width in _WIDTHS
            if width * element_bytes <= _VECTOR_BYTES and not (lane.size % width or lane.axis.extent % width)
        ]
        if self.awaits:
            return min(widths[-2:], key=lambda width: (-(-rows // self._down(width)) * width, -width))
        best = min(widths, key=lambda width: (-(-rows // self._down(width)), width))
        return best // 2 if best == _WIDTHS[-1] and rows == 2 * self._down(best // 2) else best

    def _down(self, width: int) -> int:
        """Rows that threads take at a time."""
        return self.threads // (count(self.columns) // width)
