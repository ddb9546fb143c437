"""Schedules of several models as one: each on vEUs of its own, or behind others on the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rammer.ir.program import Execute, RProgram, Schedule, Signal, Step, Wait
from rammer.ir.task import RTask


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """The schedule of a model and the vEUs that it was made for, out of all."""

    schedule: Schedule
    veus: range


def join(members: Sequence[Placed], order: Sequence[int], veus: int) -> Schedule:
    """One schedule of several; on vEUs that they share, members follow each other and nobody waits for another one.

    Args:
        members: their rOperators are numbered one after another.
        order: of the members on vEUs that they share, by number.
        veus: all execution units.
    """
    firsts, first = [], 0
    for member in members:
        firsts.append(first)
        first += len(member.schedule.choice)
    programs = []
    for column in zip_longest(*(members[number].schedule.programs for number in order)):
        steps: list[list[Step]] = [[] for _ in range(veus)]
        counters = 0
        for number, program in zip(order, column, strict=True):
            if program is not None:
                for veu, queue in zip(members[number].veus, program.steps, strict=True):
                    steps[veu] += [_moved(step, firsts[number], counters) for step in queue]
                counters += program.counter_count
        programs.append(RProgram(steps=tuple(map(tuple, steps)), counter_count=counters))
    return Schedule(
        policy=members[0].schedule.policy,
        choice=tuple(pick for member in members for pick in member.schedule.choice),
        programs=tuple(programs),
    )


def _moved(step: Step, operators: int, counters: int) -> Step:
    """A step of a member behind so many rOperators and counters of others."""
    match step:
        case Execute(task):
            return Execute(RTask(operators + task.operator, task.tile))
        case Wait(counter, threshold):
            return Wait(counters + counter, threshold)
        case Signal(counter):
            return Signal(counters + counter)
