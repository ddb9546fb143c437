"""What products of warpgroups need when their sums are there is tagged; they do not wait for it before they begin."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.kernel_form import WarpgroupGemmForm
from rammer.options import CompileOptions
from rammer.pipelines.planning import plan_graph
from rammer.schedule.policies import POLICIES
from tests.support.small_models import small_model

FLOAT16 = TensorProto.FLOAT16


def layer(readers=()):
    """Rows that are normalised, multiplied, and read once more."""
    rng = np.random.default_rng(0)
    constants = {
        "u": rng.standard_normal((768, 768)) / 28,
        "s": rng.uniform(0.5, 1.5, 768),
        "w": rng.standard_normal((768, 3072)) / 28,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["h"]),
        helper.make_node("LayerNormalization", ["h", "s"], ["n"]),
        helper.make_node("MatMul", ["n", "w"], ["y"]),
        *(helper.make_node(kind, ["n"], ["z"]) for kind in readers),
    ]
    outputs = {"y": (FLOAT16, (128, 3072))} | dict.fromkeys(("z",) * len(readers), (FLOAT16, (128, 768)))
    constants = {name: array.astype(np.float16) for name, array in constants.items()}
    return small_model(nodes, {"x": (FLOAT16, (128, 768))}, outputs, constants)


def plan_of(model, device="cuda:sm_90", **settings):
    options = CompileOptions(device=device, precision="fp16", **settings)
    vdevice = find_device(device).describe(options)
    return plan_graph(load_graph(model), vdevice, options)


def tagged(plan):
    return {tensor.id for tensor in plan.graph.tensors if tensor.layout.tagged}


def test_factors_of_rows_are_tagged():
    plan = plan_of(layer())
    (rows,) = (operator for operator in plan.graph.operators if operator.kind == "RowStatistics")
    assert tagged(plan) == {binding.tensor for binding in rows.writes}
    product = plan.graph.operators[-1]
    assert tagged(plan) < {binding.tensor for binding in product.reads}
    assert all(isinstance(kernel.form, WarpgroupGemmForm) for kernel in product.kernels)
    assert max(kernel.task_count for kernel in rows.kernels) <= plan.veus / 4


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("veus", [1, 3, 40])
def test_few_units_and_all_policies(policy, veus):
    """What is taken late comes before what takes it, wherever they are put: else the plan is refused."""
    assert plan_of(layer(), policy=policy, veus=veus).veus <= veus


@pytest.mark.parametrize("kind", ["Relu", "Tanh"])
def test_not_where_others_read_them_early(kind):
    """An elementwise operator would wait for them when it begins."""
    assert tagged(plan_of(layer((kind,)))) == set()


def test_not_without_warpgroups():
    assert tagged(plan_of(layer(), "cuda:sm_80")) == set()
