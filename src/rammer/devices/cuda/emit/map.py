"""The skeleton `map`: threads take vectors of points in turns, neighbours along the lane axis (`skeletons/map.cuh`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.emit.points import Side, count, decode, guarded, lane_first
from rammer.devices.cuda.emit.vectors import Registers, Vector, pending, store_vector
from rammer.devices.cuda.emit.wait import emit_wait
from rammer.ir.expr import Load
from rammer.ir.kernel_form import MapForm

AtVector = Callable[[], tuple[Scope, Vector, list[str]]]
"""Writes where the vector number `element` is; gives its scope, and conditions that hold if it is there."""


def emit_map(scope: Scope, sides: Sequence[Side], form: MapForm) -> None:
    """Write the loop over the points of one rTask."""
    emit_wait(scope.writer)
    ordered = lane_first(scope.operands.kernel, [side for side in sides if side.axis not in scope.operands.chosen])
    emit_points(scope, ordered, "RAMMER_THREADS", "threadIdx.x", form)


def emit_points(scope: Scope, sides: Sequence[Side], team: str, rank: str, form: MapForm) -> None:
    """Write what the threads of a team, each of which has a rank, compute at the points of `sides`.

    They take vectors along the first of them.
    """
    axis = sides[0].axis if sides else None

    def at_vector() -> tuple[Scope, Vector, list[str]]:
        positions, conditions = decode(scope.writer, "element", sides, form.vector)
        vector = Vector() if axis is None else Vector(axis=axis, first=positions.pop(axis), size=form.vector)
        return scope.enter(positions), vector, conditions

    share = f"rammer_share<{count(sides) // form.vector}u, {team}, 1, {form.turns}>"
    emit_vectors(scope, share, rank, Registers(axis, form.vector, form.turns, "loaded"), at_vector)


def emit_vectors(
    scope: Scope, share: str, rank: str, loaded: Registers, at_vector: AtVector, known: Registers | None = None
) -> None:
    """Write what computes and stores the outputs of vectors, whose loads come first.

    Args:
        scope: around all of it.
        share: the type that shares them out.
        rank: of a thread.
        loaded: for what is loaded.
        at_vector: where a vector is.
        known: values that are in registers already.
    """
    operands, inside = scope.operands, scope.positions.keys()
    scope.hoist(operands.results)
    loads: list[Load] = []
    if loaded.turns > 1 or loaded.size > 1:
        needed = pending(operands.results, known.kept if known else ())
        loads = [node for node in needed if isinstance(node, Load) and not operands.free[node] <= inside]
    with run(scope, share, rank, loaded, loads, at_vector) as (at, vector):
        store_vector(at, vector, *([known] if known else []), loaded)


@contextmanager
def run(
    scope: Scope, share: str, rank: str, loaded: Registers, loads: Sequence[Load], at_vector: AtVector
) -> Iterator[tuple[Scope, Vector]]:
    """Write the functors of `rammer_share::run`: what brings the loads of a vector, and what is written inside."""
    writer = scope.writer
    type_, bring, finish = (writer.name(prefix) for prefix in ("loaded", "bring", "finish"))

    @contextmanager
    def functor(name: str, parameter: str) -> Iterator[tuple[Scope, Vector]]:
        with writer.block(f"const auto {name} = [&]({writer.index_type} element, {parameter} &loaded)", ";"):
            at, vector, conditions = at_vector()
            with guarded(writer, conditions):
                yield at, vector

    with writer.block(f"struct {type_}", ";"):
        loaded.declare(scope, loads)
    with functor(bring, type_) as (at, vector):
        loaded.bring(at, vector, loads)
    with functor(finish, f"const {type_}") as (at, vector):
        yield at, vector
    writer.line(f"{share}::run<{type_}>({rank}, {bring}, {finish});")
