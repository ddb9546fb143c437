"""Results that leave the caches of the vEUs that write them, and what a run takes longer for these."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rammer.ir.program import Execute, RProgram, Schedule, Signal, Wait
from rammer.ir.task import RTask
from rammer.schedule.leaving import Written, find_far_bytes, find_leaving
from rammer.schedule.simulator import simulate
from tests.support.taskgraphs import TaskGraphMaker, TileCosts, device

BYTES = 256  # of each result below


def made():
    """A result, two that read it, and one that none reads."""
    maker = TaskGraphMaker()
    first = maker.elementwise([maker.input((1, BYTES // 4))])
    return maker.finish(
        [maker.elementwise([first]), maker.elementwise([first]), maker.elementwise([maker.input((1, 64))])]
    )


def execute(*operators):
    return tuple(Execute(RTask(operator, 0)) for operator in operators)


def on(*queues, waits=0):
    """The rOperators of each vEU, in one rProgram."""
    return Schedule(policy="made", choice=(0,) * 4, programs=(RProgram(steps=tuple(queues), counter_count=waits),))


def leaving(schedule, own_cache_bytes=2 * BYTES):
    return find_leaving(made(), Written.of(schedule, [BYTES] * 4), own_cache_bytes)


def test_results_stay_where_one_that_reads_them_comes_next():
    assert leaving(on(execute(0, 1, 3, 2))) == {(0, 1), (0, 2), (0, 3)}  # the outputs are read by nobody


@pytest.mark.parametrize(("own_cache_bytes", "stay"), [(2 * BYTES, True), (2 * BYTES - 1, False)])
def test_results_leave_where_too_much_is_written_before_they_are_read(own_cache_bytes, stay):
    found = leaving(on(execute(0, 3, 1, 2)), own_cache_bytes)
    assert ((0, 0) not in found) == stay


def test_results_leave_for_other_units():
    assert (0, 0) in leaving(on(execute(0, 3), execute(1, 2)))


def test_what_is_written_counts_over_all_programs():
    programs = tuple(RProgram(steps=(execute(*operators),), counter_count=0) for operators in ((0, 3), (1, 2)))
    schedule = Schedule(policy="made", choice=(0,) * 4, programs=programs)
    assert (0, 0) not in leaving(schedule)
    assert (0, 0) in leaving(schedule, BYTES)


@pytest.mark.parametrize(
    ("room_bytes", "longer_us"), [(1 << 20, 0.0), (1, 2 * BYTES / 100 - 1.0)], ids=["all is near", "too much"]
)
@pytest.mark.parametrize("is_apart", [False, True])
def test_lines_of_results_that_leave_come_from_memory_and_go_back(room_bytes, longer_us, is_apart):
    """Twice the result's bytes at 100 a microsecond, less the microsecond that the rTask takes anyway."""
    apart = ((*execute(0), Signal(0)), (Wait(0, 1), *execute(1, 2, 3)))
    schedule = on(*apart, waits=1) if is_apart else on(execute(0, 1, 2, 3))
    plain = device(2, handover_us=0.0, own_cache_bytes=1 << 20)
    inner, memory = plain.levels
    levels = (
        inner,
        replace(inner, name="shared", shared=True, capacity_bytes=room_bytes),
        replace(memory, bandwidth_bytes_per_us=replace(memory.bandwidth_bytes_per_us, value=100.0)),
    )
    target = replace(plain, levels=levels, streams_constants=True)
    times = {
        span.task.operator: span.end_us - span.start_us
        for span in simulate(made(), schedule, target, TileCosts(element_us=1 / 64)).spans
    }
    assert times[0] == pytest.approx(1.0 + (longer_us if is_apart else 0.0))
    assert times[1] == pytest.approx(1.0 + longer_us)


def far(schedule, own_cache_bytes):
    return find_far_bytes(made(), schedule, Written.of(schedule, [BYTES] * 4), own_cache_bytes)


def test_results_are_near_for_who_made_them_until_too_much_is_written():
    schedule = on(execute(0, 1, 3, 2))  # two results are written between, and what is read takes place, too
    assert far(schedule, 3 * BYTES) == {}
    assert far(schedule, 3 * BYTES - 1) == {(0, 2): BYTES}


def test_results_are_far_for_other_units():
    assert far(on(execute(0, 1), execute(3, 2)), 1 << 20) == {(1, 2): BYTES}


def test_of_what_several_made_each_counts():
    maker = TaskGraphMaker()
    joined = maker.intermediate((1, 128))
    for part in range(2):
        maker.elementwise([maker.input((1, 64))], into=joined, at=(0, 64 * part))
    graph = maker.finish([maker.elementwise([joined])])
    schedule = Schedule(
        policy="made", choice=(0,) * 3, programs=(RProgram(steps=(execute(0), execute(1, 2)), counter_count=0),)
    )
    assert find_far_bytes(graph, schedule, Written.of(schedule, [BYTES] * 3), 1 << 20) == {(1, 2): BYTES}


@pytest.mark.parametrize(("own_cache_bytes", "longer_us"), [(0, 0.0), (1, BYTES / 50 - BYTES / 200), (1 << 20, 0.0)])
def test_what_is_far_comes_at_the_rate_of_the_shared_cache(own_cache_bytes, longer_us):
    plain = device(1, handover_us=0.0, own_cache_bytes=own_cache_bytes)
    levels = tuple(
        replace(level, shared=shared, bandwidth_bytes_per_us=replace(level.bandwidth_bytes_per_us, value=rate))
        for level, shared, rate in zip(
            (plain.levels[0], *plain.levels), (False, True, True), (200.0, 50.0, 20.0), strict=True
        )
    )
    times = [
        span.end_us - span.start_us
        for span in simulate(
            made(), on(execute(0, 1, 2, 3)), replace(plain, levels=levels), TileCosts(element_us=1 / 64)
        ).spans
    ]
    assert times == pytest.approx([1.0, 1.0 + longer_us, 1.0 + longer_us, 1.0])
