"""What vEUs do with their time, from a trace."""

import json

import numpy as np
import pytest

from benchmarks.handover import Spread, read

# vEU 0 runs an rTask of 4 us and one of 2; vEU 1 waits for the first, vEU 2 for both, with two Waits side by side.
REPORT = json.loads(
    """{"programs": [[
        [["execute", 0, 0], ["signal", 0], ["execute", 1, 0], ["signal", 1]],
        [["wait", 0, 1], ["execute", 2, 0], ["signal", 2]],
        [["wait", 0, 1], ["wait", 2, 1], ["execute", 3, 0], ["wait", 1, 1]]
    ]]}"""
)


def spans(*queues):
    return [[np.array(queue, dtype=np.int64) for queue in queues]]


SPANS = spans(
    [(0, 4000), (4000, 4100), (4100, 6100), (6100, 6200)],
    [(100, 5000), (5000, 7000), (7000, 7100)],
    [(0, 8000), (0, 8000), (8000, 10_000), (10_000, 10_050)],
)


def test_time_is_shared_out():
    run = read(REPORT, SPANS)
    assert run.total_us == pytest.approx(10.05)
    assert run.computing == pytest.approx((4 + 2 + 2 + 2) / (3 * 10.05))
    # The two Waits side by side stand at the same time.
    assert run.waiting == pytest.approx((4.9 + 8.0 + 0.05) / (3 * 10.05))


def test_a_wait_is_late_by_what_follows_the_last_rtask_that_it_waits_for():
    # What the last Wait asks for was there before it began, so it says nothing.
    assert read(REPORT, SPANS).late_us == pytest.approx((1.0, 1.0))


def test_a_threshold_asks_for_so_many_signals():
    report = {"programs": [[[["execute", 0, 0], ["signal", 0]], [["execute", 0, 1], ["signal", 0]], [["wait", 0, 1]]]]}
    times = spans([(0, 1000), (1000, 1000)], [(0, 3000), (3000, 3000)], [(0, 1600)])
    assert read(report, times).late_us == pytest.approx((0.6,))


def test_a_signal_of_ones_own_is_not_handed_over():
    report = {"programs": [[[["execute", 0, 0], ["signal", 0], ["wait", 0, 1]]]]}
    run = read(report, spans([(0, 1000), (1000, 1000), (900, 1200)]))
    assert run.late_us == ()
    assert run.waiting == pytest.approx(0.25)


def test_spreads():
    assert Spread.of(range(101)) == Spread(count=101, median_us=50, p10_us=10, p90_us=90)
