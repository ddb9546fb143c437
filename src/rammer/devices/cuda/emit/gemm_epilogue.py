"""The epilogue of the skeleton `gemm`: the functors that make results of the sums of a place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.loads import Early
from rammer.devices.cuda.emit.points import decode, guarded, within
from rammer.devices.cuda.emit.tiles import Tiles
from rammer.ir.kernel_form import Instruction
from rammer.tiling.pattern import Term

_EARLY_TURNS = 4  # of a thread at the end of a tile, for which it keeps what it will read in registers
_EARLY_TURNS_OF_HALVES = 8  # likewise, where operands take half the registers or less
_PLAIN_TURNS = 16  # of one whose epilogue reads nothing; more is more code only


def emit_epilogue(scope: Scope, tiles: Tiles, terms: Sequence[Term]) -> str:
    """Write the functors; returns the epilogue of `skeletons/gemm.cuh` that they make."""
    form = tiles.form
    turns = -(-form.threadblock.m * form.threadblock.n // form.threads)
    has_loads = bool(scope.operands.outer_loads())
    of_halves = form.instruction in (Instruction.MMA_F16, Instruction.MMA_BF16, Instruction.MMA_I8)
    early_turns = _EARLY_TURNS_OF_HALVES if of_halves else _EARLY_TURNS
    if turns <= (early_turns if has_loads else _PLAIN_TURNS):
        return _emit_at_once(scope, tiles, terms)
    return _emit_in_turns(scope, tiles, terms)


def _emit_at_once(scope: Scope, tiles: Tiles, terms: Sequence[Term]) -> str:
    """The few places of a thread, for which `early` is loaded while the sums run."""
    early = Early(scope.writer, scope.operands.outer_loads(), " = 0")
    with _functor(scope, tiles, "load", "rammer_early &early") as at_place:
        early.load(at_place)
    with _functor(scope, tiles, "finish", "const gemm::Sum *parts, const rammer_early &early") as at_place:
        early.bind(at_place)
        _bind_totals(at_place, terms)
        at_place.store_results()
    return "rammer_at_once<gemm, rammer_early>(load, finish)"


def _emit_in_turns(scope: Scope, tiles: Tiles, terms: Sequence[Term]) -> str:
    """Many places of a thread: results are computed, then stored."""
    writer, outputs = scope.writer, scope.operands.kernel.expr.outputs
    results = [writer.name("result") for _ in outputs]
    with writer.block("struct rammer_results", ";"):
        for output, name in zip(outputs, results, strict=True):
            writer.line(f"{C_TYPES[output.body.dtype]} {name};")
    with _functor(scope, tiles, "compute", "const gemm::Sum *parts, rammer_results &results") as at_place:
        _bind_totals(at_place, terms)
        for output, name in zip(outputs, results, strict=True):
            writer.line(f"results.{name} = {at_place.value(output.body)};")
    with _functor(scope, tiles, "store", "const rammer_results &results") as at_place:
        for output, name in zip(outputs, results, strict=True):
            at_place.bind(output.body, f"results.{name}")
        at_place.store_results()
    return "rammer_in_turns<gemm, rammer_results>(compute, store)"


@contextmanager
def _functor(scope: Scope, tiles: Tiles, name: str, parameters: str) -> Iterator[Scope]:
    """A functor of a place of `block`: the scope at that place, unless it is beyond the result."""
    writer, form = scope.writer, tiles.form
    with writer.block(f"const auto {name} = [&](const rammer_tile &block, uint32_t place, {parameters})", ";"):
        writer.let("uint32_t", "row", f"block.row0 + place / {form.threadblock.n}")
        writer.let("uint32_t", "column", f"block.column0 + place % {form.threadblock.n}")
        in_batch = tiles.enter(scope)
        rows, inside = decode(writer, "row", tiles.rows)
        columns, beyond = decode(writer, "column", tiles.columns)
        inside += [*beyond, *within("row", tiles.rows, form.threadblock.m)]
        inside += within("column", tiles.columns, form.threadblock.n)
        with guarded(writer, inside):
            yield in_batch.enter({**rows, **columns})


def _bind_totals(at_place: Scope, terms: Sequence[Term]) -> None:
    """Let the scope of a place find its sums."""
    writer = at_place.writer
    for number, term in enumerate(terms):
        total = writer.let("gemm::Sum", writer.name("total"), f"gemm::total<{number}>(parts, place)")
        at_place.bind(term.reduce, total)
