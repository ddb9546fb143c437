"""Products that stream their weights on a GPU: runs of points, what is left over, any precision. `pytest -m gpu`."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from onnx import helper

from benchmarks.networks import NETWORKS
from benchmarks.networks.builder import random_inputs
from rammer.devices.cuda import source as cuda_source
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.kernel_form import GemvForm, GemvRowsForm
from rammer.options import CompileOptions
from rammer.pipelines.kinds import compile_with
from rammer.pipelines.planning import choose_schedule, lower_graph, plan_graph, plan_memory
from rammer.roller.model import ModelCosts
from tests.support.agreement import check_runs, relative_difference, run_onnx_runtime
from tests.support.small_models import FLOAT, small_model

pytestmark = pytest.mark.gpu


@dataclass(frozen=True)
class Case:
    """max(x @ w + bias, 0): shapes of x and of w, which is a constant or an input."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    is_constant: bool = True

    def wanted(self, inputs):
        """In float64."""
        return np.maximum(inputs["x"].astype(np.float64) @ inputs["w"] + inputs["bias"], 0)


CASES = {
    "wide": Case((1, 1024), (1024, 4096)),
    "long": Case((1, 9217), (9217, 40)),
    "short": Case((1, 100), (100, 4096)),
    "odd width": Case((1, 9001), (9001, 27)),
    "halves of runs": Case((1, 500), (500, 2012)),
    "rows": Case((3, 512), (512, 96)),
    "batches": Case((5, 1, 130), (5, 130, 48)),
    "input": Case((1, 700), (700, 64), is_constant=False),
    "vectors left over": Case((1, 4104), (4104, 103)),
}
BY_ROWS = {"wide", "vectors left over"}


def model_of(case, inputs):
    shape = (*case.x[:-1], case.w[-1])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["y"]),
    ]
    ports = {"x": (FLOAT, case.x)} | ({} if case.is_constant else {"w": (FLOAT, case.w)})
    constants = {"bias": inputs["bias"]} | ({"w": inputs["w"]} if case.is_constant else {})
    return small_model(nodes, ports, {"y": (FLOAT, shape)}, constants)


def plan_with(form, graph, vdevice, options):
    """A plan whose product is of that form, whatever else is predicted to be quicker."""
    tasks = lower_graph(graph, vdevice, options, Dump(None))
    kernels = [tuple(one for one in operator.kernels if isinstance(one.form, form)) for operator in tasks.operators]
    assert any(kernels)
    operators = tuple(
        replace(operator, kernels=some or operator.kernels)
        for operator, some in zip(tasks.operators, kernels, strict=True)
    )
    tasks = replace(tasks, operators=operators)
    return plan_memory(tasks, choose_schedule(tasks, vdevice, ModelCosts(vdevice), options), vdevice, Dump(None))


@pytest.mark.parametrize("stays", [True, False], ids=["in L2", "in memory"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("tf32", 2e-3), ("fp16", 2e-3), ("bf16", 2e-2)])
@pytest.mark.parametrize("name", CASES)
def test_streams(name, precision, tolerance, stays, monkeypatch, tmp_path):
    case, rng = CASES[name], np.random.default_rng(0)
    shapes = {"x": case.x, "w": case.w, "bias": case.w[-1:]}
    inputs = {key: rng.standard_normal(shape).astype(np.float32) for key, shape in shapes.items()}
    options = CompileOptions(device="cuda", precision=precision, veus=7, cache_dir=tmp_path)
    device, graph = find_device("cuda"), load_graph(model_of(case, inputs))
    vdevice = device.describe(options)
    plan = plan_with(GemvRowsForm if name in BY_ROWS else GemvForm, graph, vdevice, options)
    if not stays:
        monkeypatch.setattr(cuda_source, "ahead_limit_bytes", lambda *_, **__: 1 << 16)
    source = device.emit(plan, vdevice)
    loaded = device.load(source, device.build(source, options), options)
    arrays = [inputs[graph.values[number].name] for number in graph.inputs]
    check_runs(loaded, arrays, case.wanted(inputs), tolerance)


@pytest.mark.parametrize("bits", [0, 4, 8])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 1e-2), ("bf16", 2e-2)])
def test_a_decode_step_streams_its_matrices(bits, precision, tolerance, tmp_path):
    sizes = {"cached": 20, "layers": 2, "hidden": 256, "heads": 4, "groups": 2, "size": 64, "inner": 512, "words": 640}
    if bits:
        sizes |= {"hidden": 1024, "heads": 16, "inner": 1024}
    model = NETWORKS["llama"](bits=bits, **sizes)
    inputs = random_inputs(model, seed=1)
    options = CompileOptions(device="cuda", precision=precision, veus=7, cache_dir=tmp_path, figures="described")
    plan = plan_graph(load_graph(model), find_device("cuda").describe(options), options)
    assert sum(isinstance(kernel.form, GemvRowsForm) for kernel in plan.kernels) >= 7
    net = compile_with(model, options)
    results = [list(net.run(inputs).values()) for _ in range(100)]
    assert max(map(relative_difference, results[0], run_onnx_runtime(model, inputs))) < tolerance
    assert all([one.tobytes() for one in run] == [one.tobytes() for one in results[0]] for run in results)
