"""Products that compute gated channels on the way into shared memory (squeeze and excite)."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE
from rammer.devices.cuda.tiling.figures import H200
from rammer.devices.cuda.tiling.gemm_time import gemm_us
from rammer.ir.kernel_form import GemmForm
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import orders
from tests.support.small_models import FLOAT, small_model

TOLERANCES = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "bf16": 2e-2}


def gated(channels, size, features):
    """A depthwise convolution whose channels are gated by what they are in the mean, and a product over them."""
    rng = np.random.default_rng(3)
    shapes = {
        "d": (channels, 1, 3, 3),
        "s": (4, channels, 1, 1),
        "e": (channels, 4, 1, 1),
        "p": (features, channels, 1, 1),
    }
    constants = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("Conv", ["x", "d"], ["y"], group=channels, pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["y"], ["m"]),
        helper.make_node("Conv", ["m", "s"], ["r"]),
        helper.make_node("Conv", ["r", "e"], ["t"]),
        helper.make_node("Sigmoid", ["t"], ["g"]),
        helper.make_node("Mul", ["y", "g"], ["z"]),
        helper.make_node("Conv", ["z", "p"], ["o"]),
    ]
    ports = {"x": (FLOAT, (1, channels, size, size))}, {"o": (FLOAT, (1, features, size, size))}
    return small_model(nodes, *ports, constants)


def product(plan):
    """That which reads gates."""
    (found,) = (kernel for kernel in plan.kernels if isinstance(kernel.form, GemmForm))
    return found


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(("channels", "size", "features"), [(32, 14, 16), (96, 7, 24), (20, 6, 12), (27, 5, 9)])
def test_against_onnx_runtime(channels, size, features, precision, gpu):
    model = gated(channels, size, features)
    plan, vdevice = gpu.plan(model, precision=precision, veus=3)
    x = np.random.default_rng(0).standard_normal((1, channels, size, size)).astype(np.float32)
    (expected,) = run_onnx_runtime(model, {"x": x})
    loaded = gpu.load(source_of(plan, vdevice))
    for order in orders(plan.veus):
        (found,) = gpu.run(loaded, [x], [expected], order)
        assert relative_difference(found, expected) < TOLERANCES[precision], order


def test_few_stages_are_long(gpu):
    """Threads wait for what they compute with, in each stage: 320 elements come at once."""
    plan, vdevice = gpu.plan(gated(320, 7, 64), precision="fp16", veus=132)
    kernel = product(plan)
    assert isinstance(kernel.form, GemmForm)
    assert kernel.form.stages == 2
    assert kernel.form.threadblock.k >= 320
    assert b"compute_vectors<" in bytes(source_of(plan, vdevice).files[CODE])


def test_computing_is_predicted_to_take_longer_than_copying(gpu):
    plan, vdevice = gpu.plan(gated(240, 14, 80), precision="fp16", veus=132)
    kernel, at_once = product(plan), replace(H200, computed_cycles=0.0)
    assert isinstance(kernel.form, GemmForm)
    assert gemm_us(kernel, kernel.form, vdevice, H200) > 0.2 + gemm_us(kernel, kernel.form, vdevice, at_once)
