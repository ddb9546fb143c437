"""Endings, groups, interchangeable parts and blocks against definitions that are tried out set by set."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rammer.schedule.endings import Branches, Dag, Pruning, blocks, endings, groups, members, split

ALL = Pruning(group=99, groups=99)


def random_producers(generator: random.Random, count: int) -> list[list[int]]:
    return [sorted(generator.sample(range(i), generator.randint(0, min(i, 3)))) for i in range(count)]


def reachable(dag: Dag) -> list[int]:
    """All states that are left over by endings, as by IOS without pruning."""
    seen, waiting = set(), [dag.everything]
    while waiting:
        state = waiting.pop()
        if state not in seen:
            seen.add(state)
            waiting += [state & ~sum(ending) for ending in endings(dag, state, ALL)]
    return sorted(seen)


def is_closed(dag: Dag, one: int, within: int) -> bool:
    return all(dag.successors[i] & within & ~one == 0 for i in members(one))


@given(seed=st.integers(0, 10_000), count=st.integers(1, 8))
def test_endings_are_all_successor_closed_sets(seed, count):
    dag = Dag.of(random_producers(random.Random(seed), count))
    for state in reachable(dag):
        found = [sum(ending) for ending in endings(dag, state, ALL)]
        subsets = (
            sum(1 << i for i in chosen)
            for n in range(1, count + 1)
            for chosen in itertools.combinations(members(state), n)
        )
        assert sorted(found) == sorted(one for one in subsets if is_closed(dag, one, state))


@given(seed=st.integers(0, 10_000), count=st.integers(1, 9))
def test_groups_do_not_touch_each_other(seed, count):
    dag = Dag.of(random_producers(random.Random(seed), count))
    for ending in endings(dag, dag.everything, ALL):
        for one, other in itertools.combinations(ending, 2):
            assert dag.neighbours(one) & other == 0
            assert one & other == 0
        assert set(ending) <= set(groups(dag, dag.everything, count))


def test_a_group_may_have_two_sources():
    """What the released code of IOS loses: a -> c <- b."""
    dag = Dag.of([[], [], [0, 1]])
    assert 0b111 in groups(dag, dag.everything, 3)


@pytest.mark.parametrize(("group", "most"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_pruning_bounds_groups_and_their_number(group, most):
    dag = Dag.of([[], [], [], [0], [1], [2]])
    found = list(endings(dag, dag.everything, Pruning(group=group, groups=most)))
    assert max(map(len, found)) == min(most, 3)
    assert all(one.bit_count() <= group for ending in found for one in ending)
    assert len(found) == len(set(found))


def test_equal_branches_count_once():
    """Sixteen branches of three: 4^16 states as sets, 969 as multisets of how far each is."""
    chains = [[] if step == 0 else [3 * branch + step - 1] for branch in range(16) for step in range(3)]
    dag = Dag.of(chains)
    branches = Branches(dag, ["work"] * 48)
    states = set()
    for far in itertools.combinations_with_replacement(range(4), 16):
        state = sum(1 << (3 * branch + step) for branch, steps in enumerate(far) for step in range(steps))
        states.add(branches.canonical(state))
        shuffled = random.Random(0).sample(far, 16)
        assert branches.canonical(sum(1 << (3 * b + s) for b, n in enumerate(shuffled) for s in range(n))) in states
    assert len(states) == 969


def test_branches_of_other_work_or_ends_stay_apart():
    assert Branches(Dag.of([[], []]), ["a", "b"]).canonical(0b10) == 0b10
    assert Branches(Dag.of([[], []]), ["a", "a"]).canonical(0b01) == Branches(Dag.of([[], []]), ["a", "a"]).canonical(
        0b10
    )
    fork = Dag.of([[], [0], [0], [1, 2], [1]])  # the first branch feeds one operator more
    assert Branches(fork, ["a"] * 5).canonical(0b00010) == 0b00010


def test_a_graph_is_cut_where_all_paths_meet():
    #      1 - 2
    # 0 <         > 4 - 5 < 6, 7 (two ends)
    #      3 ----
    dag = Dag.of([[], [0], [1], [0], [2, 3], [4], [5], [5]])
    assert [sorted(members(block)) for block in blocks(dag)] == [[0], [1, 2, 3, 4], [5], [6, 7]]
    assert blocks(Dag.of([[], []])) == [0b11]


@given(seed=st.integers(0, 10_000), count=st.integers(1, 30), most=st.integers(1, 10))
def test_large_blocks_are_split_in_order(seed, count, most):
    dag = Dag.of(random_producers(random.Random(seed), count))
    done = 0
    for part in split(dag, dag.everything, most):
        assert all(dag.producers[operator] & ~(done | part) == 0 for operator in members(part))
        levels_are_equal = all(dag.producers[operator] & part == 0 for operator in members(part))
        assert part.bit_count() <= most or levels_are_equal
        assert part & done == 0
        done |= part
    assert done == dag.everything
