"""Schedules of several models as one: in any order of runs each model's rTasks see their own producers' results."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rammer.devices.reference.pickers import Random
from rammer.ir.program import Execute, Plan, Schedule
from rammer.ir.task import RTask, TaskGraph, TensorRole
from rammer.lowering import join as joined_tasks
from rammer.lowering.join import Member
from rammer.schedule import join as joined_schedules
from rammer.schedule import memory
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.join import Placed
from rammer.schedule.policies import POLICIES
from rammer.verify import program as verify_program
from rammer.verify import tasks as verify_tasks
from tests.support.plans import integer_inputs, make_plan, run_reference, with_exact_constants
from tests.support.schedules import seeds
from tests.support.taskgraphs import TileCosts, branches, chain, device, random_task_graph


def joined_plan(graphs: list[TaskGraph], spans: list[range], policies: list[str], order: list[int], veus: int) -> Plan:
    members = [Member(name=f"m{i}", tasks=graph) for i, graph in enumerate(graphs)]
    tasks = joined_tasks.join("all", members)
    verify_tasks.verify(tasks)
    placed = [
        Placed(schedule=POLICIES[policy](graph, device(len(span)), TileCosts()), veus=span)
        for graph, span, policy in zip(graphs, spans, policies, strict=True)
    ]
    target = device(veus)
    schedule = joined_schedules.join(placed, order, veus)
    plan = Plan(graph=tasks, schedule=schedule, memory=memory.plan(tasks, schedule, 64, target.homes))
    verify_program.verify(plan, target)
    return plan


@given(
    seed=seeds,
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=3),
    policies=st.lists(st.sampled_from(sorted(POLICIES)), min_size=3, max_size=3),
    veus=st.integers(1, 4),
)
def test_each_of_several_random_graphs_gives_what_it_gives_alone(seed, sizes, policies, veus):
    generator = random.Random(seed)
    graphs = [with_exact_constants(random_task_graph(generator, size)) for size in sizes]
    spans = []
    for _ in graphs:
        first = generator.randrange(veus)
        spans.append(range(first, generator.randint(first + 1, veus)))
    order = generator.sample(range(len(graphs)), len(graphs))
    plan = joined_plan(graphs, spans, policies[: len(graphs)], order, veus)
    inputs = [integer_inputs(graph, number) for number, graph in enumerate(graphs)]
    found = run_reference(plan, [array for own in inputs for array in own], Random(seed))
    for graph, own, span, policy in zip(graphs, inputs, spans, policies, strict=False):
        alone = run_reference(make_plan(graph, policy, device(len(span))), own, Random(seed))
        for array in alone:
            assert found.pop(0).tobytes() == array.tobytes()
    assert not found


def test_members_share_equal_constants_and_keep_others():
    graphs = [with_exact_constants(branches(2, 2)), with_exact_constants(branches(2, 2)), chain(2)]
    plan = joined_plan(graphs, [range(1), range(1, 2), range(2)], ["wavefront"] * 3, [0, 1, 2], 2)
    constants = [tensor for tensor in plan.graph.tensors if tensor.role is TensorRole.CONSTANT]
    assert len(constants) == len(graphs[0].constants) == len(plan.graph.constants)
    names = [operator.name for operator in plan.graph.operators]
    assert names[0].startswith("m0:")
    assert len(set(plan.graph.inputs)) == 3


def test_who_comes_first_on_shared_units_is_first_in_their_queues():
    graphs = [chain(1), chain(2)]
    for order in ([0, 1], [1, 0]):
        plan = joined_plan(graphs, [range(2), range(2)], ["wavefront"] * 2, order, 2)
        (program,) = plan.schedule.programs
        first = next(task for _, _, task in program.tasks())
        assert plan.graph.operators[first.operator].name.startswith(f"m{order[0]}:")


def in_several_programs(graph: TaskGraph, veus: int) -> Schedule:
    """Each rOperator in an rProgram of its own, its rTasks dealt round some of the vEUs."""
    builder, programs = None, []
    for operator in graph.operators:
        builder = ProgramBuilder(veus, after=builder)
        for index in range(operator.kernels[0].task_count):
            builder.append(RTask(operator.id, index), (operator.id + index) % veus)
        programs.append(builder.build())
    return Schedule(policy="dealt", choice=(0,) * len(graph.operators), programs=tuple(programs))


@given(seed=seeds, veus=st.integers(1, 5))
def test_programs_of_a_member_become_one_without_waiting_for_others(seed, veus):
    graphs = [with_exact_constants(random_task_graph(random.Random(seed), 5)), chain(3, tiles=((8, 8),))]
    tasks = joined_tasks.join("all", [Member(name=f"m{i}", tasks=graph) for i, graph in enumerate(graphs)])
    placed = [
        Placed(schedule=in_several_programs(graphs[0], veus), veus=range(veus)),
        Placed(schedule=in_several_programs(graphs[1], 2), veus=range(veus, veus + 2)),
    ]
    schedule = joined_schedules.join(placed, [0, 1], veus + 2)
    assert len(schedule.programs) == 1
    plan = Plan(graph=tasks, schedule=schedule, memory=memory.plan(tasks, schedule, 64))
    verify_program.verify(plan, device(veus + 2))
    inputs = [integer_inputs(graph) for graph in graphs]
    found = run_reference(plan, [*inputs[0], *inputs[1]], Random(seed))
    expected = [
        array
        for graph, own in zip(graphs, inputs, strict=True)
        for array in run_reference(make_plan(graph, "sequential", device(1)), own, Random(seed))
    ]
    assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]
    first = len(graphs[0].operators)
    for veu, queue in enumerate(schedule.programs[0].steps):
        assert all((step.task.operator < first) == (veu < veus) for step in queue if isinstance(step, Execute))


def test_units_must_be_as_many_as_the_schedule_has():
    with pytest.raises(ValueError, match="zip"):
        joined_schedules.join(
            [Placed(schedule=POLICIES["wavefront"](chain(1), device(2), TileCosts()), veus=range(1))], [0], 2
        )
