"""What holds for every policy, and what each of them is there for."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rammer.devices.vector.rules import VectorRules
from rammer.ir.program import Signal
from rammer.ir.task import RTask, kernels_of
from rammer.schedule.estimates import Estimates
from rammer.schedule.happens_before import HappensBefore
from rammer.schedule.placement import Placer
from rammer.schedule.policies import POLICIES, auto, critical_path, wavefront
from rammer.schedule.simulator import simulate
from tests.support.agreement import DISTINCT
from tests.support.schedules import all_pairs_dependencies, costs, random_run, randoms, task_graphs
from tests.support.taskgraphs import (
    TaskGraphMaker,
    TileCosts,
    branches,
    chain,
    device,
    diamond,
    random_task_graph,
    recurrent,
)

# `auto` gives one of the others' schedules, as is tested below.
every_policy = pytest.mark.parametrize("policy", [POLICIES[name] for name in DISTINCT], ids=DISTINCT)
TRIED = ("wavefront", "critical-path", "wavefront-fast", "ios-tiles", "sequential")
veu_counts = st.integers(1, 4)
free_devices = st.builds(device, veu_counts, own_cache_bytes=st.sampled_from([0, 64]))


@st.composite
def _devices(draw):
    """Some of them with vEUs that other models have first."""
    target = draw(free_devices)
    busy_us = st.lists(st.floats(0, 50), min_size=target.veu_count, max_size=target.veu_count)
    return replace(target, busy_us=tuple(draw(st.one_of(st.just([]), busy_us))))


devices = _devices()


def _veus_of(schedule) -> dict[RTask, int]:
    return {task: veu for program in schedule.programs for veu, _, task in program.tasks()}


def _total_us(graph, policy: str, veus: int, cost: TileCosts) -> float:
    target = device(veus)
    return simulate(graph, POLICIES[policy](graph, target, cost), target, cost).total_us


@every_policy
@given(graph=task_graphs, target=devices, cost=costs, generator=randoms)
def test_what_holds_for_every_schedule(policy, graph, target, cost, generator):
    schedule = policy(graph, target, cost)
    assert policy(graph, target, cost) == schedule
    assert all(program.veus == target.veu_count for program in schedule.programs)
    _check_every_task_runs_once(graph, schedule)
    producers = all_pairs_dependencies(graph, schedule.choice)
    _check_dependencies_are_ordered(schedule, producers)
    _check_a_run_ends_with_producers_first(schedule, producers, generator)
    _check_thresholds_are_all_signals_of_a_counter(schedule)


def _check_every_task_runs_once(graph, schedule):
    expected = [
        RTask(operator.id, index)
        for operator, kernel in zip(graph.operators, kernels_of(graph, schedule.choice), strict=True)
        for index in range(kernel.task_count)
    ]
    assert sorted(task for program in schedule.programs for _, _, task in program.tasks()) == expected


def _check_dependencies_are_ordered(schedule, producers):
    order = HappensBefore(schedule)
    for task, earlier in producers.items():
        assert all(order.ordered(producer, task) for producer in earlier)


def _check_a_run_ends_with_producers_first(schedule, producers, generator):
    ended: set[RTask] = set()
    for event, task in random_run(schedule, generator):
        if event == "start":
            assert producers[task] <= ended
        else:
            ended.add(task)
    assert ended == set(producers)


def _check_thresholds_are_all_signals_of_a_counter(schedule):
    for program in schedule.programs:
        steps = list(itertools.chain.from_iterable(program.steps))
        signals = [step.counter for step in steps if isinstance(step, Signal)]
        assert {step.counter for step in steps if hasattr(step, "counter")} == set(range(program.counter_count))
        assert all(step.threshold == signals.count(step.counter) for step in steps if hasattr(step, "threshold"))


@every_policy
def test_no_operators_make_an_empty_program(policy):
    maker = TaskGraphMaker()
    maker.input((2, 2))
    schedule = policy(maker.finish([]), device(3), TileCosts())
    assert [program.steps for program in schedule.programs] == [((), (), ())]


@every_policy
def test_operators_without_elements_are_passed_over(policy):
    maker = TaskGraphMaker()
    empty = maker.elementwise([maker.input((0, 4))], tiles=[(1, 4)])
    last = maker.elementwise([maker.elementwise([empty])])
    full = maker.elementwise([maker.input((4, 4))], tiles=[(2, 4)])
    schedule = policy(maker.finish([last, full]), device(2), TileCosts())
    assert sorted(_veus_of(schedule)) == [RTask(3, 0), RTask(3, 1)]


@every_policy
def test_one_unit_needs_no_counters(policy):
    for graph in (chain(4), diamond(), branches(3, 2), recurrent(2, 3)):
        (program,) = policy(graph, device(1), TileCosts()).programs
        assert program.counter_count == 0


# --- wavefront -------------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(
    count=st.integers(2, 8),
    length=st.integers(1, 4),
    veus=st.integers(2, 6),
    cost=st.builds(TileCosts, fixed_us=st.sampled_from([1.0, 5.0])),
)
def test_wavefront_is_no_slower_than_sequential_on_wide_graphs(count, length, veus, cost):
    graph = branches(count, length)
    assert _total_us(graph, "wavefront", veus, cost) <= _total_us(graph, "sequential", veus, cost) + 1e-9


def test_independent_branches_run_side_by_side():
    cost = TileCosts(fixed_us=10.0, element_us=0.0)
    assert _total_us(branches(4, 5), "wavefront", 4, cost) == pytest.approx(10 * (5 + 1 + 1) + 0.5)
    assert _total_us(branches(4, 5), "sequential", 4, cost) == pytest.approx(10 * 25)


def test_tiles_that_stay_on_their_unit_need_no_counters():
    (program,) = wavefront.schedule(chain(6, tiles=((2, 8),)), device(4), TileCosts()).programs
    assert program.counter_count == 0
    assert [len(queue) for queue in program.steps] == [6] * 4


@pytest.mark.parametrize("layers", [4, 7, 10])
def test_a_recurrent_layer_stays_where_its_weights_are(layers):
    steps = 20
    graph = recurrent(layers, steps, tiles=((1, 8),))
    veus = _veus_of(wavefront.schedule(graph, device(2), TileCosts(fixed_us=5.0)))
    paths = [[veus[RTask(2 * (step * layers + layer) + 1, 0)] for step in range(steps)] for layer in range(layers)]
    moves = sum(here != there for path in paths for here, there in itertools.pairwise(path))
    assert moves <= layers


def _wave(count: int, *tiles: tuple[int, int]):
    """Independent rOperators of 16 rows."""
    maker = TaskGraphMaker()
    return maker.finish([maker.elementwise([maker.input((16, 4))], tiles=tiles) for _ in range(count)])


def test_a_wave_that_does_not_fill_the_device_takes_the_fastest_kernels():
    cost = TileCosts(by_tile={(2, 4): 3.0, (16, 4): 10.0})
    assert wavefront.schedule(_wave(2, (16, 4), (2, 4)), device(16), cost).choice == (1, 1)


def test_a_wave_that_overfills_the_device_takes_the_most_efficient_kernels_if_faster():
    cost = TileCosts(by_tile={(2, 4): 3.0, (16, 4): 10.0})
    assert wavefront.schedule(_wave(8, (2, 4), (16, 4)), device(8), cost).choice == (1,) * 8


def test_a_wave_that_overfills_the_device_keeps_the_fastest_kernels_if_faster():
    cost = TileCosts(by_tile={(2, 4): 3.0, (16, 4): 22.0})
    assert wavefront.schedule(_wave(3, (16, 4), (2, 4)), device(8), cost).choice == (1,) * 3


def test_equal_selections_of_a_wave_are_placed_once(monkeypatch):
    placed = []
    place = Placer.place_by

    def noted(placer, latest_us, operators, selection, times):
        placed.append(dict(selection))
        return place(placer, latest_us, operators, selection, times)

    monkeypatch.setattr(Placer, "place_by", noted)
    cost = TileCosts(by_tile={(2, 4): 3.0, (16, 4): 22.0})
    wavefront.schedule(_wave(3, (16, 4), (2, 4)), device(7), cost)
    assert placed == [dict.fromkeys(range(3), 1), dict.fromkeys(range(3), 0)]


@pytest.mark.parametrize(("tiles", "pick"), [(((4, 4), (16, 4)), 0), (((2, 4), (16, 4)), 1)], ids=["fits", "overfills"])
def test_the_load_so_far_counts_once_a_wave_overfills_the_device(tiles, pick):
    """All units but one are busy for long: many small rTasks queue up there, and one large rTask is faster."""
    maker = TaskGraphMaker()
    busy = [maker.elementwise([maker.input((100, 100))]) for _ in range(3)]
    first = maker.elementwise([maker.input((16, 4))])
    graph = maker.finish([*busy, maker.elementwise([first], tiles=tiles)])
    cost = TileCosts(by_tile={(4, 4): 3.0, (2, 4): 3.0, (16, 4): 10.0, (100, 100): 100.0})
    assert wavefront.schedule(graph, device(4), cost).choice[-1] == pick


class Caching(VectorRules):
    """Rules of a device on which what reads two tensors brings 20 KB, of what nobody writes, before it waits."""

    def first_bytes(self, kernel, unwritten):
        return 20_000 if len(kernel.expr.inputs) == 2 and unwritten else 0


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("slow_us", [2.1, 9.0])
def test_a_wave_leaves_units_to_what_loads_before_it_waits_where_that_ends_sooner(cached, slow_us):
    maker = TaskGraphMaker()
    first = maker.elementwise([maker.input((16, 4))], tiles=[(1, 4), (2, 4)])
    cache = maker.input((16, 4)) if cached else maker.elementwise([maker.input((16, 4))], tiles=[(16, 4)])
    graph = maker.finish([first, maker.elementwise([first, cache], tiles=[(8, 4)])])
    cost = TileCosts(by_tile={(1, 4): 2.0, (2, 4): slow_us, (8, 4): 3.0, (16, 4): 0.5})
    target = replace(device(16 if cached else 17, task_overhead_us=0.25, starts_early=True), rules=Caching())
    schedule = wavefront.schedule(graph, target, cost)
    leaves = cached and slow_us < 3
    assert schedule.choice[0] == int(leaves)
    veus = _veus_of(schedule)
    taken = {veu for task, veu in veus.items() if task.operator == 0}
    assert ({veu for task, veu in veus.items() if task.operator == len(graph.operators) - 1} & taken == set()) is leaves
    estimates = Estimates(graph, target, cost)
    assert estimates.load_us[-1] == (2.0 if cached else 0.0,)
    spans = [span for span in simulate(graph, schedule, target, cost).spans if span.task.operator == 0]
    made_us = max(span.end_us for span in spans)
    end_us = simulate(graph, schedule, target, cost).total_us
    if leaves:
        assert end_us == pytest.approx(made_us + estimates.handover_us + 3.0)


def test_between_the_extremes_operators_share_the_device_by_their_work():
    cost = TileCosts(by_tile={(1, 4): 2.0, (4, 4): 5.0, (16, 4): 18.0})
    schedule = wavefront.schedule(_wave(4, (1, 4), (4, 4), (16, 4)), device(16), cost)
    assert schedule.choice == (1,) * 4


def test_between_the_extremes_a_wave_may_be_one_round():
    """A small operator as a single rTask would end last, and as fast as it can be it would queue up."""
    maker = TaskGraphMaker()
    large = maker.elementwise([maker.input((48, 4))], tiles=[(4, 4), (1, 4)])
    small = maker.elementwise([maker.input((9, 4))], tiles=[(9, 4), (3, 4), (1, 4)])
    cost = TileCosts(by_tile={(1, 4): 2.0, (3, 4): 4.5, (4, 4): 5.0, (9, 4): 9.0})
    assert wavefront.schedule(maker.finish([large, small]), device(16), cost).choice == (0, 1)


def test_short_rtasks_of_a_round_follow_each_other():
    """A vEU for each of them would leave too few for the long ones."""
    maker = TaskGraphMaker()
    tiles = [(8, 4), (4, 4), (2, 4), (1, 4)]
    large = [maker.elementwise([maker.input((8, 4))], tiles=tiles) for _ in range(4)]
    small = maker.elementwise([maker.input((4, 2))], tiles=[(1, 2)])
    cost = TileCosts(by_tile={(1, 2): 2.0, (1, 4): 7.5, (2, 4): 8.0, (4, 4): 13.0, (8, 4): 25.0})
    assert wavefront.schedule(maker.finish([*large, small]), device(17), cost).choice == (2, 2, 2, 2, 0)


@pytest.mark.parametrize(("program_us", "tasks", "split"), [(0.0, 4, True), (1.0, 4, False), (1.0, 5, False)])
def test_a_new_program_is_started_only_where_it_pays(program_us, tasks, split):
    maker = TaskGraphMaker()
    first = maker.elementwise([maker.input((tasks, 8))])
    graph = maker.finish([maker.elementwise([first], tiles=[(1, 8)])])
    estimates = Estimates(graph, device(4), TileCosts(fixed_us=10.0, element_us=0.0))
    estimates.program_us = program_us
    programs = wavefront.schedule_with(graph, device(4), estimates).programs
    assert [sum(1 for _ in program.tasks()) for program in programs] == ([1, tasks] if split else [1 + tasks])
    assert [program.counter_count for program in programs] == ([0, 0] if split else [1])


def test_branches_of_another_length_do_not_wait_for_each_other():
    maker = TaskGraphMaker()
    tails = []
    for length in (1, 3):
        tensor = maker.input((4, 4))
        for _ in range(length):
            tensor = maker.elementwise([tensor])
        tails.append(tensor)
    graph = maker.finish(tails)
    (program,) = wavefront.schedule(graph, device(2), TileCosts(fixed_us=1.0)).programs
    assert program.counter_count == 0


# --- wavefront-fast, auto --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 8])
def test_wavefront_fast_takes_the_fastest_kernels_of_a_wave_that_overfills_the_device(count):
    cost = TileCosts(by_tile={(2, 4): 3.0, (16, 4): 10.0})
    graph = _wave(count, (16, 4), (2, 4))
    found = POLICIES["wavefront-fast"](graph, device(8), cost)
    assert (found.policy, found.choice) == ("wavefront-fast", (1,) * count)
    slower_us = _total_us(graph, "wavefront-fast", 8, cost) - _total_us(graph, "wavefront", 8, cost)
    assert (slower_us > 0) == (count == 8)


@given(graph=task_graphs, target=devices, cost=costs)
def test_auto_takes_the_best_of_those_that_it_tries_if_that_gains_clearly(graph, target, cost):
    tried = {name: POLICIES[name](graph, target, cost) for name in TRIED}
    times_us = {name: simulate(graph, found, target, cost).total_us for name, found in tried.items()}
    found = POLICIES["auto"](graph, target, cost)
    assert found == tried[found.policy]
    if min(times_us.values()) < 0.99 * times_us["wavefront"]:
        assert times_us[found.policy] == min(times_us.values())
    else:
        assert found.policy == "wavefront"
    searched = auto.all_searched(graph, target, cost)
    assert all(one == tried[one.policy] for one in searched if one.policy != "critical-path")


def test_what_gains_little_by_simulation_is_not_taken():
    graph, target, cost = branches(4, 5), device(3), TileCosts()
    first = POLICIES["sequential"](graph, target, cost)
    second = POLICIES["wavefront"](graph, target, cost)
    before_us, after_us = (simulate(graph, one, target, cost).total_us for one in (first, second))
    gain = 1 - after_us / before_us
    assert gain > 0
    for asked, taken in ((gain / 2, second), (gain * 1.5, first)):
        assert critical_path.clearly_quickest([first, second], graph, target, cost, asked) is taken


@given(graph=task_graphs, target=devices, cost=costs)
def test_auto_measures_what_may_be_the_quickest(graph, target, cost):
    def total_us(one):
        return simulate(graph, one, target, cost).total_us

    each = auto.all_searched(graph, target, cost)
    worth = auto.worth_measuring(graph, target, cost, each)
    least_us = min(map(total_us, each))
    assert least_us in [time_us for _, time_us in worth]
    assert all(time_us == total_us(one) <= 1.25 * least_us for one, time_us in worth)
    programs = [(one.choice, one.programs) for one, _ in worth]
    assert len(set(programs)) == len(programs)
    assert set(programs) == {(one.choice, one.programs) for one in each if total_us(one) <= 1.25 * least_us}


def test_auto_without_operators_gives_an_empty_program():
    maker = TaskGraphMaker()
    maker.input((2, 2))
    schedule = POLICIES["auto"](maker.finish([]), device(3), TileCosts())
    assert [program.steps for program in schedule.programs] == [((), (), ())]


# --- critical-path ---------------------------------------------------------------------------------------


@given(graph=task_graphs, target=devices, cost=costs)
def test_critical_path_is_the_best_of_its_sweeps(graph, target, cost):
    found = critical_path.sweeps(graph, target, cost)
    times_us = [simulate(graph, one, target, cost).total_us for one in found]
    best = critical_path.schedule(graph, target, cost)
    assert best == (found[times_us.index(min(times_us))] if min(times_us) < 0.999 * times_us[0] else found[0])
    assert {one.policy for one in found} == {"critical-path"}


@given(graph=task_graphs, veus=veu_counts, cost=costs, early=st.booleans())
def test_critical_path_is_never_slower_than_wavefront(graph, veus, cost, early):
    target = device(veus, task_overhead_us=0.25, starts_early=early)
    found, waves = (POLICIES[name](graph, target, cost) for name in ("critical-path", "wavefront"))
    assert simulate(graph, found, target, cost).total_us <= simulate(graph, waves, target, cost).total_us
    assert found.policy == "critical-path"


@pytest.mark.parametrize("seed", [14, 31, 35])
def test_critical_path_gains_where_the_waves_behind_decide(seed):
    graph, target, cost = (
        random_task_graph(random.Random(seed), 12),
        device(3),
        TileCosts(fixed_us=0.5, element_us=0.05),
    )
    found, waves = (POLICIES[name](graph, target, cost) for name in ("critical-path", "wavefront"))
    assert 1.05 * simulate(graph, found, target, cost).total_us < simulate(graph, waves, target, cost).total_us


def test_critical_path_tries_no_more_than_it_may():
    graph, cost = branches(4, 5), TileCosts()
    waves = POLICIES["wavefront"](graph, device(3), cost)
    found = critical_path.schedule(graph, device(3), cost, most_placed=0)
    assert (found.choice, found.policy) == (waves.choice, "critical-path")


def test_critical_path_keeps_what_is_not_on_it_off_the_units_of_the_next_wave():
    """A step that only the end reads: by `wavefront` it is where its inputs were made, before the next step."""
    maker = TaskGraphMaker()
    made = maker.elementwise([maker.input((2, 4))], tiles=[(1, 4)])
    steps = maker.elementwise([maker.elementwise([made], tiles=[(1, 4)])], tiles=[(1, 4)])
    beside = maker.elementwise([made], tiles=[(2, 4)])
    graph = maker.finish([maker.elementwise([steps, beside], tiles=[(1, 4)])])
    target, cost = device(3, handover_us=0.5), TileCosts(by_tile={(1, 4): 1.0, (2, 4): 0.75})
    waves, found = (POLICIES[name](graph, target, cost) for name in ("wavefront", "critical-path"))
    assert (_veus_of(waves)[RTask(3, 0)], _veus_of(found)[RTask(3, 0)]) == (0, 2)
    assert simulate(graph, waves, target, cost).total_us == 4.75
    assert simulate(graph, found, target, cost).total_us == 4.0


def test_critical_path_leaves_to_the_next_wave_what_that_does_not_read():
    """A long step that only the end reads: `wavefront` begins with it, and has a unit idle later."""
    maker = TaskGraphMaker()
    x = maker.input((2, 4))
    steps = maker.elementwise([maker.elementwise([x], tiles=[(1, 4)])], tiles=[(2, 4)])
    beside = maker.elementwise([x], tiles=[(2, 4)])
    graph = maker.finish([maker.elementwise([steps, beside], tiles=[(2, 4)])])
    target, cost = device(2, handover_us=0.0), TileCosts(by_tile={(1, 4): 1.0, (2, 4): 3.0})
    waves, found = (POLICIES[name](graph, target, cost) for name in ("wavefront", "critical-path"))
    assert simulate(graph, waves, target, cost).total_us == 8.0
    assert simulate(graph, found, target, cost).total_us == 7.0
    (program,) = found.programs
    order = [task.operator for veu, _, task in program.tasks() if veu == _veus_of(found)[RTask(2, 0)]]
    assert order.index(0) < order.index(2)


# --- sequential ------------------------------------------------------------------------------------------


@given(graph=task_graphs, veus=veu_counts)
def test_sequential_ends_an_operator_before_it_starts_the_next(graph, veus):
    schedule = POLICIES["sequential"](graph, device(veus), TileCosts())
    order = HappensBefore(schedule)
    tasks = sorted(order.places)
    assert all(order.ordered(first, then) for first in tasks for then in tasks if first.operator < then.operator)


def test_sequential_deals_tasks_round_the_units():
    veus = _veus_of(POLICIES["sequential"](chain(2, shape=(6, 2), tiles=((1, 2),)), device(4), TileCosts()))
    assert [veus[RTask(1, index)] for index in range(6)] == [0, 1, 2, 3, 0, 1]


def test_sequential_takes_the_fastest_kernel_of_an_operator_alone():
    cost = TileCosts(by_tile={(2, 4): 3.0, (16, 4): 10.0})
    graph = _wave(8, (16, 4), (2, 4))
    assert POLICIES["sequential"](graph, device(8), cost).choice == (1,) * 8
    assert POLICIES["sequential"](graph, device(1), cost).choice == (0,) * 8


@pytest.mark.parametrize("policy", ["wavefront", "critical-path"])
def test_what_other_models_have_first_is_used_once_they_have_ended(policy):
    """Eight chains of four rTasks of a microsecond: on two vEUs for 5 us, then on four."""
    graph, cost = branches(8, 4), TileCosts(element_us=1 / 64)
    target = replace(device(4, handover_us=0.01), busy_us=(5.0, 5.0, 0.0, 0.0))
    schedule = POLICIES[policy](graph, target, cost)
    timeline = simulate(graph, schedule, target, cost)
    assert min(span.start_us for span in timeline.spans if span.veu < 2) >= 5
    assert timeline.total_us < 0.9 * _total_us(graph, policy, 2, cost)
    assert len(schedule.programs) == 1


def test_rkernels_are_for_the_units_that_are_there():
    """An rOperator of four small rTasks or two large ones: those that other models have for long count for nothing."""
    graph, cost = chain(1, tiles=((2, 8), (4, 8))), TileCosts(fixed_us=3.0, element_us=0.1)
    for busy_us, count in (((), 4), ((1e3, 1e3, 0.0, 0.0), 2)):
        schedule = wavefront.schedule(graph, replace(device(4), busy_us=busy_us), cost)
        (kernel,) = kernels_of(graph, schedule.choice)
        assert kernel.task_count == count
