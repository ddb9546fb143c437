"""The epilogue of the skeleton `gemm`: the functors that make results of the sums of a place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.points import decode, guarded, within
from rammer.devices.cuda.emit.tiles import Tiles
from rammer.devices.cuda.emit.vectors import Registers, Vector, compute_vector, store_computed, store_vector
from rammer.ir.kernel_form import Instruction
from rammer.tiling.pattern import Term

_EARLY = 4  # places of a thread at the end of a tile, for which it keeps what it will read in registers
_EARLY_OF_HALVES = 8  # likewise, where operands take half the registers
_EARLY_OF_BYTES = 16  # likewise, of bytes, where neighbouring places have the scales of their columns in common
_PLAIN = 16  # of one whose epilogue reads nothing; more is more code only
_WIDTHS = (4, 2)  # neighbours that a thread may take
_WORD = 4  # bytes that are stored together


def emit_epilogue(scope: Scope, tiles: Tiles, terms: Sequence[Term]) -> str:
    """Write the functors; returns the epilogue of `skeletons/epilogue.cuh` that they make."""
    form, epilogue = tiles.form, _Epilogue(scope=scope, tiles=tiles, terms=terms, width=_width(scope, tiles))
    places = -(-form.threadblock.m * form.threadblock.n // form.threads)
    has_loads = bool(scope.operands.outer_loads())
    return epilogue.at_once() if places <= (_early(form.instruction) if has_loads else _PLAIN) else epilogue.in_turns()


def _early(instruction: Instruction) -> int:
    """Places of a thread for which an epilogue's loads are early."""
    if instruction is Instruction.MMA_I8:
        return _EARLY_OF_BYTES
    return _EARLY_OF_HALVES if instruction in (Instruction.MMA_F16, Instruction.MMA_BF16) else _EARLY


def _width(scope: Scope, tiles: Tiles) -> int:
    """Neighbours of a row that a thread takes at a time: what is stored together, while no thread is idle for it.

    Bytes are stored as words even so.
    """
    operands, lane, form = scope.operands, tiles.columns[0], tiles.form
    if operands.chosen or operands.expr.guards:
        return 1
    outputs = range(len(operands.kernel.expr.outputs))
    places = form.threadblock.m * form.threadblock.n // form.threads
    for width in _WIDTHS:
        vector = Vector(axis=lane.axis, size=width)
        is_whole = lane.size % width == 0 and lane.axis.extent % width == 0
        pays = width == _WORD if form.instruction is Instruction.MMA_I8 else width <= places
        if is_whole and pays and all(vector.is_stored(scope, output) for output in outputs):
            return width
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epilogue:
    """The rest of a product of `terms`, by `width` neighbouring columns of a row."""

    scope: Scope
    tiles: Tiles
    terms: Sequence[Term]
    width: int

    def at_once(self) -> str:
        """The few places of a thread, for which `early` is loaded while the sums run."""
        loads, early = self.scope.operands.outer_loads(), self._registers("early")
        with self.scope.writer.block("struct rammer_early", ";"):
            early.declare(self.scope, loads)
        with self._functor("load", "rammer_early &early") as (at_place, vector):
            early.bring(at_place, vector, loads)
        with self._functor("finish", "const gemm::Sum *parts, const rammer_early &early") as (at_place, vector):
            store_vector(at_place, vector, self._totals(at_place), early)
        return f"rammer_at_once<gemm, {self.width}, rammer_early>(load, finish)"

    def in_turns(self) -> str:
        """Many places of a thread: results are computed, then stored."""
        writer, outputs = self.scope.writer, self.scope.operands.kernel.expr.outputs
        names = [writer.name("result") for _ in outputs]
        results = [f"results.{name}" for name in names]
        with writer.block("struct rammer_results", ";"):
            for output, name in zip(outputs, names, strict=True):
                dtype = output.body.dtype if self.width == 1 else output.type.dtype
                writer.line(f"{C_TYPES[dtype]} {name}[{self.width}];")
        with self._functor("compute", "const gemm::Sum *parts, rammer_results &results") as (at_place, vector):
            loads, loaded = self.scope.operands.outer_loads(), self._registers()
            loaded.declare(at_place, loads)
            loaded.bring(at_place, vector, loads)
            compute_vector(at_place, vector, results, self._totals(at_place), loaded)
        with self._functor("store", "const rammer_results &results") as (at_place, vector):
            store_computed(at_place, vector, results)
        return f"rammer_in_turns<gemm, {self.width}, rammer_results>(compute, store)"

    def _registers(self, holder: str = "") -> Registers:
        """Values that a thread keeps for the places that it takes at a time."""
        return Registers(self.tiles.columns[0].axis if self.width > 1 else None, self.width, 1, holder)

    def _totals(self, at_place: Scope) -> Registers:
        """Write what finds the sums of a place and its neighbours."""
        totals = self._registers()
        totals.declare(at_place, [term.reduce for term in self.terms])
        for number, term in enumerate(self.terms):
            at_place.writer.line(f"gemm::totals<{number}>({totals.array(term.reduce)}, parts, place);")
            at_place.bind(term.reduce, totals.array(term.reduce))  # what they are made of is not looked at again
        return totals

    @contextmanager
    def _functor(self, name: str, parameters: str) -> Iterator[tuple[Scope, Vector]]:
        """A functor of a place of `block`, unless it is beyond the result: the scope there, and its neighbours."""
        writer, form, tiles = self.scope.writer, self.tiles.form, self.tiles
        with writer.block(f"const auto {name} = [&](const rammer_tile &block, uint32_t place, {parameters})", ";"):
            writer.let("uint32_t", "row", f"block.row0 + place / {form.threadblock.n}")
            writer.let("uint32_t", "column", f"block.column0 + place % {form.threadblock.n}")
            in_batch = tiles.enter(self.scope)
            rows, inside = decode(writer, "row", tiles.rows)
            columns, beyond = decode(writer, "column", tiles.columns)
            inside += [*beyond, *within("row", tiles.rows, form.threadblock.m)]
            inside += within("column", tiles.columns, form.threadblock.n)
            with guarded(writer, inside):
                positions = {**rows, **columns}
                if self.width == 1:
                    yield in_batch.enter(positions), Vector()
                    return
                axis = tiles.columns[0].axis
                first = replace(positions.pop(axis), multiple=self.width)
                yield in_batch.enter(positions), Vector(axis=axis, first=first, size=self.width)
