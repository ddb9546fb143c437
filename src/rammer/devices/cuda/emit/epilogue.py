"""From sums in shared memory to results in memory: the elementwise rest, several neighbours of a row to a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from rammer.devices.codegen.scalar import C_TYPES, convert
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.ir.expr import Axis, Expr, Load, Reduce
from rammer.ir.types import DType

_VECTOR_BYTES = 16  # of a load or a store
_MOST = 4  # elements of a thread at a time: code that is run seldom has to be short
_BANK_FLOATS = 4  # of the sums that a load brings


@dataclass(frozen=True, slots=True, kw_only=True)
class Epilogue:
    """The rest of a tile of `rows` by `columns`, each list fastest first.

    Its `sums` lie at the beginning of scratch, row by row, `pitch` elements apart. Threads take `width` neighbouring
    columns of a row at a time. `of_rows` are values that have a place for each `row`.
    """

    sums: Reduce
    rows: tuple[Side, ...]
    columns: tuple[Side, ...]
    pitch: int
    of_rows: Mapping[Expr, str] = field(default_factory=dict)

    @property
    def lane(self) -> Side:
        """The side that neighbouring columns run along."""
        return self.columns[0]

    def emit(self, scope: Scope) -> None:
        """Write it."""
        kernel, writer = scope.operands.kernel, scope.writer
        width = self._width(scope)
        vectors = count(self.rows) * count(self.columns) // width
        loads = [
            load
            for load in scope.operands.outer_loads([self.sums, *self.of_rows])
            if self._in_vectors(scope, load, width)
        ]
        writer.line("const float *sums = (const float *)scratch;")
        step = kernel.form.threads
        shared = self._of_columns(scope, loads, width)
        writer.line("#pragma unroll 1")
        with (
            writer.block(f"for (uint32_t vector = threadIdx.x; vector < {vectors}u; vector += {step})"),
            self._at_vector(scope, width) as (at_vector, positions),
        ):
            early = {load: shared.get(load) or self._vector(at_vector, load, width) for load in loads}
            self._finish(at_vector, positions, early, width)

    def _of_columns(self, scope: Scope, loads: Sequence[Load], width: int) -> dict[Load, str]:
        """What a thread loads ahead for all its vectors, by load; nothing where those differ in their columns."""
        across, rows = count(self.columns) // width, {side.axis for side in self.rows}
        shared = [load for load in loads if rows.isdisjoint(scope.operands.free[load])]
        is_ragged = any(side.is_ragged for side in self.columns)
        if not shared or is_ragged or scope.operands.kernel.form.threads % across:
            return {}
        writer = scope.writer
        writer.let("uint32_t", "own_column", f"threadIdx.x % {across} * {width}")
        positions, _ = decode(writer, "own_column", self.columns)
        positions[self.lane.axis] = replace(positions[self.lane.axis], multiple=width)
        at_column = scope.enter(positions)
        return {load: self._vector(at_column, load, width) for load in shared}

    @contextmanager
    def _at_vector(self, scope: Scope, width: int) -> Iterator[tuple[Scope, Mapping[Axis, Position]]]:
        """The scope at the first element of `vector`, unless it is beyond the result; and where that is."""
        writer, across = scope.writer, count(self.columns) // width
        writer.let("uint32_t", "row", f"vector / {across}")
        writer.let("uint32_t", "column", f"vector % {across} * {width}")
        rows, conditions = decode(writer, "row", self.rows)
        columns, beyond = decode(writer, "column", self.columns)
        place = columns[self.lane.axis]
        columns[self.lane.axis] = replace(place, multiple=width)
        with guarded(writer, [*conditions, *beyond]):
            positions = {**rows, **columns}
            yield scope.enter(positions), positions

    def _finish(self, scope: Scope, positions: Mapping[Axis, Position], early: Mapping[Load, str], width: int) -> None:
        """Compute and store the results of a vector."""
        writer, kernel = scope.writer, scope.operands.kernel
        writer.line(f"float total[{width}];")
        for element in range(0, width, _BANK_FLOATS):
            together = min(width, _BANK_FLOATS)
            writer.line(
                f"rammer_load_vector<{together}>(total + {element}, sums + row * {self.pitch} + column + {element});"
            )
        lane, place = self.lane.axis, positions[self.lane.axis]
        grouped = [
            width > 1 and scope.operands.is_stored_in_groups(i, lane, width, kernel.alignments)
            for i in range(len(kernel.expr.outputs))
        ]
        results = [writer.name("result") if is_grouped else "" for is_grouped in grouped]
        for output, name in zip(kernel.expr.outputs, results, strict=True):
            if name:
                writer.line(f"rammer_vector<{C_TYPES[output.type.dtype]}, {width}> {name};")
        for element in range(width):
            at_element = scope.enter({lane: replace(place, offset=place.offset + element)})
            at_element.bind(self.sums, f"total[{element}]")
            for node, text in self.of_rows.items():
                at_element.bind(node, text)
            for load, name in early.items():
                at_element.bind(load, f"{name}.lane[{element}]")
            for i, (output, name) in enumerate(zip(kernel.expr.outputs, results, strict=True)):
                if name:
                    value = convert(at_element.value(output.body), output.body.dtype, output.type.dtype)
                    writer.line(f"{name}.lane[{element}] = {value};")
                else:
                    at_element.store(i)
        for i, (output, name) in enumerate(zip(kernel.expr.outputs, results, strict=True)):
            if name:
                vector = f"rammer_vector<{C_TYPES[output.type.dtype]}, {width}>"
                address = scope.address(scope.operands.stores[i])
                writer.line(f"*({vector} *)&out{i}[{address}] = {name};")

    def _width(self, scope: Scope) -> int:
        """Neighbouring columns that a thread takes at a time: as many as one load or store brings of the results."""
        kernel = scope.operands.kernel
        element_bytes = min(output.type.dtype.itemsize_bytes for output in kernel.expr.outputs)
        width = min(_MOST, _VECTOR_BYTES // element_bytes)
        share = count(self.rows) * count(self.columns) // kernel.form.threads
        while width > 1 and (width > max(1, share) or self.lane.size % width or self.lane.axis.extent % width):
            width //= 2
        return width

    def _in_vectors(self, scope: Scope, load: Load, width: int) -> bool:
        """Whether one load can bring what a vector reads."""
        return (
            width > 1
            and load.type is not DType.BOOL
            and load.slot not in scope.operands.readers
            and not scope.operands.loads[load].checks
            and scope.operands.lies_in_groups(load, self.lane.axis, width, scope.operands.kernel.alignments)
        )

    def _vector(self, scope: Scope, load: Load, width: int) -> str:
        """The name of the elements of a vector, which are loaded."""
        address, _ = scope.element(load)
        vector = f"rammer_vector<{C_TYPES[load.type]}, {width}>"
        return scope.writer.let(vector, scope.writer.name("early"), f"*(const {vector} *)&in{load.slot}[{address}]")
