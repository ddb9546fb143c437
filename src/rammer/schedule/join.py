"""Schedules of several models as one rProgram: each on vEUs of its own, or behind others on the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rammer.ir.program import Execute, RProgram, Schedule, Signal, Step, Wait
from rammer.ir.task import RTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The schedule of a model and the vEUs that it was made for, out of all."""

    schedule: Schedule
    veus: range


def join(members: Sequence[Placed], order: Sequence[int], veus: int) -> Schedule:
    """One schedule of several; on vEUs that they share, members follow each other and nobody waits for another one.

    Between two rPrograms of a member, which are one here, its vEUs wait for each other, and for nobody else.

    Args:
        members: their rOperators are numbered one after another.
        order: of the members on vEUs that they share, by number.
        veus: all execution units.
    """
    firsts, first = [], 0
    for member in members:
        firsts.append(first)
        first += len(member.schedule.choice)
    steps: list[list[Step]] = [[] for _ in range(veus)]
    counters = 0
    for number in order:
        whole = _in_one(members[number].schedule.programs)
        for veu, queue in zip(members[number].veus, whole.steps, strict=True):
            steps[veu] += [_moved(step, firsts[number], counters) for step in queue]
        counters += whole.counter_count
    return Schedule(
        policy=members[0].schedule.policy,
        choice=tuple(pick for member in members for pick in member.schedule.choice),
        programs=(RProgram(steps=tuple(map(tuple, steps)), counter_count=counters),),
    )


def _in_one(programs: Sequence[RProgram]) -> RProgram:
    """Some rPrograms that run one after another as one, with a counter between each two that have steps."""
    whole, *others = [program for program in programs if any(program.steps)] or programs[:1]
    for program in others:
        barrier = whole.counter_count
        signallers = sum(map(bool, whole.steps))
        steps = []
        for before, queue in zip(whole.steps, program.steps, strict=True):
            signals = (Signal(barrier),) if before else ()
            waits = (Wait(barrier, signallers),) if queue else ()
            steps.append((*before, *signals, *waits, *(_moved(step, 0, barrier + 1) for step in queue)))
        whole = RProgram(steps=tuple(steps), counter_count=barrier + 1 + program.counter_count)
    return whole


def _moved(step: Step, operators: int, counters: int) -> Step:
    """A step behind so many rOperators and counters of others."""
    match step:
        case Execute(task):
            return Execute(RTask(operators + task.operator, task.tile))
        case Wait(counter, threshold):
            return Wait(counters + counter, threshold)
        case Signal(counter):
            return Signal(counters + counter)
