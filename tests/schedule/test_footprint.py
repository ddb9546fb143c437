"""What schedules hold at a time, and that rOperators run one after another where waves hold too much."""

from dataclasses import replace

import pytest

from rammer.schedule import memory
from rammer.schedule.footprint import uncached_bytes
from rammer.schedule.policies import POLICIES, sequential, wavefront
from tests.support.taskgraphs import TileCosts, branches, device

COSTS = TileCosts()
GRAPH = branches(4, 3, size=32)
MATRIX = 32 * 32 * 4


def caches(shared_bytes, *, own_cache_bytes=64, handover_us=0.01):
    """Two vEUs with caches of their own before one that they share."""
    target = device(2, own_cache_bytes=own_cache_bytes, handover_us=handover_us)
    shared = replace(target.levels[0], shared=True, capacity_bytes=shared_bytes)
    return replace(target, levels=(shared, *target.levels))


def arena_bytes(schedule):
    return memory.plan(GRAPH, schedule, 64).arena_bytes


def test_what_is_held_counts_where_the_shared_cache_has_no_room_for_it():
    schedule = sequential.schedule(GRAPH, device(2), COSTS)
    arena = arena_bytes(schedule)
    assert arena == 6 * MATRIX  # all results, which are joined, and two of a branch
    assert uncached_bytes(GRAPH, schedule, caches(arena - 1)) == arena
    assert uncached_bytes(GRAPH, schedule, caches(arena)) == 0
    assert uncached_bytes(GRAPH, schedule, caches(arena - 1, own_cache_bytes=0)) == 0


def test_what_a_graph_makes_in_all_may_have_room():
    schedule = wavefront.schedule(GRAPH, device(2), COSTS)
    assert uncached_bytes(GRAPH, schedule, caches(16 * MATRIX)) == 0


@pytest.mark.parametrize("policy", ["wavefront", "critical-path", "auto"])
def test_operators_run_in_turn_where_waves_hold_too_much(policy):
    wide, narrow = (POLICIES[policy](GRAPH, caches(size), COSTS) for size in (1 << 20, 7 * MATRIX))
    assert arena_bytes(wide) == 8 * MATRIX
    assert arena_bytes(narrow) == 6 * MATRIX
    assert len(wide.programs) == 1
    assert len(narrow.programs) > 1


def test_operators_do_not_run_in_turn_where_that_takes_long():
    dear = wavefront.schedule(GRAPH, caches(7 * MATRIX, handover_us=2.0), COSTS)
    assert arena_bytes(dear) == 8 * MATRIX


def test_operators_do_not_run_in_turn_beside_models_that_began_before():
    busy = replace(caches(7 * MATRIX), busy_us=(1.0, 0.0))
    assert len(wavefront.schedule(GRAPH, busy, COSTS).programs) == 1
