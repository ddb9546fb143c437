"""First convolutions, of few channels that lie apart in memory: windows are copied in pieces, or element by element."""

import numpy as np
import pytest
from onnx import helper

from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import orders
from tests.support.small_models import FLOAT, small_model

TOLERANCES = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}


def stem(kernel, stride, pad, size=32, features=24):
    """A convolution of an image, and one of single pixels behind it."""
    rng = np.random.default_rng(5)
    constants = {
        "w": (rng.standard_normal((features, 3, kernel, kernel)) / kernel).astype(np.float32),
        "b": rng.standard_normal(features).astype(np.float32),
        "v": (rng.standard_normal((4, features, 1, 1)) / 5).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["a"], strides=[stride] * 2, pads=[pad] * 4),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"]),
    ]
    out = (size + 2 * pad - kernel) // stride + 1
    ports = {"x": (FLOAT, (1, 3, size, size))}, {"y": (FLOAT, (1, 4, out, out))}
    return small_model(nodes, *ports, constants)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(7, 2, 3), (11, 4, 2), (3, 2, 1), (3, 1, 1), (5, 2, 0)])
def test_against_onnx_runtime(kernel, stride, pad, precision, gpu):
    model = stem(kernel, stride, pad)
    plan, vdevice = gpu.plan(model, precision=precision, veus=3)
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
    (expected,) = run_onnx_runtime(model, {"x": x})
    loaded = gpu.load(source_of(plan, vdevice))
    for order in orders(plan.veus):
        (found,) = gpu.run(loaded, [x], [expected], order)
        assert relative_difference(found, expected) < TOLERANCES[precision], order


def test_windows_begin_at_even_places(gpu):
    """An odd padding gets a zero before it: pieces of two elements, all padding or none, are copied at once."""
    plan, vdevice = gpu.plan(stem(7, 2, 3, size=64, features=64), veus=132)
    (kernel, *_) = plan.kernels
    assert [axis.extent for axis in kernel.expr.reduce_axes] == [3, 7, 8]
    assert b"copy<2, " in bytes(source_of(plan, vdevice).files[CODE])
