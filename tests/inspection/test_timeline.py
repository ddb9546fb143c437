"""Runs as bars, measured and predicted, their critical paths, and traces that other tools read."""

import itertools
import json

import numpy as np
import pytest

import rammer
from rammer.inspection.critical import critical_path
from rammer.inspection.predicted import predicted_spans_ns
from rammer.inspection.timeline import bars, fits, to_chrome_trace
from rammer.inspection.usage import busy_shares, live_bytes
from tests.support.run_by_hand import REPORT, SPANS_NS
from tests.support.small_models import mlp_model


@pytest.fixture(scope="module", params=["cpu", "reference"])
def traced(request):
    """A compiled model and the spans of a run."""
    net = rammer.compile(mlp_model(), request.param, veus=2)
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    return net, net.trace({"x": x}).spans_ns


@pytest.fixture(scope="module")
def by_hand():
    """Two rPrograms on two vEUs; the second vEU waits for two rTasks of `first`."""
    return REPORT, SPANS_NS


# --- Bars -------------------------------------------------------------------------------------------------------------


def test_bars_are_the_rtasks_and_the_waits(by_hand):
    drawn = list(bars(*by_hand))
    assert [(bar.program, bar.veu, bar.operator, bar.tile) for bar in drawn] == [
        (0, 0, 0, 0),
        (0, 0, 0, 1),
        (0, 1, None, 0),
        (0, 1, 1, 0),
        (1, 1, 1, 1),
    ]
    assert [bar.duration_us for bar in drawn] == pytest.approx([1.0, 1.99, 3.0, 0.9, 4.0])
    assert drawn[2].awaited == (0,)


def test_every_rtask_of_a_run_is_drawn_once(traced):
    net, spans_ns = traced
    report = net.report
    drawn = [(bar.operator, bar.tile) for bar in bars(report, spans_ns) if bar.operator is not None]
    expected = {
        (number, tile)
        for number, operator in enumerate(report["operators"])
        for tile in range(operator["candidates"][operator["chosen"]]["tasks"])
    }
    assert len(drawn) == len(expected)
    assert set(drawn) == expected


# --- Predicted runs, critical paths, usage ----------------------------------------------------------------------------


def test_the_predicted_run_is_that_of_the_simulator(traced):
    net, _ = traced
    spans_ns = predicted_spans_ns(net.report)
    assert fits(net.report, spans_ns)
    drawn = list(bars(net.report, spans_ns))
    assert max(bar.end_us for bar in drawn) == pytest.approx(net.report["predicted"]["total_us"], abs=2e-3)
    for before, after in itertools.pairwise(drawn):
        if (before.program, before.veu) == (after.program, after.veu):
            assert before.end_us <= after.start_us + 2e-3


def test_a_predicted_wait_ends_a_hand_over_after_what_it_waits_for(by_hand):
    report, _ = by_hand
    drawn = list(bars(report, predicted_spans_ns(report)))
    assert [(bar.veu, bar.start_us, bar.end_us) for bar in drawn] == [
        (0, 0.0, 1.0),
        (0, 1.0, 2.0),
        (1, 0.0, 2.5),
        (1, 2.5, 4.0),
        (1, 6.0, 7.5),
    ]


def test_waits_end_where_an_rtask_starts_early(by_hand):
    """Its overhead of 0.2 us passes during the hand-over; both Waits before it are over by then."""
    report, _ = by_hand
    (first, (wait, execute)), second = report["programs"]
    program = [[*first[:2], ["signal", 6], *first[2:]], [["wait", 6, 1], wait, execute]]
    early = {**report, "programs": [program, second]}
    early["predicted"] = {"starts_us": [[[0.0, 1.0], [2.3]], [[], [6.0]]]}
    drawn = [bar for bar in bars(early, predicted_spans_ns(early)) if (bar.program, bar.veu) == (0, 1)]
    assert [(bar.start_us, bar.end_us) for bar in drawn] == [(0.0, 1.5), (1.5, 2.3), (2.3, 3.8)]


def test_the_critical_path_goes_back_over_waits_and_programs(by_hand):
    report, spans_ns = by_hand
    path = critical_path(report, list(bars(report, spans_ns)))
    assert path.bars == (0, 1, 3, 4)
    assert path.busy_us == pytest.approx(1.0 + 1.99 + 0.9 + 4.0)


def test_the_critical_path_of_any_run_is_a_chain_to_its_end(traced):
    net, spans_ns = traced
    for spans in (spans_ns, predicted_spans_ns(net.report)):
        drawn = list(bars(net.report, spans))
        path = [drawn[number] for number in critical_path(net.report, drawn).bars]
        assert path[-1].end_us == max(bar.end_us for bar in drawn if bar.operator is not None)
        assert all(one.end_us <= other.end_us for one, other in itertools.pairwise(path))


def test_tagged_results_are_part_of_the_critical_path():
    """The second rTask stands still on its vEU without a Wait: it takes what the first one tagged."""
    operator = REPORT["operators"][0]
    report = {
        **REPORT,
        "operators": [operator, operator],
        "edges": [[0, 1, True, True]],
        "programs": [[[["execute", 0, 0]], [["execute", 1, 0]]]],
    }
    spans_ns = ((np.array([[0, 3000]]), np.array([[3300, 4000]])),)
    assert critical_path(report, list(bars(report, spans_ns))).bars == (0, 1)


def test_how_much_is_busy_and_how_much_is_live(by_hand):
    report, spans_ns = by_hand
    drawn = list(bars(report, spans_ns))
    shares = busy_shares(drawn, 2, 9.0)
    assert sum(shares) / len(shares) == pytest.approx((1.0 + 1.99 + 0.9 + 4.0) / 18, rel=1e-3)
    assert shares[0] == 0.5
    assert live_bytes(report, drawn) == [(0.0, 100), (3.1, 107), (9.0, 0)]


# --- The trace event format -------------------------------------------------------------------------------------------


def test_chrome_trace(traced):
    net, spans_ns = traced
    trace = json.loads(to_chrome_trace(net.report, spans_ns))
    names = {operator["name"] for operator in net.report["operators"]}
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(complete) == len(list(bars(net.report, spans_ns)))
    for event in complete:
        assert event["name"] in names | {"wait"}
        assert event["tid"] in (0, 1)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    for veu in (0, 1):  # what runs on one vEU runs in order
        spans = sorted((event["ts"], event["ts"] + event["dur"]) for event in complete if event["tid"] == veu)
        assert all(first[1] <= second[0] + 1e-6 for first, second in itertools.pairwise(spans))


def test_chrome_trace_names_its_rows_and_waits(by_hand):
    events = json.loads(to_chrome_trace(*by_hand))["traceEvents"]
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["vEU 0", "vEU 1"]
    (wait,) = [event for event in events if event["name"] == "wait"]
    assert wait["args"] == {"program": 0, "for": "first"}
