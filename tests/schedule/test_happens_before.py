"""The guaranteed order of a schedule against the rule spelled out step by step, and against random runs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given

from rammer.ir.program import Execute, RProgram, Schedule, Signal, Step, Wait
from rammer.ir.task import RTask
from rammer.schedule.happens_before import HappensBefore
from tests.support.schedules import random_run, randoms


def _task(number: int) -> RTask:
    return RTask(number, 0)


def _schedule(*programs: tuple[tuple[Step, ...], ...], counters: int = 4) -> Schedule:
    return Schedule(
        policy="made",
        choice=(),
        programs=tuple(RProgram(steps=steps, counter_count=counters) for steps in programs),
    )


def _random_schedule(generator: random.Random) -> Schedule:
    """Programs in which each step could run when it was added, thresholds often below the number of signals."""
    tasks = iter(range(100))
    programs = []
    for _ in range(generator.randint(1, 2)):
        queues: list[list[Step]] = [[] for _ in range(generator.randint(1, 4))]
        signals = [0, 0, 0]
        for _ in range(generator.randint(0, 25)):
            queue, counter = generator.choice(queues), generator.randrange(3)
            match generator.randrange(4):
                case 0 | 1:
                    queue.append(Execute(_task(next(tasks))))
                case 2:
                    queue.append(Signal(counter))
                    signals[counter] += 1
                case _ if signals[counter]:
                    queue.append(Wait(counter, generator.randint(1, signals[counter])))
        programs.append(tuple(map(tuple, queues)))
    return _schedule(*programs, counters=3)


_Node = tuple[int, int, int]  # rProgram, vEU, position


def _sure(program: RProgram, wait: Wait) -> list[tuple[int, int]]:
    """The signals (vEU, position) without which the threshold cannot be reached."""
    given = [
        (veu, place)
        for veu, queue in enumerate(program.steps)
        for place, step in enumerate(queue)
        if step == Signal(wait.counter)
    ]
    return [
        (giver, at) for giver, at in given if sum(veu != giver or place < at for veu, place in given) < wait.threshold
    ]


def _ordered_pairs(schedule: Schedule) -> set[tuple[RTask, RTask]]:
    """All pairs that program order and sure signals order, by walking the graph of steps."""
    before: dict[_Node, list[_Node]] = {}
    tasks: dict[_Node, RTask] = {}
    for number, program in enumerate(schedule.programs):
        for veu, queue in enumerate(program.steps):
            for place, step in enumerate(queue):
                node = (number, veu, place)
                before[node] = [(number, veu, place - 1)] if place else []
                if isinstance(step, Execute):
                    tasks[node] = step.task
                if isinstance(step, Wait):
                    before[node] += [(number, *signal) for signal in _sure(program, step)]
    pairs: set[tuple[RTask, RTask]] = set()
    for end, task in tasks.items():
        seen, stack = {end}, [end]
        while stack:
            found = [node for node in before[stack.pop()] if node not in seen]
            seen.update(found)
            stack.extend(found)
        pairs.update((tasks[node], task) for node in seen - {end} if node in tasks)
        pairs.update((other, task) for node, other in tasks.items() if node[0] < end[0])
    return pairs


@given(randoms)
def test_the_order_is_that_of_the_rule(generator):
    schedule = _random_schedule(generator)
    order = HappensBefore(schedule)
    expected = _ordered_pairs(schedule)
    for first in order.places:
        for then in order.places:
            assert order.ordered(first, then) == ((first, then) in expected)


@given(randoms, randoms)
def test_no_run_breaks_the_order(generator, runner):
    schedule = _random_schedule(generator)
    order = HappensBefore(schedule)
    ended: list[RTask] = []
    for event, task in random_run(schedule, runner):
        if event == "end":
            ended.append(task)
        else:
            assert all(first in ended for first in order.places if order.ordered(first, task))


def test_a_wait_for_some_signals_orders_none_of_equal_givers():
    schedule = _schedule(
        (
            (Execute(_task(0)), Signal(0)),
            (Execute(_task(1)), Signal(0)),
            (Wait(0, 1), Execute(_task(2)), Wait(0, 2), Execute(_task(3))),
        )
    )
    order = HappensBefore(schedule)
    assert not order.ordered(_task(0), _task(2))
    assert not order.ordered(_task(1), _task(2))
    assert order.ordered(_task(0), _task(3))
    assert order.ordered(_task(1), _task(3))


def test_the_first_signals_of_a_giver_are_sure_when_the_others_are_too_few():
    giver = (Execute(_task(0)), Signal(0), Execute(_task(1)), Signal(0), Execute(_task(2)), Signal(0))
    order = HappensBefore(_schedule((giver, (Execute(_task(3)), Signal(0)), (Wait(0, 3), Execute(_task(4))))))
    assert [order.ordered(_task(number), _task(4)) for number in range(4)] == [True, True, False, False]


def test_programs_run_one_after_another():
    order = HappensBefore(_schedule(((Execute(_task(0)),),), ((), (Execute(_task(1)),))))
    assert order.ordered(_task(0), _task(1))
    assert not order.ordered(_task(1), _task(0))


@pytest.mark.parametrize(
    "steps",
    [
        ((Wait(0, 1), Signal(1)), (Wait(1, 1), Signal(0))),
        ((Wait(0, 1), Signal(0)),),
        (
            (Wait(0, 2), Execute(_task(0))),
            (Signal(0), Wait(1, 1), Signal(0)),
            (Wait(2, 1), Signal(1)),
            (Wait(0, 2), Signal(2)),
        ),
    ],
)
def test_a_deadlock_is_refused(steps):
    with pytest.raises(ValueError, match="deadlock"):
        HappensBefore(_schedule(steps))


def test_a_threshold_above_all_signals_is_refused():
    with pytest.raises(ValueError, match="can never end: there are 1 signals"):
        HappensBefore(_schedule(((Signal(0),), (Wait(0, 2),))))


def test_no_program_has_no_order():
    assert HappensBefore(_schedule()).places == {}
