"""The memory plan: no two tensors that may be alive together share bytes, and others do."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rammer.ir.program import Execute, RProgram, Schedule, Signal, Wait
from rammer.ir.task import RTask, TaskGraph, TensorRole
from rammer.schedule import memory
from rammer.schedule.policies import POLICIES
from tests.support.schedules import costs, random_run, randoms, task_graphs
from tests.support.taskgraphs import TaskGraphMaker, TileCosts, branches, chain, device, recurrent

policies = st.sampled_from(sorted(POLICIES))


def _lives(graph: TaskGraph, schedule: Schedule, generator: random.Random) -> dict[int, tuple[int, int]]:
    """Per root tensor, when in a random run its first writer starts and its last user ends."""
    lives: dict[int, tuple[int, int]] = {}
    for time, (event, task) in enumerate(random_run(schedule, generator)):
        operator = graph.operators[task.operator]
        reads, writes = graph.accesses(operator, operator.kernels[schedule.choice[operator.id]], task.tile)
        if event == "start":
            for access in writes:
                lives.setdefault(access.tensor, (time, time))
        else:
            for access in (*reads, *writes):
                if access.tensor in lives:
                    lives[access.tensor] = (lives[access.tensor][0], time)
    return lives


@given(graph=task_graphs, policy=policies, veus=st.integers(1, 4), cost=costs, generator=randoms)
def test_tensors_that_share_bytes_are_never_alive_together(graph, policy, veus, cost, generator):
    schedule = POLICIES[policy](graph, device(veus), cost)
    plan = memory.plan(graph, schedule, 64)
    spans = {tensor: (at, at + graph.tensors[tensor].nbytes) for tensor, at in plan.offsets_bytes.items()}
    pairs = [
        (one, other)
        for one, other in itertools.combinations(spans, 2)
        if max(spans[one][0], spans[other][0]) < min(spans[one][1], spans[other][1])
    ]
    for _ in range(3):
        lives = _lives(graph, schedule, generator)
        for one, other in pairs:
            (first, last), (start, end) = lives[one], lives[other]
            assert last < start or end < first


@given(graph=task_graphs, veus=st.integers(1, 4), alignment=st.sampled_from([1, 32, 64, 256]))
def test_all_intermediate_roots_lie_aligned_in_the_arena(graph, veus, alignment):
    plan = memory.plan(graph, POLICIES["wavefront"](graph, device(veus), TileCosts()), alignment)
    roots = [t.id for t in graph.tensors if t.role is TensorRole.INTERMEDIATE and t.alias_of is None]
    assert list(plan.offsets_bytes) == roots
    assert all(offset % alignment == 0 for offset in plan.offsets_bytes.values())
    assert all(at + graph.tensors[tensor].nbytes <= plan.arena_bytes for tensor, at in plan.offsets_bytes.items())


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_chain_needs_two_buffers(policy):
    graph = chain(9, shape=(16, 16), tiles=((16, 16),))
    plan = memory.plan(graph, POLICIES[policy](graph, device(1), TileCosts()), 64)
    assert plan.arena_bytes == 2 * 16 * 16 * 4


def test_a_long_recurrence_needs_no_more_than_a_short_one():
    def arena(steps: int) -> int:
        graph = recurrent(3, steps)
        return memory.plan(graph, POLICIES["sequential"](graph, device(2), TileCosts()), 64).arena_bytes

    assert arena(30) == arena(4)


def test_the_sequential_schedule_of_branches_reuses_one_branchs_memory():
    def arena(policy: str) -> int:
        graph = branches(6, 3, size=16)
        cost = TileCosts(fixed_us=1.0)
        return memory.plan(graph, POLICIES[policy](graph, device(6), cost), 64).arena_bytes

    assert arena("sequential") < arena("wavefront")


def _two_chains() -> TaskGraph:
    """rOperators 0 -> 1 and 2 -> 3 with intermediates of 64 bytes."""
    maker = TaskGraphMaker()
    tails = [maker.elementwise([maker.elementwise([maker.input((4, 4))])]) for _ in range(2)]
    return maker.finish(tails)


def _execute(number: int) -> Execute:
    return Execute(RTask(number, 0))


@pytest.mark.parametrize(
    ("steps", "counters", "buffers"),
    [
        (((_execute(0), _execute(1), _execute(2), _execute(3)),), 0, 1),
        (((_execute(0), _execute(2), _execute(1), _execute(3)),), 0, 2),
        (((_execute(0), _execute(1)), (_execute(2), _execute(3))), 0, 2),
        (((_execute(0), _execute(1), Signal(0)), (Wait(0, 1), _execute(2), _execute(3))), 1, 1),
        (((_execute(0), Signal(0), _execute(1)), (Wait(0, 1), _execute(2), _execute(3))), 1, 2),
    ],
)
def test_bytes_are_reused_exactly_where_the_schedule_orders_their_lives(steps, counters, buffers):
    schedule = Schedule(policy="made", choice=(0,) * 4, programs=(RProgram(steps=steps, counter_count=counters),))
    assert memory.plan(_two_chains(), schedule, 64).arena_bytes == buffers * 64


def test_programs_hand_their_memory_on():
    programs = tuple(
        RProgram(
            steps=tuple((_execute(2 * half + place),) if place == 0 else () for place in range(2)), counter_count=0
        )
        for half in range(2)
    )
    ends = tuple(RProgram(steps=((), (_execute(2 * half + 1),)), counter_count=0) for half in range(2))
    schedule = Schedule(policy="made", choice=(0,) * 4, programs=(programs[0], ends[0], programs[1], ends[1]))
    assert memory.plan(_two_chains(), schedule, 64).arena_bytes == 64


def test_an_alias_keeps_its_storage_alive():
    maker = TaskGraphMaker()
    first = maker.elementwise([maker.input((4, 4))])
    flat = maker.alias(first, (16,))
    second = maker.elementwise([maker.input((4, 4))])
    graph = maker.finish([maker.elementwise([second]), maker.elementwise([flat])])
    schedule = POLICIES["sequential"](graph, device(1), TileCosts())
    assert memory.plan(graph, schedule, 64).arena_bytes == 128


def test_a_tensor_of_no_elements_takes_no_room():
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.elementwise([maker.input((0, 4))])])])
    plan = memory.plan(graph, POLICIES["wavefront"](graph, device(1), TileCosts()), 64)
    assert plan.offsets_bytes == {1: 0}
    assert plan.arena_bytes == 0
