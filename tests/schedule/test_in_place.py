"""Times of rTasks in a run: how they are read from a trace, the costs that they make, and what `auto` finds by them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from benchmarks.networks import NETWORKS, SMALL
from rammer.devices.base import Trace
from rammer.devices.cpu.device import CpuDevice
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.program import Execute
from rammer.ir.task import kernels_of
from rammer.ir.vdevice import Figure
from rammer.options import CompileOptions
from rammer.pipelines import measured, scheduling
from rammer.pipelines.planning import plan_graph
from rammer.profiler.whole import compare_plans, trace_plans
from rammer.roller.model import ModelCosts
from rammer.schedule.estimates import Estimates
from rammer.schedule.in_place import InPlaceCosts, as_seen, operator_spans_us, seen_us
from rammer.schedule.policies import wavefront
from rammer.schedule.simulator import simulate
from tests.support.small_models import FLOAT, mlp_model, small_model
from tests.support.taskgraphs import RESIDENT, TaskGraphMaker, TileCosts, device


def spans_of(schedule, times_ns):
    """A traced run of a schedule whose rTasks take what `times_ns` says of each, one after another."""
    programs = []
    for program in schedule.programs:
        by_veu = []
        for queue in program.steps:
            took = [times_ns(step.task) if isinstance(step, Execute) else 5000 for step in queue]
            ends = np.cumsum(np.array(took, dtype=np.int64))
            by_veu.append(np.stack([ends - np.array(took, dtype=np.int64), ends], axis=1).reshape(-1, 2))
        programs.append(tuple(by_veu))
    return tuple(programs)


def two_kinds():
    """Rows of four rTasks, and their products by a constant."""
    maker = TaskGraphMaker()
    rows = maker.elementwise([maker.input((4, 4))], tiles=[(1, 4), (2, 4)])
    return maker.finish([maker.matmul(rows, maker.constant((4, 4)), tiles=[(1, 4), (4, 4)])])


def test_an_rkernel_takes_the_median_of_its_rtasks_over_all_runs():
    graph = two_kinds()
    schedule = replace(wavefront.schedule(graph, device(2), TileCosts()), choice=(0, 0))
    first = spans_of(schedule, lambda task: 1000 * (1 + task.tile) if task.operator == 0 else 7000)
    second = spans_of(schedule, lambda task: 9000)
    rows, products = kernels_of(graph, schedule.choice)
    assert seen_us(graph, schedule, [first]) == {rows: 2.5, products: 7.0}
    assert seen_us(graph, schedule, [first, second]) == {rows: 6.5, products: 8.0}


def test_a_coarse_clock_does_not_make_rtasks_free():
    graph = two_kinds()
    schedule = wavefront.schedule(graph, device(2), TileCosts())
    assert min(seen_us(graph, schedule, [spans_of(schedule, lambda _: 0)]).values()) > 0


def kept(graph):
    """The products in a form that keeps their constant."""
    rows, products = graph.operators
    kernels = tuple(replace(kernel, form=RESIDENT, constants=frozenset((1,))) for kernel in products.kernels)
    return replace(graph, operators=(rows, replace(products, kernels=kernels)))


def test_what_keeps_constants_is_not_read_from_a_run_and_not_scaled():
    graph = kept(two_kinds())
    schedule = wavefront.schedule(graph, device(2), TileCosts())
    seen = seen_us(graph, schedule, [spans_of(schedule, lambda _: 3000)])
    rows, products = kernels_of(graph, schedule.choice)
    assert set(seen) == {rows}
    assert InPlaceCosts(seen, TileCosts()).task_us(products) == TileCosts().task_us(products)


def test_costs_are_what_was_seen_and_predictions_that_are_off_alike():
    graph, model = two_kinds(), TileCosts()
    (fine, coarse), (own, other) = (operator.kernels for operator in graph.operators)
    costs = InPlaceCosts({fine: 3 * model.task_us(fine).value, own: 0.5 * model.task_us(own).value}, model)
    assert costs.task_us(fine).value == pytest.approx(3 * model.task_us(fine).value)
    assert costs.task_us(coarse).value == pytest.approx(3 * model.task_us(coarse).value)
    assert costs.task_us(other).value == pytest.approx(0.5 * model.task_us(other).value)
    assert "times 0.50" in costs.task_us(other).provenance
    stranger = TaskGraphMaker()
    graph = stranger.finish([stranger.elementwise([stranger.input((8, 8))] * 2)])
    (kernel,) = graph.operators[0].kernels
    like = InPlaceCosts({fine: 3 * model.task_us(fine).value}, model)  # of the same skeleton
    assert like.task_us(kernel).value == pytest.approx(3 * model.task_us(kernel).value)
    assert InPlaceCosts({}, model).task_us(kernel).value == model.task_us(kernel).value


def test_a_run_by_the_times_that_it_took_is_simulated_as_it_was():
    graph = two_kinds()
    truth = TileCosts(fixed_us=2.0, element_us=0.3)
    target = device(3, task_overhead_us=0.25, starts_early=True)
    schedule = wavefront.schedule(graph, target, TileCosts())
    kernels = kernels_of(graph, schedule.choice)
    spans = spans_of(schedule, lambda task: round(1e3 * truth.task_us(kernels[task.operator]).value))
    costs = InPlaceCosts(seen_us(graph, schedule, [spans]), TileCosts())
    assert simulate(graph, schedule, target, costs).total_us == pytest.approx(
        simulate(graph, schedule, target, truth).total_us
    )


def test_times_that_were_seen_have_code_and_constants_in_them():
    vdevice = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
    assert vdevice.streams_constants
    assert vdevice.instruction_fetch_us[0].value > 0
    still = as_seen(vdevice)
    assert not still.streams_constants
    assert [figure.value for figure in still.instruction_fetch_us] == [0.0, 0.0]


def test_estimates_of_what_is_held_up_are_the_simulators():
    """A chain over two vEUs, whose rTasks wait each: the search then expects what is simulated."""
    maker = TaskGraphMaker()
    tensor = maker.input((4, 4))
    for _ in range(4):
        tensor = maker.elementwise([tensor], tiles=[(2, 4)])
    graph = maker.finish([tensor])
    target = replace(
        device(2, task_overhead_us=0.25, starts_early=True),
        own_handover_us=Figure(1.0, "assumed"),
        last_handover_us=Figure(0.8, "assumed"),
    )
    plain, held = (Estimates(graph, target, TileCosts(), is_held=is_held) for is_held in (False, True))
    assert held.task_us[0][0] == pytest.approx(plain.task_us[0][0] + 0.75)
    assert held.early_us[0][0] == pytest.approx(plain.early_us[0][0] + 0.75)
    assert (plain.handovers.least_us, held.handovers.least_us) == (0.5, 0.8)


# --- traces and turns of a device ---------------------------------------------------------------------------


def test_a_processor_traces_a_plan(tmp_path):
    options = CompileOptions(veus=2, cache_dir=tmp_path)
    vdevice = CpuDevice().describe(options)
    plan = plan_graph(load_graph(mlp_model()), vdevice, options)
    stateful = replace(plan, graph=replace(plan.graph, states=1))
    traced, untraced = trace_plans([plan, stateful], CpuDevice(), [vdevice] * 2, options)
    runs = [trace.spans_ns for trace in traced]
    assert len(runs) > 1
    seen = seen_us(plan.graph, plan.schedule, runs)
    assert set(seen) == set(kernels_of(plan.graph, plan.schedule.choice))
    assert all(0 < time_us < 1e6 for time_us in seen.values())
    spans_us = operator_spans_us(plan.graph, plan.schedule, runs)
    assert spans_us.shape == (len(plan.graph.operators), 2)
    assert (spans_us[:, 0] < spans_us[:, 1]).all()
    assert untraced == []


def test_plans_are_compared_in_turns():
    times = iter([3.0, 5.0, 9.0, 4.0, 2.0, 6.0])
    loaded = []

    def load(source, _binary, _options):
        loaded.append(source)
        others = dict.fromkeys(("run", "trace", "clone"), print)
        return SimpleNamespace(measure_us=lambda _inputs, runs: [next(times)] * runs, **others)

    clocked: Any = SimpleNamespace(emit=lambda plan, _: plan, build=lambda source, _: source, load=load)
    graph = SimpleNamespace(tensors=(), inputs=(), outputs=())
    plans: list[Any] = [SimpleNamespace(graph=graph, name=name) for name in "ab"]
    vdevice: Any = None
    assert compare_plans(plans, clocked, [vdevice] * 2, CompileOptions()) == [3.0, 5.0]
    assert [plan.name for plan in loaded] == ["a", "b"] * 3


# --- auto ----------------------------------------------------------------------------------------------------


FACTORS = {"map": 2.5, "reduce": 0.4, "implicit_gemm": 1.3}
"""By skeleton, how many times as long as predicted."""


class Truth:
    """A machine whose rKernels take times of its own: runs are simulated by them, and traced."""

    def __init__(self):
        self.batches, self.traced, self.compared = [], [], []

    def costs(self, vdevice):
        model = ModelCosts(vdevice)

        def task_us(kernel):
            return Figure(model.task_us(kernel).value * FACTORS.get(kernel.form.skeleton.value, 1.0), "the truth")

        return SimpleNamespace(task_us=task_us)

    def run_us(self, plan, vdevice):
        return simulate(plan.graph, plan.schedule, vdevice, self.costs(vdevice)).total_us

    def measure(self, plans, _device, vdevices, _options):
        self.batches.append([(vdevice, plan.schedule) for plan, vdevice in zip(plans, vdevices, strict=True)])
        return [Figure(self.run_us(plan, one), "made up") for plan, one in zip(plans, vdevices, strict=True)]

    def compare(self, plans, _device, vdevices, _options):
        self.compared.append([plan.schedule for plan in plans])
        return [self.run_us(plan, one) for plan, one in zip(plans, vdevices, strict=True)]

    def trace(self, plans, _device, vdevices, _options):
        self.traced.append([plan.schedule for plan in plans])
        return [[self.trace_of(plan, vdevice)] for plan, vdevice in zip(plans, vdevices, strict=True)]

    def trace_of(self, plan, vdevice):
        kernels, costs = kernels_of(plan.graph, plan.schedule.choice), self.costs(vdevice)
        run = simulate(plan.graph, plan.schedule, vdevice, costs)
        ends_us = {span.task: span.end_us for span in run.spans}

        def span_ns(step):
            if not isinstance(step, Execute):
                return 0, 0
            end_ns = round(1e3 * ends_us[step.task])
            return end_ns - round(1e3 * costs.task_us(kernels[step.task.operator]).value), end_ns

        programs = plan.schedule.programs
        spans = [
            [np.array([span_ns(step) for step in queue]).reshape(-1, 2) for queue in one.steps] for one in programs
        ]
        return Trace(spans_ns=tuple(map(tuple, spans)))


@pytest.fixture
def truth(monkeypatch):
    machine = Truth()
    monkeypatch.setattr(measured, "measure_plans", machine.measure)
    monkeypatch.setattr(measured, "compare_plans", machine.compare)
    monkeypatch.setattr(measured, "trace_plans", machine.trace)
    return machine


def scheduled(name, **options):
    """What `auto` makes of a small network."""
    wanted = CompileOptions(device="cuda:sm_90", policy="auto", tune="programs", **options)
    device = find_device(wanted.device)
    graph = load_graph(NETWORKS[name](seed=0, **SMALL[name]))
    return scheduling.schedule_graph(graph, device, device.describe(wanted), wanted)


def test_auto_finds_quicker_programs_by_the_times_of_a_run(truth):
    found = scheduled("nasnet", veus=16)
    first, *later = truth.batches
    times_us = [
        [simulate(found.tasks, schedule, vdevice, truth.costs(vdevice)).total_us for vdevice, schedule in batch]
        for batch in truth.batches
    ]
    assert first[0][1].policy == "wavefront"
    assert truth.traced[0][0] == first[times_us[0].index(min(times_us[0]))][1]  # the quickest so far
    assert min(map(min, times_us[1:])) < 0.99 * min(times_us[0])
    least_us = min(map(min, times_us))
    assert simulate(found.tasks, found.schedule, found.vdevice, truth.costs(found.vdevice)).total_us == least_us
    programs = [(one.choice, one.programs) for batch in truth.batches for _, one in batch]
    assert len(set(programs)) == len(programs)  # nothing is measured twice
    assert 1 <= len(later) <= 2
    assert all(len(batch) <= 4 for batch in later)


def test_auto_compares_in_turns_what_is_about_as_quick(truth, monkeypatch):
    """As it was measured, the last is the quickest by a percent; in turns it is the first."""

    def measure(plans, *_):
        return [Figure(100.0 - place / len(plans), "made up") for place in range(len(plans))]

    monkeypatch.setattr(measured, "measure_plans", measure)
    monkeypatch.setattr(measured, "trace_plans", lambda plans, *_: [[]] * len(plans))
    monkeypatch.setattr(measured, "compare_plans", lambda plans, *_: [float(len(plans) - n) for n in range(len(plans))])
    assert scheduled("nasnet", veus=16).schedule.policy == "critical-path"


def convolution_model(channels, size):
    """A 3x3 convolution of an image."""
    weight = np.random.default_rng(0).standard_normal((channels, channels, 3, 3)).astype(np.float32)
    shape = (1, channels, size, size)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", pads=[1] * 4)
    return small_model([node], {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}, {"w": weight})


@pytest.mark.parametrize("quick", [4, 2, 1])
def test_auto_filters_less_where_that_is_measured_to_be_quicker(monkeypatch, tmp_path, quick):
    tried: set[int] = set()

    def measure(plans, _device, vdevices, _options):
        tried.update(one.most_filtered for one in vdevices)
        return [Figure(1.0 if one.most_filtered == quick else 2.0, "made up") for one in vdevices]

    monkeypatch.setattr(measured, "measure_plans", measure)
    monkeypatch.setattr(measured, "compare_plans", lambda plans, *_: [1.0] * len(plans))
    monkeypatch.setattr(measured, "trace_plans", lambda plans, *_: [[]] * len(plans))
    wanted = CompileOptions(device="cuda:sm_90", policy="auto", tune="programs", veus=132, dump_dir=tmp_path)
    device = find_device(wanted.device)
    found = scheduling.schedule_graph(load_graph(convolution_model(64, 56)), device, device.describe(wanted), wanted)
    assert tried == {4, 2, 1}
    assert found.vdevice.most_filtered == quick
    filters = any(operator.kind == "ConvInputTransform" for operator in found.tasks.operators)
    assert filters == (quick > 1)
    assert {path.name for path in tmp_path.glob("filtered-*")} == {"filtered-1", "filtered-2"}


def test_networks_without_minimal_filtering_are_tried_as_they_are(truth):
    scheduled("nasnet", veus=16)
    assert {vdevice.most_filtered for batch in truth.batches for vdevice, _ in batch} == {4}
