"""Epilogues of products in tiles whose threads take several neighbours of a row at a time."""

import numpy as np
import pytest
from onnx import helper

from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.source_files import CODE
from rammer.ir.kernel_form import GemmForm
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import orders
from tests.support.small_models import FLOAT, small_model

TOLERANCES = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3}


def product(rows, elements, columns):
    """A product with a bias for each column and a residual, so that results read what differs and what does not."""
    rng = np.random.default_rng(5)
    weights = (rng.standard_normal((elements, columns)) / np.sqrt(elements)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["s"]),
        helper.make_node("Add", ["s", "r"], ["t"]),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    inputs = {"x": (FLOAT, (rows, elements)), "r": (FLOAT, (rows, columns))}
    constants = {"w": weights, "b": rng.standard_normal(columns).astype(np.float32)}
    return small_model(nodes, inputs, {"y": (FLOAT, (rows, columns))}, constants)


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(("rows", "columns", "width"), [(50, 64, 4), (61, 68, 4), (33, 66, 2), (40, 67, 1), (9, 16, 1)])
def test_against_onnx_runtime(rows, columns, width, precision, gpu):
    """Rows and columns that no tile divides, on a unit of its own, whose rTasks have many results for each thread."""
    model = product(rows, 96, columns)
    plan, vdevice = gpu.plan(model, precision=precision, veus=1)
    assert any(isinstance(kernel.form, GemmForm) for kernel in plan.kernels)
    source = source_of(plan, vdevice)
    code = bytes(source.files[CODE]).decode()
    assert f"<gemm, {width}, " in code
    rng = np.random.default_rng(0)
    x, r = rng.standard_normal((rows, 96)).astype(np.float32), rng.standard_normal((rows, columns)).astype(np.float32)
    (expected,) = run_onnx_runtime(model, {"x": x, "r": r})
    loaded = gpu.load(source)
    for order in orders(plan.veus):
        (found,) = gpu.run(loaded, [x, r], [expected], order)
        assert relative_difference(found, expected) < TOLERANCES[precision], order
