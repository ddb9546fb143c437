"""Branches that are not taken are skipped on a GPU, too, in every order of blocks, and leave nothing behind."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from rammer.devices.codegen.tables import ARENA
from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE
from rammer.ir.kernel_form import WarpgroupGemmForm
from tests.devices.cuda.host.test_warpgroup_gemm import plan_of
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import ORDERS, orders
from tests.support.random_branches import layer_in_a_branch, products_by_branch, random_branches


def inputs_of(rows, inner):
    """One input for each branch."""
    x = np.abs(np.random.default_rng(1).standard_normal((rows, inner))).astype(np.float32)
    return [{"x": x}, {"x": -x}]


def check(gpu, plan, vdevice, model, runs, tolerance):
    """Each order gives what ONNX Runtime does, run after run in one memory."""
    loaded = gpu.load(source_of(plan, vdevice))
    for order in orders(plan.veus):
        for inputs in (*runs, runs[0]):
            wanted = run_onnx_runtime(model, inputs)
            found = gpu.run(loaded, list(inputs.values()), wanted, order)
            for one, other in zip(found, wanted, strict=True):
                assert relative_difference(one, other) < tolerance, order


@pytest.mark.parametrize("rows", [1, 24])
def test_both_outcomes(rows, gpu):
    model = products_by_branch(rows, 64)
    plan, vdevice = gpu.plan(model, veus=4)
    check(gpu, plan, vdevice, model, inputs_of(rows, 64), 1e-5)


def test_products_of_warpgroups(gpu):
    model = products_by_branch(64, 128)
    plan, vdevice = plan_of(gpu, model, lambda form: True, precision="fp16", veus=3)
    products = [op for op, kernel in zip(plan.graph.operators, plan.kernels, strict=True) if is_warpgroup(kernel)]
    assert products
    assert all(op.predicate is not None for op in products)
    check(gpu, plan, vdevice, model, inputs_of(64, 128), 2e-2)


def is_warpgroup(kernel):
    return isinstance(kernel.form, WarpgroupGemmForm)


@pytest.mark.parametrize("seed", range(3))
def test_random_branches_and_loops(seed, gpu):
    model, inputs = random_branches(seed)
    plan, vdevice = gpu.plan(model, veus=3)
    check(gpu, plan, vdevice, model, [inputs], 1e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_that_is_not_taken_writes_nothing(sign, gpu):
    model = products_by_branch(24, 64)
    plan, vdevice = gpu.plan(model, veus=2)
    plan = replace(plan, memory=apart(plan))
    x = sign * inputs_of(24, 64)[0]["x"]
    loaded = gpu.load(source_of(plan, vdevice))
    gpu.api.order = ORDERS[0]
    arena = loaded._segments[ARENA]
    branch = [op for op in plan.graph.operators if "_branch/" in op.name]
    places = {op.name: plan.memory.offsets_bytes[op.writes[0].tensor] for op in branch}
    for place in places.values():
        ctypes.memset(arena + place, 0xA5, 4)
    loaded.run([x], [np.empty_like(x)])
    ran = {name: ctypes.string_at(arena + place, 4) != b"\xa5" * 4 for name, place in places.items()}
    taken = "then_branch/" if sign > 0 else "else_branch/"
    assert len(ran) == 3, ran
    assert ran == {name: taken in name for name in ran}


def apart(plan):
    """A memory plan in which no two tensors share bytes."""
    offsets, end = {}, 0
    for tensor in plan.memory.offsets_bytes:
        offsets[tensor] = end
        end += -(-plan.graph.tensors[tensor].nbytes // plan.memory.alignment_bytes) * plan.memory.alignment_bytes
    return replace(plan.memory, offsets_bytes=offsets, arenas_bytes=(end,))


@pytest.mark.parametrize("batch", [1, 3])
def test_recurrent_layers_in_a_branch(batch, gpu):
    model = layer_in_a_branch(batch)
    plan, vdevice = gpu.plan(model, veus=4)
    assert any(op.predicate is not None and op.name.startswith("If") for op in plan.graph.operators)
    x = np.random.default_rng(0).standard_normal((5, batch, 32), dtype=np.float32)
    check(gpu, plan, vdevice, model, [{"x": np.abs(x)}, {"x": -np.abs(x)}], 1e-5)


def test_models_without_branches_test_nothing(gpu):
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("Tanh", ["x"], ["y"])],
            "plain",
            [helper.make_tensor_value_info("x", 1, [4])],
            [helper.make_tensor_value_info("y", 1, [4])],
        )
    )
    plan, vdevice = gpu.plan(model, veus=2)
    assert b"#define RAMMER_PREDICATES 0" in bytes(source_of(plan, vdevice).files[CODE])
