"""Parts of several schedules that ran: where one changes over to another, and that what is put together is right."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from rammer.schedule.dependencies import Dependencies, find_waves
from rammer.schedule.happens_before import HappensBefore
from rammer.schedule.policies import POLICIES, sequential
from rammer.schedule.regions import Regions
from rammer.schedule.splicing import Ran, spliced
from tests.support.agreement import DISTINCT
from tests.support.schedules import all_pairs_dependencies, costs, randoms, task_graphs
from tests.support.taskgraphs import TaskGraphMaker, TileCosts, device

TARGET = device(2, handover_us=1.0)


def rows_of(count):
    """Work of one rOperator after another, each with two rKernels."""
    maker = TaskGraphMaker()
    tensor = maker.input((8, 8))
    for _ in range(count):
        tensor = maker.elementwise([tensor], tiles=[(8, 8), (4, 8)])
    return maker.finish([tensor])


def ran(graph, times_us, *, whole, early_us=0.0):
    """A run with large or small rTasks whose rOperators took so long, and began so early."""
    tile = (8, 8) if whole else (4, 8)
    schedule = sequential.schedule(graph, TARGET, TileCosts(by_tile={tile: 1.0}, fixed_us=100.0))
    ends_us = np.cumsum(np.array(times_us))
    spans_us = np.stack([ends_us - np.array(times_us) - early_us, ends_us], axis=1)
    return Ran(schedule=schedule, spans_us=spans_us)


def test_each_part_is_from_where_it_took_least():
    graph = rows_of(4)
    runs = [ran(graph, [10, 10, 30, 10], whole=True), ran(graph, [12, 20, 10, 20], whole=False)]
    assert [set(one.schedule.choice) for one in runs] == [{0}, {1}]
    found = spliced(graph, TARGET, runs)
    assert found is not None
    assert found.choice == (0, 0, 1, 0)
    assert len(found.programs) == 1


def test_one_that_is_the_quickest_everywhere_stays_as_it_is():
    graph = rows_of(3)
    runs = [ran(graph, [10, 20, 10], whole=True), ran(graph, [10, 10, 10], whole=False)]
    assert spliced(graph, TARGET, runs) is None
    assert spliced(graph, TARGET, runs[:1]) is None


def test_a_change_has_to_gain_more_than_parts_differ_elsewhere():
    graph = rows_of(2)
    runs = [ran(graph, [100, 100.3], whole=True), ran(graph, [100.3, 100], whole=False)]
    assert spliced(graph, TARGET, runs) is None
    runs = [ran(graph, [100, 101], whole=True), ran(graph, [101, 100], whole=False)]
    assert spliced(graph, TARGET, runs) is not None


def test_nothing_changes_over_where_what_follows_begins_long_before():
    graph = rows_of(2)
    for early_us, is_clean in ((0.5, True), (0.9, False)):
        runs = [ran(graph, [10, 30], whole=True), ran(graph, [30, 10], whole=False, early_us=early_us)]
        assert (spliced(graph, TARGET, runs) is not None) == is_clean


@settings(max_examples=30)
@given(graph=task_graphs, cost=costs, generator=randoms)
def test_what_is_put_together_is_right(graph, cost, generator):
    dependencies = Dependencies(graph, Regions(graph))
    waves = find_waves(graph, [dependencies.producers(operator.id) for operator in graph.operators])
    runs = []
    for name in sorted(DISTINCT):
        spans_us = np.zeros((len(graph.operators), 2))
        end_us = 0.0
        for wave in waves:  # one after another: every cut is clean
            begin_us, end_us = end_us, end_us + generator.uniform(1, 100)
            spans_us[[operator.id for operator in wave]] = begin_us, end_us
        runs.append(Ran(schedule=POLICIES[name](graph, TARGET, cost), spans_us=spans_us))
    found = spliced(graph, TARGET, runs)
    if found is not None:
        order = HappensBefore(found)
        for task, earlier in all_pairs_dependencies(graph, found.choice).items():
            assert all(order.ordered(producer, task) for producer in earlier)
