"""The runs of recurrent layers' rKernels in a schedule, which say what code their walks need (`runtime/runs.cuh`).

`records` marks the runs in the tables, which are made when code is being compiled: they are those that are found here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rammer.ir.program import Execute, Schedule, Signal, Step, Wait
from rammer.ir.task import RTask, TaskGraph
from rammer.tiling.persistent_rnn import Family, Stationary

_LONG = 8  # rTasks of a run that pay for a loop of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """What runs of a stationary rKernel there can be.

    Attributes:
        begin: some that do not join one before, so that weights are loaded.
        busy: some that have Waits, Signals or predicates.
        long: long ones that have none.
    """

    begin: bool = True
    busy: bool = True
    long: bool = True


def runs_of(
    graph: TaskGraph, schedule: Schedule, numbers: Mapping[int, int], stationary: Mapping[int, Stationary]
) -> Mapping[int, Runs]:
    """The runs of each stationary rKernel that a schedule has, by its number.

    Args:
        graph: what is scheduled.
        schedule: the schedule.
        numbers: the rKernel's number by the rOperator's.
        stationary: those that keep weights, by number.
    """
    found: dict[int, Runs] = {}
    for program in schedule.programs:
        for queue in program.steps:
            for run in _runs(graph, queue, numbers, stationary, apart=len(schedule.programs) > 1):
                is_long = run.length >= _LONG and not run.busy
                known = found.get(run.kernel, Runs(begin=False, busy=False, long=False))
                found[run.kernel] = Runs(
                    begin=known.begin or run.begins, busy=known.busy or run.busy, long=known.long or is_long
                )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """rTasks that a walk goes along."""

    kernel: int
    length: int
    begins: bool
    busy: bool


class _Place(NamedTuple):
    """Where an rTask is in a walk: the same one goes on with its run, the same weights join it."""

    kernel: int
    family: Family
    tile: int
    kept: tuple[tuple[int, int], ...]
    weights: tuple[tuple[int, int], ...]

    def joins(self, before: _Place) -> bool:
        """Whether it finds the weights of the run before it."""
        return (self.family, self.tile, self.weights) == (before.family, before.tile, before.weights)


def _runs(
    graph: TaskGraph,
    queue: Sequence[Step],
    numbers: Mapping[int, int],
    stationary: Mapping[int, Stationary],
    *,
    apart: bool,
) -> Iterator[_Run]:
    """The runs of a vEU's queue. Where rPrograms are `apart`, a Wait comes before it and a Signal behind.

    Waits and Signals may take records of their own, behind which a walk begins anew.
    """
    run: _Run | None = None
    before: _Place | None = None
    waited, separated = apart, True
    for step in queue:
        match step:
            case Wait():
                waited = separated = True
            case Signal():
                separated = True
                run = None if run is None else replace(run, busy=True)
            case Execute(task):
                now = _place(graph, task, numbers[task.operator], stationary)
                busy = waited or graph.operators[task.operator].predicate is not None
                if run is not None and now is not None and now == before:
                    run = replace(run, length=run.length + 1, begins=run.begins or separated, busy=run.busy or busy)
                else:
                    if run is not None:
                        yield run
                    joins = now is not None and before is not None and now.joins(before) and not separated
                    run = None if now is None else _Run(kernel=now.kernel, length=1, begins=not joins, busy=busy)
                before, waited, separated = now, False, False
    if run is not None:
        yield replace(run, busy=run.busy or apart)


def _place(graph: TaskGraph, task: RTask, number: int, stationary: Mapping[int, Stationary]) -> _Place | None:
    """None of an rTask that keeps nothing."""
    if number not in stationary:
        return None
    keeps = stationary[number]

    def lie(slots: Sequence[int]) -> tuple[tuple[int, int], ...]:
        bindings = [graph.operators[task.operator].bindings[slot] for slot in slots]
        tensors = [graph.tensors[binding.tensor] for binding in bindings]
        return tuple(
            (graph.root(tensor.id).id, tensor.layout.address(binding.origin) * tensor.element_bytes)
            for tensor, binding in zip(tensors, bindings, strict=True)
        )

    return _Place(kernel=number, family=keeps.family, tile=task.tile, kept=lie(keeps.kept), weights=lie(keeps.weights))
