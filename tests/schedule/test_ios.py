"""IOS's stages are the best there are, by trying out all of them; and what the policy makes of them is a schedule."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rammer.schedule.dependencies import Dependencies
from rammer.schedule.endings import Dag, Pruning, members
from rammer.schedule.estimates import Estimates
from rammer.schedule.group_times import GroupTimes
from rammer.schedule.policies import ios
from rammer.schedule.regions import Regions
from rammer.schedule.simulator import simulate
from tests.support.schedules import task_graphs
from tests.support.taskgraphs import TaskGraphMaker, TileCosts, branches, device

COSTS = TileCosts(element_us=1.0)
ALL = Pruning(group=99, groups=99)


def random_branches(generator: random.Random, operators: int):
    """Elementwise rOperators of few elements that read one or two values made before."""
    maker = TaskGraphMaker()
    values = [maker.input((1, 4))]
    for _ in range(operators):
        values.append(maker.elementwise(generator.sample(values, min(len(values), generator.randint(1, 2)))))
    return maker.finish([values[-1]])


def random_merges(generator: random.Random, graph) -> ios.Merges:
    """Some rOperators of which any can be one, or only neighbours, in a time that follows from how many they are."""
    kinds: dict[int, ios.Sibling] = {}
    for number, _ in enumerate(graph.operators):
        if generator.random() < 0.7:
            siblings = generator.randrange(2)
            kinds[number] = ios.Sibling(siblings, None if siblings else generator.randrange(3))
    each_us = generator.choice([1.0, 3.0, 6.0])

    def time_us(operators: tuple[int, ...]) -> float | None:
        own = [kinds[number] for number in operators if number in kinds]
        places = sorted(kind.place for kind in own if kind.place is not None)
        is_one = len(own) == len(operators) and len({kind.siblings for kind in own}) == 1
        if not is_one or (places and places != list(range(places[0], places[0] + len(own)))):
            return None
        return 2.0 + each_us * len(operators)

    return ios.Merges(kinds=kinds, time_us=time_us)


def brute_force_us(graph, veus: int, estimates: Estimates, merges: ios.Merges = ios.NO_MERGES) -> float:
    """The least time of any list of stages: every way to split what is left into a stage and the rest."""
    dependencies = Dependencies(graph, Regions(graph))
    dag = Dag.of([dependencies.producers(operator.id) for operator in graph.operators])
    times = GroupTimes(graph, veus, estimates)
    best = {0: 0.0}

    def parts(stage: int) -> list[tuple[int, ...]]:
        found = []
        while stage:
            part = stage & -stage
            while (wider := part | dag.neighbours(part) & stage) != part:
                part = wider
            found.append(tuple(members(part)))
            stage &= ~part
        return found

    def stage_us(stage: int) -> float:
        groups = parts(stage)
        beside_us = times.stage(groups).total_us
        as_one_us = merges.time_us(tuple(members(stage))) if len(groups) == stage.bit_count() > 1 else None
        return beside_us if as_one_us is None else min(beside_us, as_one_us)

    def solve(left: int) -> float:
        if left not in best:
            subsets = (
                sum(1 << i for i in chosen)
                for count in range(1, left.bit_count() + 1)
                for chosen in itertools.combinations(members(left), count)
            )
            closed = (s for s in subsets if all(dag.successors[i] & left & ~s == 0 for i in members(s)))
            best[left] = min(solve(left & ~s) + stage_us(s) for s in closed)
        return best[left]

    return solve(dag.everything)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), operators=st.integers(1, 8), veus=st.integers(1, 5))
def test_the_optimum_is_that_of_brute_force(seed, operators, veus):
    graph = random_branches(random.Random(seed), operators)
    estimates = Estimates(graph, device(veus), COSTS)
    found = ios.find_stages(graph, veus, estimates, ALL)
    assert found.greedy == 0
    assert found.total_us == pytest.approx(brute_force_us(graph, veus, estimates))


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), operators=st.integers(2, 8), veus=st.integers(1, 5))
def test_with_both_kinds_of_stages_too(seed, operators, veus):
    generator = random.Random(seed)
    graph = random_branches(generator, operators)
    merges = random_merges(generator, graph)
    estimates = Estimates(graph, device(veus), COSTS)
    found = ios.find_stages(graph, veus, estimates, ALL, merges=merges)
    assert found.total_us == pytest.approx(brute_force_us(graph, veus, estimates, merges))
    times = GroupTimes(graph, veus, estimates)
    merged = dict(zip(found.merged, map(merges.time_us, found.merged), strict=True))
    assert None not in merged.values()
    spent = [
        merged.get(stage[0].operators) or times.stage([group.operators for group in stage]).total_us
        for stage in found.stages
    ]
    assert sum(spent) == pytest.approx(found.total_us)


def test_interchangeable_branches_are_merged_under_their_own_names():
    """Of six equal branches of two, the first ones could be one: neighbours, two at a time."""
    graph = branches(6, 2)
    dependencies = Dependencies(graph, Regions(graph))
    first = [operator.id for operator in graph.operators if not dependencies.producers(operator.id)]
    kinds = {number: ios.Sibling("x", None) for number in first}
    merges = ios.Merges(kinds=kinds, time_us=lambda own: 0.5 if set(own) <= set(first) else None)
    found = ios.find_stages(graph, 2, Estimates(graph, device(2), COSTS), merges=merges)
    done = sorted(number for stage in found.stages for group in stage for number in group.operators)
    assert done == list(range(len(graph.operators)))
    assert found.merged
    assert all(set(own) <= set(first) for own in found.merged)


@settings(max_examples=50)
@given(graph=task_graphs, veus=st.integers(1, 5))
def test_stages_run_everything_once_producers_first(graph, veus):
    estimates = Estimates(graph, device(veus), COSTS)
    dependencies = Dependencies(graph, Regions(graph))
    done: set[int] = set()
    for stage in ios.find_stages(graph, veus, estimates).stages:
        before = set(done)
        for group in stage:
            assert 0 <= group.first < group.first + group.veus <= veus
            own: set[int] = set()
            for operator in group.operators:
                assert set(dependencies.producers(operator)) <= before | own
                own.add(operator)
            assert not own & done
            done |= own
    assert done == {operator.id for operator in graph.operators}


def test_groups_of_a_stage_share_out_the_units():
    maker = TaskGraphMaker()
    x = maker.input((8, 8))
    wide = maker.elementwise([x], tiles=[(1, 8)])
    narrow = maker.elementwise([maker.input((2, 8))], tiles=[(1, 8)])
    graph = maker.finish([wide, narrow])
    (stage,) = ios.find_stages(graph, 10, Estimates(graph, device(10), COSTS)).stages
    assert sorted((group.veus, group.operators) for group in stage) == [(2, (1,)), (8, (0,))]


def test_equal_branches_count_as_multisets():
    """Eight branches of three rOperators: 4^8 states as sets."""
    graph = branches(8, 2)
    estimates = Estimates(graph, device(4), COSTS)
    assert ios.find_stages(graph, 4, estimates, Pruning(group=2, groups=8)).states == math.comb(8 + 3, 3)


def test_a_block_with_too_many_endings_is_scheduled_greedily():
    graph = branches(6, 2)
    found = ios.find_stages(graph, 4, Estimates(graph, device(4), COSTS), most_transitions=10)
    assert found.greedy > 0
    assert sum(len(group.operators) for stage in found.stages for group in stage) == len(graph.operators)


def test_waits_between_tiles_are_no_slower_than_barriers():
    graph = branches(4, 3)
    target = device(4)
    by_stage, by_tile = (
        simulate(graph, policy(graph, target, COSTS), target, COSTS).total_us
        for policy in (ios.schedule, ios.schedule_by_tiles)
    )
    assert by_tile <= by_stage
