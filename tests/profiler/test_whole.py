"""Whole programs measured: figures that are kept, and what they decide."""

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pytest

import rammer
from benchmarks.networks import NETWORKS, SMALL
from rammer.devices.base import Binary, Source
from rammer.devices.cpu.device import CpuDevice
from rammer.devices.registry import find_device
from rammer.errors import DeviceUnavailableError
from rammer.frontends.onnx import load_graph
from rammer.ir.vdevice import Figure
from rammer.options import CompileOptions
from rammer.pipelines import measured, planning, scheduling, together
from rammer.pipelines.compiler import find_target
from rammer.pipelines.planning import plan_graph
from rammer.pipelines.together import Model, plan_together
from rammer.profiler import whole
from rammer.profiler.whole import measure_plan, measure_plans
from rammer.schedule.partitions import Partition
from tests.support.small_models import mlp_model


@dataclass
class Clock:
    """A device whose programs take as long as it says."""

    times_us: list[float]
    loads: int = 0
    shapes: list[Any] = field(default_factory=list)
    name: str = "cpu"

    def emit(self, plan, vdevice):
        return Source(device="cpu", files=MappingProxyType({"plan": repr(plan.schedule).encode()}))

    def build(self, source, options, progress=None):
        return Binary(device="cpu", machine={}, files={})

    def load(self, source, binary, options):
        self.loads += 1
        return self

    def run(self, inputs, outputs):
        raise AssertionError("a device with a clock measures by itself")

    trace = clone = run

    def measure_us(self, inputs, runs):
        self.shapes.append([array.shape for array in inputs])
        return [self.times_us.pop(0)] * runs


@pytest.fixture
def planned(tmp_path):
    options = CompileOptions(veus=2, cache_dir=tmp_path)
    vdevice = CpuDevice().describe(options)
    return plan_graph(load_graph(mlp_model()), vdevice, options), vdevice, options


def test_a_program_is_measured_once(planned):
    plan, vdevice, options = planned
    device: Any = Clock([7.0])
    figures = [measure_plan(plan, device, vdevice, options) for _ in range(2)]
    assert [figure.value for figure in figures] == [7.0, 7.0]
    assert "the whole program, measured" in figures[0].provenance
    assert (device.loads, device.shapes) == (1, [[(8, 64)]])


def test_a_processor_is_measured_by_calls(planned):
    plan, vdevice, options = planned
    assert 0 < measure_plan(plan, CpuDevice(), vdevice, options).value < 1e6


@pytest.mark.gpu
def test_a_part_of_a_gpu_is_measured_by_its_own_clock(tmp_path):
    options = CompileOptions(device="cuda", cache_dir=tmp_path)
    device = find_device("cuda")
    try:
        vdevice = device.describe(options)
    except DeviceUnavailableError:
        pytest.skip("there is no GPU")
    part = replace(vdevice, veus=vdevice.veus[:4])
    plan = plan_graph(load_graph(mlp_model()), part, options)
    assert 1 < measure_plan(plan, device, part, options).value < 1e4


def test_programs_of_another_machine_have_other_figures(planned):
    plan, vdevice, _ = planned
    source = Clock([]).emit(plan, vdevice)
    assert whole._key(source, vdevice) != whole._key(source, replace(vdevice, name="another"))


class EarlyClock(Clock):
    """One whose code is the same wherever tensors lie."""

    def __init__(self, times_us):
        super().__init__(times_us)
        self.built = []

    def code(self, graph, schedule, vdevice):
        return Source(device="cpu", files=MappingProxyType({"code": repr(schedule.choice).encode()}))

    def complete(self, plan, vdevice, code):
        assert code.files == self.code(plan.graph, plan.schedule, vdevice).files
        return super().emit(plan, vdevice)

    def emit(self, plan, vdevice):
        raise AssertionError("there is code by now")

    def build(self, source, options, progress=None):
        self.built += source.files
        return super().build(source, options)


