"""Operators with a rounded result for products beside the one for all others."""

import numpy as np
import pytest
from onnx import helper

from rammer.devices.cuda.source import source_of
from rammer.ir.graph import Array
from rammer.ir.types import DType
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import orders
from tests.support.small_models import FLOAT, small_model

TOLERANCES = {"tf32": 2e-3, "fp16": 2e-3, "bf16": 2e-2}
RNG = np.random.default_rng(3)


def weights(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32)


def layers():
    """Two layers of a transformer without attention, which normalise behind each sum."""
    nodes, x = [], "x"
    constants: dict[str, Array] = {}
    for i in range(2):
        constants |= {f"a{i}": weights(64, 128), f"b{i}": weights(128, 64), f"s{i}": weights(64) + 1}
        nodes += [
            helper.make_node("LayerNormalization", [x, f"s{i}"], [f"n{i}"]),
            helper.make_node("MatMul", [f"n{i}", f"a{i}"], [f"h{i}"]),
            helper.make_node("Relu", [f"h{i}"], [f"r{i}"]),
            helper.make_node("MatMul", [f"r{i}", f"b{i}"], [f"m{i}"]),
            helper.make_node("Add", [f"m{i}", f"n{i}"], [f"o{i}"]),
        ]
        x = f"o{i}"
    return small_model(nodes, {"x": (FLOAT, (96, 64))}, {x: (FLOAT, (96, 64))}, constants), (96, 64)


def blocks():
    """Convolutions whose results are added two layers further on."""
    constants = {f"w{i}": weights(3, 3, 16, 16).transpose(3, 2, 0, 1).copy() for i in range(3)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["y"]),
        helper.make_node("Conv", ["y", "w1"], ["d"], pads=[1] * 4),
        helper.make_node("Relu", ["d"], ["z"]),
        helper.make_node("Conv", ["z", "w2"], ["e"], pads=[1] * 4),
        helper.make_node("Add", ["e", "y"], ["o"]),
    ]
    return small_model(nodes, {"x": (FLOAT, (1, 16, 9, 9))}, {"o": (FLOAT, (1, 16, 9, 9))}, constants), (1, 16, 9, 9)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("made", [layers, blocks])
def test_against_onnx_runtime(made, precision, gpu):
    model, shape = made()
    plan, vdevice = gpu.plan(model, precision=precision, veus=3)
    results = [{output.type.dtype for output in kernel.expr.outputs} for kernel in plan.kernels]
    assert any(len(dtypes) == 2 and DType.FLOAT32 in dtypes for dtypes in results)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (expected,) = run_onnx_runtime(model, {"x": x})
    loaded = gpu.load(source_of(plan, vdevice))
    for order in orders(plan.veus):
        (found,) = gpu.run(loaded, [x], [expected], order)
        assert relative_difference(found, expected) < TOLERANCES[precision], order
