"""Placement on paper: what it expects of an rProgram is what the simulator finds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rammer.ir.kernel_form import FlashAttentionForm, GemmShape, Instruction, WarpgroupGemmForm
from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.estimates import Estimates
from rammer.schedule.handovers import Handovers
from rammer.schedule.placement import Placer, ProgramTimes
from rammer.schedule.simulator import simulate
from tests.support.schedules import costs, task_graphs
from tests.support.taskgraphs import RESIDENT, TaskGraphMaker, TileCosts, device

PRODUCT = WarpgroupGemmForm(
    threads=512,
    instruction=Instruction.WGMMA_F16,
    threadblock=GemmShape(64, 64, 64),
    stages=2,
    swapped=False,
    finishers=384,
)
ATTENTION = FlashAttentionForm(
    threads=512, instruction=Instruction.MMA_F16, row_warps=1, column_warps=1, teams=1, team_keys=16, stages=2
)


def _with_forms(graph: TaskGraph, **forms):
    """The rOperators of these names in other forms: `constants` are what products multiply by."""
    operators = []
    for operator in graph.operators:
        form = forms.get(operator.name)
        if form is not None:
            constants = frozenset({1} if form is PRODUCT else ())
            kernels = tuple(replace(kernel, form=form, constants=constants) for kernel in operator.kernels)
            operator = replace(operator, kernels=kernels)
        operators.append(operator)
    return replace(graph, operators=tuple(operators))


def _place(graph: TaskGraph, veus: int, cost: TileCosts, overhead_us: float = 0.0, handover_us: float = 0.5):
    """Each rOperator after the other, under its first rKernel: the schedule and the expected (vEU, end) of rTasks."""
    target = device(veus, handover_us=handover_us, task_overhead_us=overhead_us, starts_early=overhead_us > 0)
    placer = Placer(graph, Estimates(graph, target, cost))
    times = ProgramTimes(Handovers(target))
    builder = ProgramBuilder(veus)
    expected = {}
    for operator in graph.operators:
        trial = placer.place([operator], {operator.id: 0}, times)
        placer.commit(trial)
        times.add(trial)
        for step in trial.steps:
            builder.wait(step.job.task, step.job.predecessors)
            builder.append(step.job.task, step.veu)
            expected[step.job.task] = (step.veu, step.end_us)
    return Schedule(policy="made", choice=(0,) * len(graph.operators), programs=(builder.build(),)), expected, times


@given(graph=task_graphs, veus=st.integers(1, 4), cost=costs, overhead_us=st.sampled_from([0.0, 0.25, 0.75]))
def test_expected_times_are_the_simulators(graph, veus, cost, overhead_us):
    schedule, expected, times = _place(graph, veus, cost, overhead_us)
    target = device(veus, task_overhead_us=overhead_us, starts_early=overhead_us > 0)
    timeline = simulate(graph, schedule, target, cost)
    assert {span.task: span.veu for span in timeline.spans} == {task: veu for task, (veu, _) in expected.items()}
    for span in timeline.spans:
        assert span.end_us == pytest.approx(expected[span.task][1])
    assert timeline.total_us == pytest.approx(times.end_us)


def test_equal_tasks_spread_over_the_units():
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.input((8, 2))], tiles=[(1, 2)])])
    _, expected, _ = _place(graph, 4, TileCosts())
    assert [veu for veu, _ in expected.values()] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_task_goes_where_most_of_its_inputs_were_made():
    maker = TaskGraphMaker()
    rows = maker.elementwise([maker.input((4, 4))], tiles=[(1, 4)])
    graph = maker.finish([maker.elementwise([rows], origins=[(1, 0)], shape=(3, 4))])
    _, expected, _ = _place(graph, 2, TileCosts())
    assert [veu for veu, _ in expected.values()] == [0, 1, 0, 1, 1]


def test_long_tasks_go_first():
    maker = TaskGraphMaker()
    sizes = (1, 1, 2)
    graph = maker.finish([maker.elementwise([maker.input((size, 4))]) for size in sizes])
    target, cost = device(2), TileCosts(by_tile={(1, 4): 1.0, (2, 4): 2.0})
    placer = Placer(graph, Estimates(graph, target, cost))
    trial = placer.place(graph.operators, {0: 0, 1: 0, 2: 0}, ProgramTimes(Handovers(target)))
    assert [step.job.task.operator for step in trial.steps] == [2, 0, 1]
    assert trial.end_us == 2.0


def test_a_trial_that_would_end_too_late_is_given_up():
    maker = TaskGraphMaker()
    graph = maker.finish([maker.elementwise([maker.input((3, 4))], tiles=[(1, 4)])])
    target = device(2)
    placer, times = Placer(graph, Estimates(graph, target, TileCosts())), ProgramTimes(Handovers(target))
    whole = placer.place(graph.operators, {0: 0}, times)
    assert placer.place_by(whole.end_us - 0.5, graph.operators, {0: 0}, times) is None
    again = placer.place_by(whole.end_us, graph.operators, {0: 0}, times)
    assert again is not None
    assert again.steps == whole.steps


@pytest.mark.parametrize(
    ("veus", "aside", "own", "end_us"),
    [(3, (), {0}, 5.0), (3, (2,), {2}, 4.5), (2, (2,), {0}, 5.0)],
    ids=["where its inputs are", "aside", "aside, but nothing is free"],
)
def test_what_runs_aside_leaves_the_others_their_units(veus, aside, own, end_us):
    """Two rTasks, then two that follow them at once, and a long one that reads both."""
    maker = TaskGraphMaker()
    rows = maker.elementwise([maker.input((2, 4))], tiles=[(1, 4)])
    main = maker.elementwise([rows], tiles=[(1, 4)])
    graph = maker.finish([main, maker.elementwise([rows], tiles=[(2, 4)])])
    target, cost = device(veus, handover_us=0.5), TileCosts(by_tile={(1, 4): 1.0, (2, 4): 3.0})
    placer, times = Placer(graph, Estimates(graph, target, cost)), ProgramTimes(Handovers(target))
    first = placer.place(graph.operators[:1], {0: 0}, times)
    placer.commit(first)
    times.add(first)
    trial = placer.place_by(99.0, graph.operators[1:], {1: 0, 2: 0}, times, aside)
    assert trial is not None
    assert {step.veu for step in trial.steps if step.job.task.operator == 1} == {0, 1}
    assert {step.veu for step in trial.steps if step.job.task.operator == 2} == own
    assert trial.end_us == max(trial.free_us) == end_us
    assert placer.place_by(end_us - 0.25, graph.operators[1:], {1: 0, 2: 0}, times, aside) is None


@pytest.mark.parametrize("keeps", [False, True])
def test_what_loads_weights_to_keep_goes_where_it_can_load_them_while_it_waits(keeps):
    """Its input is made by vEU 0, which is free last: weights that vEU 1 loads are there when the input is."""
    maker = TaskGraphMaker()
    made = maker.elementwise([maker.input((1, 4))])
    graph = maker.finish([maker.elementwise([made])])
    (kernel,) = graph.operators[1].kernels
    if keeps:
        kernel = replace(kernel, form=RESIDENT, constants=frozenset((0,)))
    graph = replace(graph, operators=(graph.operators[0], replace(graph.operators[1], kernels=(kernel,))))
    schedule, expected, _ = _place(graph, 2, TileCosts(), overhead_us=0.25)
    veus = [veu for veu, _ in expected.values()]
    assert veus == [0, 1 if keeps else 0]
    target = device(2, task_overhead_us=0.25, starts_early=True)
    estimates = Estimates(graph, target, TileCosts())
    assert estimates.load_us[1] == (estimates.handover_us if keeps else 0.0,)
    spans = {span.task.operator: span for span in simulate(graph, schedule, target, TileCosts()).spans}
    made_us = spans[0].end_us + (estimates.handover_us if keeps else 0.0)
    assert spans[1].end_us == pytest.approx(made_us + estimates.task_us[1][0] - (0.25 if keeps else 0.0))


@pytest.mark.parametrize(("rows", "is_product"), [(2, True), (3, True), (2, False)])
def test_two_rows_of_tiles_by_the_same_constants_lie_on_neighbours(rows, is_product):
    maker = TaskGraphMaker()
    product = maker.matmul(maker.input((rows, 8)), maker.constant((8, 4)), tiles=[(1, 1)])
    graph = maker.finish([product])
    if is_product:
        graph = _with_forms(graph, contract0=PRODUCT)
    _, expected, _ = _place(graph, 4 * rows, TileCosts())
    by_columns = [2 * column + row for row in range(2) for column in range(4)]
    found = {task.tile: veu for task, (veu, _) in expected.items()}
    assert [found[tile] for tile in range(4 * rows)] == (
        by_columns if rows == 2 and is_product else list(range(4 * rows))
    )


@pytest.mark.parametrize(("form", "handover_us", "veu"), [(PRODUCT, 0.5, 2), (PRODUCT, 0.625, 0), (None, 0.5, 0)])
def test_products_that_copy_ahead_go_where_they_find_a_unit_idle_longest(form, handover_us, veu):
    """vEU 0 makes the input, vEU 1 is idle later than vEU 2; a start 0.25 us later is still early enough."""
    maker = TaskGraphMaker()
    made = maker.elementwise([maker.input((1, 8))])
    other = maker.elementwise([maker.input((1, 4))])
    product = maker.matmul(made, maker.constant((8, 2)))
    graph = _with_forms(maker.finish([other, product]), **({} if form is None else {"contract2": form}))
    cost = TileCosts(by_tile={(1, 8): 2.0, (1, 4): 0.5, (1, 2): 1.0})
    _, expected, times = _place(graph, 3, cost, overhead_us=0.25, handover_us=handover_us)
    assert [found for found, _ in expected.values()] == [0, 1, veu]
    made_us = 2.25 + (handover_us - 0.25 if veu else 0.0)
    assert times.end_us == made_us + 1.25


@pytest.mark.parametrize(("form", "veu"), [(PRODUCT, 1), (None, 0)])
def test_attention_leaves_the_units_of_products_that_copy_ahead(form, veu):
    maker = TaskGraphMaker()
    product = maker.matmul(maker.input((1, 8)), maker.constant((8, 4)))
    forms = {"map1": ATTENTION} if form is None else {"map1": ATTENTION, "contract0": form}
    graph = _with_forms(maker.finish([maker.elementwise([product])]), **forms)
    _, expected, _ = _place(graph, 2, TileCosts(by_tile={(1, 4): 1.0}), overhead_us=0.25)
    assert [found for found, _ in expected.values()] == [0, veu]
