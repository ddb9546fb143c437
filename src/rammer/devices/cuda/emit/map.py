"""The skeleton `map`: threads take vectors of points in turns, neighbours along the lane axis (`skeletons/map.cuh`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scope import Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.points import Side, count, decode, guarded, lane_first
from rammer.devices.cuda.emit.vectors import Registers, Vector, pending, store_vector
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.expr import Load
from rammer.ir.kernel_form import MapForm


def emit_map(scope: Scope, sides: Sequence[Side], form: MapForm) -> None:
    """Write the loop over the points of one rTask."""
    emit_wait(scope.writer)
    ordered = lane_first(scope.operands.kernel, [side for side in sides if side.axis not in scope.operands.chosen])
    emit_points(scope, ordered, Team(size="RAMMER_THREADS", rank="threadIdx.x"), form)


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Threads that share something out, as the code has them: how many there are, and the rank of each."""

    size: str
    rank: str


def emit_points(scope: Scope, sides: Sequence[Side], team: Team, form: MapForm) -> None:
    """Write what a team computes at the points of `sides`, in vectors along the first of them."""
    axis = sides[0].axis if sides else None

    def at_vector(number: str) -> tuple[Scope, Vector, list[str]]:
        positions, conditions = decode(scope.writer, number, sides, form.vector)
        vector = Vector() if axis is None else Vector(axis=axis, first=positions.pop(axis), size=form.vector)
        return scope.enter(positions), vector, conditions

    emit_turns(scope, Registers(axis, form.vector, form.turns), count(sides) // form.vector, team, at_vector)


def emit_turns(
    scope: Scope,
    registers: Registers,
    vectors: int,
    team: Team,
    at_vector: Callable[[str], tuple[Scope, Vector, list[str]]],
    known: Sequence[Registers] = (),
) -> None:
    """Write what a team computes of so many vectors, some in a turn, whose loads come first.

    Args:
        scope: around all of it.
        registers: for what is loaded.
        vectors: how many there are.
        team: who shares them out.
        at_vector: writes where the vector of a number is; gives its scope, and conditions that hold if it is there.
        known: values that are in registers already.
    """
    writer, share = scope.writer, scope.writer.name("share")
    scope.hoist(scope.operands.results)
    writer.line(f"typedef rammer_share<{vectors}u, {team.size}, 1, {registers.turns}> {share};")

    @contextmanager
    def each() -> Iterator[tuple[Scope, Vector]]:
        with each_turn(writer, share, "block", team):
            at, vector, conditions = at_vector("element")
            with guarded(writer, conditions):
                yield at, vector

    with writer.block(f"for (uint32_t block = 0; block < {share}::BLOCKS; ++block)"):
        if registers.turns > 1 or registers.size > 1:
            kept = [node for one in known for node in one.kept]
            free, inside = scope.operands.free, scope.positions.keys()
            loads = [node for node in pending(scope.operands.results, kept) if isinstance(node, Load)]
            loads = [load for load in loads if not free[load] <= inside]
            registers.declare(scope, loads)
            with each() as (at, vector):
                registers.bring(at, vector, loads)
        with each() as (at, vector):
            store_vector(at, vector, *known, registers)


@contextmanager
def each_turn(writer: Writer, share: str, block: str, team: Team) -> Iterator[None]:
    """What a thread does for each of its vectors in a block: number `turn`, from `element` on."""
    head = f"{share}::each({block}, {team.rank}, [&](int turn, {writer.index_type} element)"
    with writer.block(head, ");"):
        yield