def test_different_codes_are_built_before_any_program_is_measured(planned):
    plan, vdevice, options = planned
    like = replace(plan, schedule=replace(plan.schedule, policy="another"))  # other tables, the same code
    other = replace(plan, schedule=replace(plan.schedule, choice=(0,) * 99))
    device: Any = EarlyClock([7.0, 5.0, 6.0])
    found = measure_plans([plan, like, other], device, [vdevice] * 3, options)
    assert [one.value for one in found] == [7.0, 5.0, 6.0]
    assert device.built == ["code", "code", "plan", "plan", "plan"]


@pytest.fixture
def untraced(monkeypatch):
    """Programs are measured once: neither traced nor compared again."""
    monkeypatch.setattr(measured, "trace_plans", lambda plans, *_: [[]] * len(plans))
    monkeypatch.setattr(measured, "compare_plans", lambda plans, *_: [1.0] * len(plans))


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("tune", ["programs", "measured"])
def test_auto_takes_what_is_measured_to_be_quickest(monkeypatch, tmp_path, tune):
    tried: list[str] = []
    profiled: list[Any] = []

    def measure(plans, device, vdevices, options):
        tried.extend(plan.schedule.policy for plan in plans)
        return [Figure(float(len(plans) - place), "made up") for place in range(len(plans))]

    def profile(kernels, *_):
        profiled.extend(kernels)
        return {}

    monkeypatch.setattr(measured, "measure_plans", measure)
    monkeypatch.setattr(planning, "profile", profile)
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("RAMMER_FIGURES", "described")  # a busy machine's own would change what is worth measuring
    net = rammer.compile(NETWORKS["resnext"](seed=0, **SMALL["resnext"]), "cpu", policy="auto", tune=tune, veus=2)
    assert len(tried) > 1
    assert tried[0] == "wavefront"
    assert net.report["policy"] == tried[-1]
    assert bool(profiled) == (tune == "measured")


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize(
    ("quick", "veus", "tune", "tried"),
    [
        (264, None, "programs", {132, 264}),
        (132, None, "programs", {132, 264}),
        (100, 100, "programs", {100}),
        (132, None, "none", set()),
    ],
    ids=["in halves", "as it is", "a number was named", "nothing is measured"],
)
def test_auto_divides_a_gpu_as_is_measured_to_be_quickest(monkeypatch, tmp_path, quick, veus, tune, tried):
    seen: set[int] = set()

    def measure(plans, device, vdevices, options):
        assert len(plans) == len(vdevices)
        seen.update(one.veu_count for one in vdevices)
        return [Figure(1.0 if one.veu_count == quick else 2.0, "made up") for one in vdevices]

    monkeypatch.setattr(measured, "measure_plans", measure)
    options = CompileOptions(device="cuda:sm_90", policy="auto", tune=tune, veus=veus, dump_dir=tmp_path)
    device, vdevice = find_target(options)
    found = scheduling.schedule_graph(load_graph(mlp_model()), device, vdevice, options)
    assert found.vdevice.veu_count == quick
    assert seen == tried
    assert len(found.schedule.programs[0].steps) == quick
    divided = {path.name for path in tmp_path.glob("division-*")}
    assert divided == ({"division-1", "division-2"} if len(tried) > 1 else set())


def test_partitions_follow_from_measured_times(monkeypatch):
    """Of two models that simulation takes for alike, one is measured to be thrice as slow."""
    options = CompileOptions(veus=8)
    vdevice = CpuDevice().describe(options)
    seen: list[list[float]] = []
    took_over: list[float] = []

    def find(veus, priorities, time_us, cost_of_taking_over):
        seen.append([time_us(model, 4) for model in (0, 1)])
        took_over.append(cost_of_taking_over(0, 4))
        return (Partition(models=(0, 1), veus=range(veus)),)

    monkeypatch.setattr(together, "find_partitions", find)
    models = [Model(name="a", graph=load_graph(mlp_model())), Model(name="b", graph=load_graph(mlp_model()))]
    plan_together(models, vdevice, options)
    figures = iter((30.0, 90.0))
    plan_together(models, vdevice, options, run_us=lambda plan, share: next(figures))
    assert seen[0][0] == seen[0][1]
    assert seen[1] == pytest.approx([30.0, 90.0])
    assert took_over[1] == pytest.approx(90.0)  # the second one cannot use more than four units
