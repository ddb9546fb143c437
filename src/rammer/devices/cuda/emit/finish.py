"""The epilogue of the skeleton `gemm`: from sums in registers to results in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.blocked import BlockedTile
from rammer.devices.cuda.emit.points import decode, guarded, within
from rammer.ir.expr import Load
from rammer.tiling.gemm import SUMS_PADDING
from rammer.tiling.pattern import Term

_EARLY_TURNS = 4  # of a thread at the end of a block, for which it keeps what it will read in registers
_PLAIN_TURNS = 16  # of one whose rest reads nothing; more is more code only
_RESULTS_TOGETHER = 4  # of a thread that has more, whose loads wait for memory side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end of a block: the splits' sums are put together, then comes the elementwise rest.

    Threads take places of the block in turns, neighbouring threads along lanes. What the rest reads is on its way while
    the sums run: `early` names the loads of each of a thread's few turns, which `bring` loads. The sums lie in scratch
    from byte `parts_at` on.
    """

    tile: BlockedTile
    parts_at: int
    early: Sequence[Mapping[Load, str]]

    @classmethod
    def of(cls, scope: Scope, tile: BlockedTile, parts_at: int) -> Finish:
        """Declares what `bring` loads; nothing if a thread has many turns."""
        writer = scope.writer
        turns = -(-tile.form.threadblock.m * tile.form.threadblock.n // tile.form.threads)
        early = [{load: writer.name("early") for load in scope.operands.outer_loads()} for _ in range(turns)]
        if turns > (_EARLY_TURNS if any(early) else _PLAIN_TURNS):
            return cls(tile=tile, parts_at=parts_at, early=())
        for names in early:
            for load, name in names.items():
                writer.line(f"{C_TYPES[load.dtype]} {name} = 0;")
        return cls(tile=tile, parts_at=parts_at, early=early)

    def bring(self, scope: Scope) -> None:
        """Load what the rest reads."""
        for turn, names in enumerate(self.early):
            if names:
                with self._turn(scope, turn) as at_place:
                    for load, name in names.items():
                        scope.writer.line(f"{name} = {at_place.value(load)};")

    def emit(self, scope: Scope, sums: Mapping[Term, str]) -> None:
        """Write it."""
        writer, form = scope.writer, self.tile.form
        pitch = form.threadblock.n + SUMS_PADDING
        size = form.threadblock.m * pitch
        place = f"(scratch + {self.parts_at})" if self.parts_at else "scratch"
        writer.line(f"float *parts = (float *){place};")
        with writer.block(f"if (split < {form.slices})"):
            for number, name in enumerate(sums.values()):
                first = f"({number * form.slices} + split) * {size} + warp_row * {pitch} + warp_lane"
                writer.line(f"{name}.store<{pitch}>(parts + {first});")
        writer.line("__syncthreads();")
        for turn, names in enumerate(self.early):
            with self._turn(scope, turn) as at_place:
                for load, name in names.items():
                    at_place.bind(load, name)
                self._bind(at_place, sums)
                at_place.store_results()
        if not self.early:
            self._emit_many(scope, sums)

    def _emit_many(self, scope: Scope, sums: Mapping[Term, str]) -> None:
        """The elementwise rest of a thread's many turns, a few at a time.

        A store might change what later loads read, as far as a compiler knows: loads come first.
        """
        writer, outputs = scope.writer, scope.operands.kernel.expr.outputs
        places, threads = self.tile.form.threadblock.m * self.tile.form.threadblock.n, self.tile.form.threads
        results = {output: writer.name("result") for output in outputs}

        @contextmanager
        def each() -> Iterator[Scope]:
            writer.line("#pragma unroll")
            with writer.block(f"for (uint32_t i = 0; i < {_RESULTS_TOGETHER}u; ++i)"):
                writer.let("uint32_t", "place", f"first + i * {threads}")
                conditions = [f"place < {places}u"] if places % (_RESULTS_TOGETHER * threads) else []
                with self._at_place(scope, conditions) as at_place:
                    yield at_place

        turns = f"first = threadIdx.x; first < {places}u; first += {_RESULTS_TOGETHER * threads}"
        writer.line("#pragma unroll 1")
        with writer.block(f"for (uint32_t {turns})"):
            for output, result in results.items():
                writer.line(f"{C_TYPES[output.body.dtype]} {result}[{_RESULTS_TOGETHER}];")
            with each() as at_place:
                self._bind(at_place, sums)
                for output, result in results.items():
                    writer.line(f"{result}[i] = {at_place.value(output.body)};")
            with each() as at_place:
                for output, result in results.items():
                    at_place.bind(output.body, f"{result}[i]")
                at_place.store_results()

    def _bind(self, at_place: Scope, sums: Mapping[Term, str]) -> None:
        """Add up the splits' sums at a place."""
        writer, form = at_place.writer, self.tile.form
        pitch = form.threadblock.n + SUMS_PADDING
        part = writer.let("uint32_t", "part", f"place / {form.threadblock.n} * {pitch} + place % {form.threadblock.n}")
        for number, term in enumerate(sums):
            places = (number * form.slices + split for split in range(form.slices))
            total = " + ".join(f"parts[{place * form.threadblock.m * pitch} + {part}]" for place in places)
            at_place.bind(term.reduce, writer.let("float", writer.name("total"), total))

    @contextmanager
    def _turn(self, scope: Scope, turn: int) -> Iterator[Scope]:
        """The scope at the place that a thread takes at its turn, if there is one."""
        places, threads = self.tile.form.threadblock.m * self.tile.form.threadblock.n, self.tile.form.threads
        conditions = [f"place < {places}u"] if (turn + 1) * threads > places else []
        with scope.writer.block():
            scope.writer.let("uint32_t", "place", f"threadIdx.x + {turn * threads}")
            with self._at_place(scope, conditions) as at_place:
                yield at_place

    @contextmanager
    def _at_place(self, scope: Scope, conditions: Sequence[str]) -> Iterator[Scope]:
        """The scope at the place of that name."""
        writer, tile, form = scope.writer, self.tile, self.tile.form
        writer.let("uint32_t", "row", f"row0 + place / {form.threadblock.n}")
        writer.let("uint32_t", "lane", f"lane0 + place % {form.threadblock.n}")
        rows, inside = decode(writer, "row", tile.rows)
        lanes, beyond = decode(writer, "lane", tile.lanes)
        inside += [
            *beyond,
            *within("row", tile.rows, form.threadblock.m),
            *within("lane", tile.lanes, form.threadblock.n),
        ]
        with guarded(writer, [*conditions, *inside]):
            yield scope.enter({**rows, **lanes})
