"""rTasks of several blocks on a GPU, whatever tiles Roller would choose: planned anywhere, run by `pytest -m gpu`."""

from dataclasses import dataclass
from math import prod

import numpy as np
import pytest
from onnx import helper

from rammer.devices.cuda.tiling import rules
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.kernel_form import GemmForm
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from rammer.roller.construct import construct
from tests.support.agreement import check_runs
from tests.support.small_models import FLOAT, small_model


@dataclass(frozen=True)
class Case:
    """max(x @ w + other, 0): shapes of x and of w, and the tile."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    task: tuple[int, ...]
    is_constant: bool = False  # w
    other: tuple[int, ...] = ()

    def wanted(self, inputs):
        """In float64."""
        product = inputs["x"].astype(np.float64) @ inputs["w"]
        return np.maximum(product + inputs["other"], 0) if self.other else product


CASES = {
    "one step": Case((36, 64, 64), (36, 64, 64), (5, 64, 64), is_constant=True),
    "odd sizes": Case((7, 37, 53), (7, 53, 41), (3, 37, 41)),
    "small blocks": Case((9, 16, 24), (9, 24, 16), (4, 16, 16), other=(9, 16, 16)),
    "long sums": Case((9, 64, 500), (9, 500, 60), (4, 64, 60)),
    "long sums of constants": Case((9, 40, 500), (9, 500, 64), (2, 40, 64), is_constant=True, other=(64,)),
    "rows and lanes": Case((2, 300, 70), (2, 70, 200), (2, 300, 200), other=(2, 300, 200)),
    "ragged rows and lanes": Case((3, 300, 64), (3, 64, 250), (2, 170, 130), other=(250,)),
    "no batches": Case((300, 96), (96, 200), (300, 150), is_constant=True, other=(200,)),
    "two axes of batches": Case((2, 5, 33, 40), (2, 5, 40, 34), (2, 2, 33, 34)),
}


def model_of(case, w):
    shape = (*case.x[:-1], case.w[-1])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["product" if case.other else "y"])]
    if case.other:
        nodes += [helper.make_node("Add", ["product", "other"], ["sum"]), helper.make_node("Relu", ["sum"], ["y"])]
    ports = {"x": case.x} | ({} if case.is_constant else {"w": case.w}) | ({"other": case.other} if case.other else {})
    constants = {"w": w} if case.is_constant else {}
    inputs = {name: (FLOAT, shape) for name, shape in ports.items()}
    return small_model(nodes, inputs, {"y": (FLOAT, shape)}, constants)


@pytest.fixture
def plan_of(monkeypatch):
    """The plan of a case whose rTasks are of its tile, with what made it."""
    monkeypatch.setattr(rules, "_best", every_candidate)

    def plan(case, inputs, **settings):
        monkeypatch.setattr(rules, "boxes", lambda expr, *_: [tile_of(case, expr)])
        construct.cache_clear()
        options = CompileOptions(veus=7, **settings)
        graph = load_graph(model_of(case, inputs["w"]))
        vdevice = find_device(options.device).describe(options)
        plan = plan_graph(graph, vdevice, options)
        assert [kernel.form.tiles > 1 for kernel in plan.kernels if isinstance(kernel.form, GemmForm)] == [True]
        return plan, graph, vdevice, options

    yield plan
    construct.cache_clear()


@pytest.mark.parametrize("name", CASES)
def test_plans(name, plan_of):
    plan_of(CASES[name], inputs_of(CASES[name]), device="cuda:sm_90")


@pytest.mark.gpu
@pytest.mark.parametrize("delays", [False, True])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("tf32", 2e-3), ("fp16", 2e-3)])
@pytest.mark.parametrize("name", CASES)
def test_blocks(name, precision, tolerance, delays, plan_of, tmp_path):
    case, inputs = CASES[name], inputs_of(CASES[name])
    settings = {"device": "cuda", "precision": precision, "delays": delays, "cache_dir": tmp_path}
    plan, graph, vdevice, options = plan_of(case, inputs, **settings)
    device = find_device("cuda")
    source = device.emit(plan, vdevice)
    loaded = device.load(source, device.build(source, options), options)
    arrays = [inputs[graph.values[number].name] for number in graph.inputs]
    check_runs(loaded, arrays, case.wanted(inputs), tolerance)


def inputs_of(case):
    rng = np.random.default_rng(0)
    shapes = {"x": case.x, "w": case.w, "other": case.other or (1,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def every_candidate(workload, candidates, _):
    return [workload.kernel(one.tile, one.form) for one in candidates]


def tile_of(case, expr):
    """The tile of a case; axes of one point are left out of expressions."""
    extents = tuple(axis.extent for axis in expr.axes)
    assert prod(extents) == prod((*case.x[:-1], case.w[-1]))
    return case.task if len(extents) == len(case.task) else pytest.fail(f"axes {extents}")
