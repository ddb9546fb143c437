"""The networks, compiled: what ONNX Runtime gives, under every policy and number of vEUs, bit by bit each time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import onnx
import pytest

import rammer
from benchmarks.networks import NETWORKS, PAPER, SMALL
from benchmarks.networks.builder import random_inputs
from benchmarks.networks.precision import converted
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.options import CompileOptions
from rammer.pipelines.compiler import build_plan, interface_of
from rammer.pipelines.planning import lower_graph, schedule_tasks, silent
from rammer.roller.model import ModelCosts
from rammer.runtime.executable import Executable
from tests.support.agreement import DISTINCT, relative_difference, run_onnx_runtime
from tests.support.model_maker import Array

TOLERANCE = 1e-4
VEUS = (1, 2, 4)
RUNS = 5

OTHERS = [name for name in NETWORKS if name not in PAPER]
LARGE = ("nasnet", "alexnet", "deepspeech2")
"""Two vEUs are enough of these: from one, and from four, come other tiles, of which the small ones have all kinds."""


@cache
def case(name: str, full: bool) -> tuple[onnx.ModelProto, Mapping[str, Array], list[Array]]:
    """A network, its inputs and ONNX Runtime's outputs."""
    model = NETWORKS[name](**({} if full else SMALL[name]))
    inputs = random_inputs(model, seed=1)
    return model, inputs, run_onnx_runtime(model, inputs)


def errors_of(
    name: str, *, device: str, veus: int, policies: Sequence[str] = DISTINCT, full: bool = False, runs: int = RUNS
) -> dict[str, float]:
    """The compiled network's relative difference from ONNX Runtime by policy, after runs that agree in every bit.

    Policies share one lowering; those that come to one schedule are run once.
    """
    model, inputs, expected = case(name, full)
    options = CompileOptions(device=device, veus=veus)
    found = find_device(device)
    vdevice = found.describe(options)
    graph = load_graph(model)
    tasks = lower_graph(graph, vdevice, options, Dump(None))
    costs = ModelCosts(vdevice)
    known: dict[tuple[object, object], float] = {}
    errors = {}
    for policy in policies:
        chosen = replace(options, policy=policy)
        plan = schedule_tasks(tasks, vdevice, costs, chosen, Dump(None))
        key = (plan.schedule.choice, plan.schedule.programs)
        if key not in known:
            kind = partial(Executable, **interface_of(graph, tasks.in_place))
            known[key] = _error(build_plan(plan, {}, found, vdevice, chosen, silent, kind), inputs, expected, runs)
        errors[policy] = known[key]
    return errors


def _error(net: Executable, inputs: Mapping[str, Array], expected: Sequence[Array], runs: int) -> float:
    results = [list(net.run(inputs).values()) for _ in range(runs)]
    bits = [[array.tobytes() for array in result] for result in results]
    assert all(found == bits[0] for found in bits)
    assert [(array.shape, array.dtype) for array in results[0]] == [(array.shape, array.dtype) for array in expected]
    return max(map(relative_difference, results[0], expected))


def check(errors: Mapping[str, float]) -> None:
    """All are small."""
    assert all(error < TOLERANCE for error in errors.values()), errors


@pytest.mark.parametrize(
    ("name", "veus"),
    [
        pytest.param(name, veus, marks=[pytest.mark.long] * (name in LARGE and veus != 2))
        for name in PAPER
        for veus in VEUS
    ],
)
def test_processor(name, veus):
    check(errors_of(name, device="cpu", veus=veus))


@pytest.mark.parametrize("name", OTHERS)
def test_others_on_the_processor(name):
    check(errors_of(name, device="cpu", policies=["wavefront"], veus=2))


@pytest.mark.parametrize("name", PAPER)
def test_reference_device(name):
    check(errors_of(name, device="reference", veus=4, runs=2))


@pytest.mark.parametrize("name", OTHERS)
def test_others_on_the_reference_device(name):
    check(errors_of(name, device="reference", policies=["wavefront"], veus=4, runs=2))


@pytest.mark.parametrize(("precision", "tolerance"), [("fp16", 1e-2), ("bf16", 2e-2)])
@pytest.mark.parametrize("name", OTHERS)
def test_models_of_16_bits(name, precision, tolerance):
    """Parameters, inputs and outputs are of the type; what ONNX Runtime computes in float32 is the measure."""
    wide = NETWORKS[name](**SMALL[name])
    inputs = random_inputs(wide, seed=1)
    expected = run_onnx_runtime(wide, inputs)
    model = converted(wide, precision)
    narrow = random_inputs(model, seed=1)
    outputs = list(rammer.compile(model, "reference", veus=2).run(narrow).values())
    assert {output.dtype.itemsize for output in outputs} == {2}
    errors = [relative_difference(a.astype(np.float32), b) for a, b in zip(outputs, expected, strict=True)]
    assert max(errors) < tolerance


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "llama"])
def test_published_size(name, capsys):
    errors = {veus: errors_of(name, device="cpu", veus=veus, full=True) for veus in VEUS}
    with capsys.disabled():
        print(f"\n{name:12} {'relative difference from ONNX Runtime with':>45} {', '.join(map(str, VEUS))} vEUs")
        for policy in DISTINCT:
            print(f"  {policy:12}" + "".join(f"{errors[veus][policy]:12.2e}" for veus in VEUS))
    for found in errors.values():
        check(found)
