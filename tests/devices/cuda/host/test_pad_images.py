"""Convolutions along one dimension whose padding is in memory, so that warpgroups multiply them."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from rammer.devices.cuda.source import source_of
from rammer.ir.kernel_form import WarpgroupGemmForm
from rammer.roller.construct import construct
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import orders
from tests.support.small_models import small_model

FLOAT16 = TensorProto.FLOAT16


def stem(channels, positions, features, kernel, stride, pads):
    """Two convolutions, as speech models begin: of what the caller has, and of what the first one makes."""
    rng = np.random.default_rng(7)
    constants = {
        "w0": rng.standard_normal((features, channels, kernel)) / np.sqrt(channels * kernel),
        "b0": rng.standard_normal(features),
        "w1": rng.standard_normal((features, features, kernel)) / np.sqrt(features * kernel),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["h"], pads=pads),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["y"], pads=pads, strides=[stride]),
    ]
    constants = {name: array.astype(np.float16) for name, array in constants.items()}
    between = positions + sum(pads) - kernel + 1
    outputs = {"y": (FLOAT16, (1, features, (between + sum(pads) - kernel) // stride + 1))}
    return small_model(nodes, {"x": (FLOAT16, (1, channels, positions))}, outputs, constants)


@pytest.mark.parametrize("pads", [[1, 1], [2, 0]])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions_by_warpgroups(stride, pads, gpu, monkeypatch):
    def best(workload, candidates, vdevice):
        kernels = [workload.kernel(one.tile, one.form) for one in candidates]
        return [one for one in kernels if isinstance(one.form, WarpgroupGemmForm)][:1] or kernels

    monkeypatch.setattr("rammer.devices.cuda.tiling.rules._best", best)
    monkeypatch.setattr("rammer.devices.cuda.tiling.rules._WORTH", np.inf)
    construct.cache_clear()
    model = stem(40, 50, 64, 3, stride, pads)
    plan, vdevice = gpu.plan(model, precision="fp16", veus=3)
    construct.cache_clear()
    assert sum(isinstance(kernel.form, WarpgroupGemmForm) for kernel in plan.kernels) == 2
    x = np.random.default_rng(0).standard_normal((1, 40, 50)).astype(np.float16)
    (expected,) = run_onnx_runtime(model, {"x": x})
    loaded = gpu.load(source_of(plan, vdevice))
    for order in orders(plan.veus):
        (found,) = gpu.run(loaded, [x], [expected], order)
        assert relative_difference(found, expected) < 2e-3, order
