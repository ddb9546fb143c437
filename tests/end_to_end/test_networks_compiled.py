"""The networks, compiled: what ONNX Runtime gives, under every policy and number of vEUs, bit by bit each time."""

from collections.abc import Mapping
from functools import cache, partial

import numpy as np
import onnx
import pytest

import rammer
from benchmarks.networks import NETWORKS, PAPER, SMALL
from benchmarks.networks.builder import random_inputs
from benchmarks.networks.precision import converted
from rammer.compiler import build_plan, interface_of, lower_graph, schedule_tasks, silent
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions
from rammer.roller.model import ModelCosts
from rammer.runtime.executable import Executable
from tests.support.agreement import DISTINCT, relative_difference, run_onnx_runtime
from tests.support.model_maker import Array

TOLERANCE = 1e-4
VEUS = (1, 2, 4)
RUNS = 5

OTHERS = [name for name in NETWORKS if name not in PAPER]

by_policy = pytest.mark.parametrize("policy", DISTINCT)


@cache
def case(name: str, full: bool) -> tuple[onnx.ModelProto, Mapping[str, Array], list[Array]]:
    """A network, its inputs and ONNX Runtime's outputs."""
    model = NETWORKS[name](**({} if full else SMALL[name]))
    inputs = random_inputs(model, seed=1)
    return model, inputs, run_onnx_runtime(model, inputs)


@cache
def lowered(name: str, full: bool, device: str, veus: int) -> tuple[Graph, VDevice, TaskGraph]:
    """What all policies schedule."""
    options = CompileOptions(device=device, veus=veus)
    graph, vdevice = load_graph(case(name, full)[0]), find_device(device).describe(options)
    return graph, vdevice, lower_graph(graph, vdevice, options, Dump(None))


def error_of(name: str, *, device: str, policy: str, veus: int, full: bool = False, runs: int = RUNS) -> float:
    """The compiled network's relative difference from ONNX Runtime, after runs that have to agree in every bit."""
    _, inputs, expected = case(name, full)
    graph, vdevice, tasks = lowered(name, full, device, veus)
    options = CompileOptions(device=device, veus=veus, policy=policy)
    plan = schedule_tasks(tasks, vdevice, ModelCosts(vdevice), options, Dump(None))
    net = build_plan(
        plan, {}, find_device(device), vdevice, options, silent, partial(Executable, **interface_of(graph))
    )
    results = [list(net.run(inputs).values()) for _ in range(runs)]
    bits = [[array.tobytes() for array in result] for result in results]
    assert all(found == bits[0] for found in bits)
    assert [(array.shape, array.dtype) for array in results[0]] == [(array.shape, array.dtype) for array in expected]
    return max(map(relative_difference, results[0], expected))


@pytest.mark.parametrize("name", PAPER)
@by_policy
@pytest.mark.parametrize("veus", VEUS)
def test_processor(name, policy, veus):
    assert error_of(name, device="cpu", policy=policy, veus=veus) < TOLERANCE


@pytest.mark.parametrize("name", OTHERS)
def test_others_on_the_processor(name):
    assert error_of(name, device="cpu", policy="wavefront", veus=2) < TOLERANCE


@pytest.mark.parametrize("name", PAPER)
@by_policy
def test_reference_device(name, policy):
    assert error_of(name, device="reference", policy=policy, veus=4, runs=2) < TOLERANCE


@pytest.mark.parametrize("name", OTHERS)
def test_others_on_the_reference_device(name):
    assert error_of(name, device="reference", policy="wavefront", veus=4, runs=2) < TOLERANCE


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
    errors = {
        (policy, veus): error_of(name, device="cpu", policy=policy, veus=veus, full=True)
        for policy in DISTINCT
        for veus in VEUS
    }
    with capsys.disabled():
        print(f"\n{name:12} {'relative difference from ONNX Runtime with':>45} {', '.join(map(str, VEUS))} vEUs")
        for policy in DISTINCT:
            print(f"  {policy:12}" + "".join(f"{errors[policy, veus]:12.2e}" for veus in VEUS))
    assert max(errors.values()) < TOLERANCE
