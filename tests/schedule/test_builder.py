"""The Append / Wait interface: which steps come out of it."""

from __future__ import annotations

import pytest

from rammer.ir.program import Execute, Signal, Wait
from rammer.ir.task import RTask
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.dependencies import TaskSet


def _task(number: int) -> RTask:
    return RTask(number, 0)


def _set(*numbers: int) -> TaskSet:
    return TaskSet(tuple(map(_task, numbers)))


def _build(veus: int, *placed: tuple[int, int, list[TaskSet]]):
    """Append rTasks (number, vEU, what it waits for) in order."""
    builder = ProgramBuilder(veus)
    for number, veu, predecessors in placed:
        builder.wait(_task(number), predecessors)
        builder.append(_task(number), veu)
    return builder.build()


def test_a_predecessor_on_another_unit_signals_and_is_waited_for():
    program = _build(2, (0, 0, []), (1, 1, [_set(0)]))
    assert program.steps == ((Execute(_task(0)), Signal(0)), (Wait(0, 1), Execute(_task(1))))
    assert program.counter_count == 1


def test_program_order_needs_no_wait():
    program = _build(1, (0, 0, []), (1, 0, [_set(0)]))
    assert program.steps == ((Execute(_task(0)), Execute(_task(1))),)
    assert program.counter_count == 0


def test_a_set_has_one_counter_with_as_many_signals_as_members():
    both = _set(0, 1)
    program = _build(4, (0, 0, []), (1, 1, []), (2, 2, [both]), (3, 3, [both]))
    assert program.steps[0] == (Execute(_task(0)), Signal(0))
    assert program.steps[1] == (Execute(_task(1)), Signal(0))
    assert program.steps[2] == (Wait(0, 2), Execute(_task(2)))
    assert program.steps[3] == (Wait(0, 2), Execute(_task(3)))


def test_equal_sets_share_a_counter():
    program = _build(3, (0, 0, []), (1, 1, [_set(0)]), (2, 2, [_set(0)]))
    assert program.counter_count == 1


def test_an_rtask_that_waits_for_many_sets_waits_once_and_shares_the_counter():
    sets = [_set(number) for number in range(4)]
    makers: list[tuple[int, int, list[TaskSet]]] = [(number, number, []) for number in range(4)]
    program = _build(6, *makers, (4, 0, sets), (5, 4, sets), (6, 5, sets))
    assert program.counter_count == 1
    assert program.steps[0] == (Execute(_task(0)), Signal(0), Wait(0, 4), Execute(_task(4)))
    assert all(program.steps[veu] == (Execute(_task(veu)), Signal(0)) for veu in range(1, 4))
    assert program.steps[4] == (Wait(0, 4), Execute(_task(5)))
    assert program.steps[5] == (Wait(0, 4), Execute(_task(6)))


def test_only_the_last_predecessor_on_a_unit_signals():
    program = _build(2, (0, 0, []), (1, 0, []), (2, 0, []), (3, 1, [_set(0, 1)]))
    assert program.steps[0] == (Execute(_task(0)), Execute(_task(1)), Signal(0), Execute(_task(2)))
    assert program.steps[1] == (Wait(0, 1), Execute(_task(3)))


def test_what_an_earlier_wait_implies_is_not_waited_for_again():
    program = _build(2, (0, 0, []), (1, 0, []), (2, 1, [_set(1)]), (3, 1, [_set(0)]))
    assert program.steps[1] == (Wait(0, 1), Execute(_task(2)), Execute(_task(3)))


def test_what_another_unit_waited_for_is_known_through_it():
    program = _build(3, (0, 0, []), (1, 1, [_set(0)]), (2, 2, [_set(1)]), (3, 2, [_set(0)]))
    assert program.steps[2] == (Wait(1, 1), Execute(_task(2)), Execute(_task(3)))


def test_a_member_that_another_member_implies_does_not_signal():
    program = _build(3, (0, 0, []), (1, 1, [_set(0)]), (2, 2, [_set(0, 1)]))
    assert program.steps[0] == (Execute(_task(0)), Signal(0))
    assert program.steps[1] == (Wait(0, 1), Execute(_task(1)), Signal(1))
    assert program.steps[2] == (Wait(1, 1), Execute(_task(2)))


def test_of_several_sets_the_one_that_knows_most_is_waited_for_first():
    program = _build(3, (0, 0, []), (1, 1, [_set(0)]), (2, 2, [_set(0), _set(1)]))
    assert program.steps[2] == (Wait(1, 1), Execute(_task(2)))


def test_a_member_that_all_waiters_know_does_not_signal():
    program = _build(2, (0, 0, []), (1, 1, []), (2, 1, [_set(0, 1)]))
    assert program.steps == (
        (Execute(_task(0)), Signal(0)),
        (Execute(_task(1)), Wait(0, 1), Execute(_task(2))),
    )


def test_several_waits_for_one_task_add_up():
    builder = ProgramBuilder(3)
    builder.append(_task(0), 0)
    builder.append(_task(1), 1)
    builder.wait(_task(2), [_set(0)])
    builder.wait(_task(2), [_set(1)])
    builder.append(_task(2), 2)
    *waits, last = builder.build().steps[2]
    assert set(waits) == {Wait(0, 1), Wait(1, 1)}
    assert last == Execute(_task(2))


def test_a_barrier_orders_all_before_it_before_all_after_it():
    builder = ProgramBuilder(3)
    for number in range(3):
        builder.append(_task(number), number % 2)
    builder.barrier()
    for number in range(3, 6):
        builder.append(_task(number), number - 3)
    program = builder.build()
    assert program.steps == (
        (Execute(_task(0)), Execute(_task(2)), Signal(0), Wait(0, 2), Execute(_task(3))),
        (Execute(_task(1)), Signal(0), Wait(0, 2), Execute(_task(4))),
        (Wait(0, 2), Execute(_task(5))),
    )


def test_an_unused_unit_catches_up_with_several_barriers_at_once():
    builder = ProgramBuilder(3)
    for number in range(4):
        builder.append(_task(number), number % 2)
        builder.barrier()
    builder.append(_task(4), 2)
    assert [step for step in builder.build().steps[2] if isinstance(step, Wait)] == [Wait(3, 1)]


def test_barriers_cost_nothing_on_one_unit():
    builder = ProgramBuilder(1)
    for number in range(3):
        builder.append(_task(number), 0)
        builder.barrier()
    assert builder.build().steps == (tuple(Execute(_task(number)) for number in range(3)),)


def test_what_an_earlier_program_holds_is_not_waited_for():
    first = ProgramBuilder(2)
    first.append(_task(0), 0)
    second = ProgramBuilder(2, after=first)
    second.append(_task(1), 0)
    third = ProgramBuilder(2, after=second)
    third.wait(_task(2), [_set(0, 1)])
    third.append(_task(2), 1)
    assert third.build().steps == ((), (Execute(_task(2)),))


def test_mistakes_of_a_policy_are_refused():
    builder = ProgramBuilder(1)
    builder.append(_task(0), 0)
    with pytest.raises(ValueError, match="already appended"):
        builder.append(_task(0), 0)
    with pytest.raises(ValueError, match="already appended"):
        builder.wait(_task(0), [])
    with pytest.raises(ValueError, match="already appended"):
        ProgramBuilder(1, after=builder).append(_task(0), 0)
    builder.wait(_task(1), [_set(7)])
    with pytest.raises(ValueError, match="is not appended"):
        builder.append(_task(1), 0)
    builder.wait(_task(2), [])
    with pytest.raises(ValueError, match="waits but is not appended"):
        builder.build()
