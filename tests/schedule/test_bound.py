"""No schedule ends before its bounds, and they are tight where one can see it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rammer.schedule.bound import Bounds, Edge, find_edges, problem_of
from rammer.schedule.bound import find_bounds as bounds_of_problem
from rammer.schedule.policies import POLICIES
from rammer.schedule.simulator import simulate
from tests.support.schedules import costs, task_graphs
from tests.support.taskgraphs import TaskGraphMaker, TileCosts, device

COSTS = TileCosts(element_us=1.0)


def find_bounds(graph, target, costs, choice) -> Bounds:
    return bounds_of_problem(problem_of(graph, target, costs), choice)


@given(
    graph=task_graphs,
    costs=costs,
    veus=st.integers(1, 6),
    policy=st.sampled_from(sorted(POLICIES)),
    overhead_us=st.sampled_from([0.0, 0.25, 0.75]),
    starts_early=st.booleans(),
)
def test_no_schedule_ends_before_its_bounds(graph, costs, veus, policy, overhead_us, starts_early):
    target = device(veus, handover_us=0.5, task_overhead_us=overhead_us, starts_early=starts_early)
    schedule = POLICIES[policy](graph, target, costs)
    found = find_bounds(graph, target, costs, schedule.choice)
    ended_us = simulate(graph, schedule, target, costs).total_us
    assert found.any_us <= found.chosen_us * (1 + 1e-6)
    assert found.any_us <= found.with_handovers_us * (1 + 1e-6)
    assert found.chosen_us <= ended_us * (1 + 1e-6)


def test_independent_work_is_bound_by_the_units():
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.input((1, count))]) for count in (2, 3, 4)])
    assert find_bounds(graph, device(2), COSTS, (0, 0, 0)).chosen_us == pytest.approx(4.5)
    assert find_bounds(graph, device(8), COSTS, (0, 0, 0)).chosen_us == pytest.approx(4.0)


def test_a_chain_is_bound_by_its_length():
    maker = TaskGraphMaker()
    x = maker.input((1, 4))
    y = maker.elementwise([maker.elementwise([x])])
    graph = maker.finish([y])
    found = find_bounds(graph, device(8, handover_us=0.5), COSTS, (0, 0))
    assert found.chosen_us == pytest.approx(8.0)
    assert found.with_handovers_us == pytest.approx(8.5)


def test_the_best_candidates_bound_all_schedules():
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.input((4, 4))], tiles=[(4, 4), (1, 4)])])
    found = find_bounds(graph, device(4), COSTS, (0,))
    assert found.chosen_us == pytest.approx(16.0)
    assert found.any_us == pytest.approx(4.0)


def test_a_consumer_of_a_part_may_start_before_the_rest_is_there():
    """The second rOperator's tiles each read one tile of the first, so its first may run beside the first's last."""
    maker = TaskGraphMaker()
    x = maker.input((4, 4))
    graph = maker.finish([maker.elementwise([maker.elementwise([x], tiles=[(1, 4)])], tiles=[(1, 4)])])
    assert find_edges(graph) == [Edge(producer=0, consumer=1, starts=True, ends=True)]
    assert find_bounds(graph, device(2), COSTS, (0, 0)).chosen_us == pytest.approx(16.0)  # 32 elements on two vEUs


def test_nothing_to_do_takes_no_time():
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.input((0, 4))])])
    assert find_bounds(graph, device(2), COSTS, (0,)).any_us == 0.0


def test_the_solver_prints_nothing(capfd):
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.input((1, 4))])])
    assert find_bounds(graph, device(2), COSTS, (0,)).any_us > 0
    assert capfd.readouterr() == ("", "")
