"""Whole programs of few vEUs, from a model to its outputs, in several orders of vEUs, warps and copies."""

import numpy as np
import pytest

from rammer.devices.cuda.source import source_of
from rammer.errors import RunTimeoutError
from rammer.schedule.policies import POLICIES
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.cpu import chain, expected, without_first_signal
from tests.support.host_cuda import ORDERS, orders
from tests.support.small_models import layer_model, mlp_model

TOLERANCES = {"fp32": 1e-6, "tf32": 2e-3, "bf16": 2e-2, "fp16": 2e-3}


def check(gpu, model, seed=0, **settings):
    """Every order gives what ONNX Runtime does, and the same bits."""
    plan, vdevice = gpu.plan(model, **settings)
    loaded = gpu.load(source_of(plan, vdevice))
    tolerance = TOLERANCES[settings.get("precision", "fp32")]
    rng = np.random.default_rng(seed)
    shapes = {port.name: [d.dim_value for d in port.type.tensor_type.shape.dim] for port in model.graph.input}
    inputs = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    wanted = run_onnx_runtime(model, inputs)
    bits = set()
    for order in orders(plan.veus):
        found = gpu.run(loaded, list(inputs.values()), wanted, order)
        for ours, theirs in zip(found, wanted, strict=True):
            assert relative_difference(ours, theirs) < tolerance, order
        bits.add(tuple(one.tobytes() for one in found))
    assert len(bits) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_layer(policy, gpu):
    check(gpu, layer_model(), policy=policy, veus=2)


@pytest.mark.parametrize("precision", TOLERANCES)
def test_products(precision, gpu):
    check(gpu, mlp_model(), precision=precision, veus=3)


@pytest.mark.parametrize("veus", [1, 8])
def test_vectors_that_hand_themselves_over(veus, gpu):
    plan = chain(length=9, veus=veus, tiles=4, programs=2)
    loaded = gpu.load(source_of(plan, gpu.vdevice(gpu.options(veus=veus))))
    for seed, order in enumerate(orders(veus)):
        x = np.random.default_rng(seed).standard_normal(64).astype(np.float32)
        np.testing.assert_allclose(gpu.run(loaded, [x], [x], order)[0], expected(plan, x), rtol=1e-6)


def test_missing_signal_is_named(gpu):
    plan = without_first_signal(chain(length=3, veus=2))
    loaded, x = gpu.load(source_of(plan, gpu.vdevice(gpu.options()))), np.ones(64, np.float32)
    for order in ORDERS:
        with pytest.raises(RunTimeoutError) as caught:
            gpu.run(loaded, [x], [x], order)
        assert "vEU 1 is at step 0 of rProgram 0, a Wait for counter 0, which saw 0 of 1" in caught.value.message
