"""Products of rows that others normalise beside them: factors of rows are tagged, and taken when the sums are there."""

from unittest import mock

import numpy as np
import pytest
from onnx import TensorProto, helper

from rammer.devices.cuda.source import source_of
from rammer.devices.cuda.tiling import rules
from rammer.ir.kernel_form import WarpgroupGemmForm
from rammer.roller.construct import construct
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import orders
from tests.support.products_alone import products_alone
from tests.support.small_models import small_model

FLOAT16, FLOAT = TensorProto.FLOAT16, TensorProto.FLOAT


def block(rows, inner, columns, dtype=FLOAT16):
    """Half of a transformer's layer: a normalisation, a product, and a residual of what is normalised."""
    rng = np.random.default_rng(7)
    constants = {
        "scale": rng.uniform(0.5, 1.5, inner),
        "shift": rng.standard_normal(inner),
        "w": rng.standard_normal((inner, columns)) / np.sqrt(inner),
        "b": rng.standard_normal(columns),
        "v": rng.standard_normal((columns, inner)) / np.sqrt(columns),
        "u": np.eye(inner),  # so that nothing is rounded before rows are normalised
    }
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["h"]),
        helper.make_node("Add", ["h", "x"], ["r"]),
        helper.make_node("LayerNormalization", ["r", "scale", "shift"], ["n"], epsilon=1e-5),
        helper.make_node("MatMul", ["n", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Tanh", ["s"], ["h2"]),
        helper.make_node("MatMul", ["h2", "v"], ["q"]),
        helper.make_node("Add", ["q", "n"], ["y"]),
    ]
    constants = {name: array.astype(numbers_of(dtype)) for name, array in constants.items()}
    outputs = {"y": (dtype, (*rows, inner))}
    return small_model(nodes, {"x": (dtype, (*rows, inner))}, outputs, constants)


def numbers_of(dtype):
    return helper.tensor_dtype_to_np_dtype(dtype)


def run(gpu, model, wanted, inputs, precision="fp16", tolerance=2e-3):
    """The forms of products of warpgroups, which are the first that are `wanted`, and how many tensors are tagged."""
    plain = rules._best

    def best(workload, candidates, vdevice):
        own = [one for one in candidates if isinstance(one.form, WarpgroupGemmForm) and wanted(one.form)]
        return [workload.kernel(one.tile, one.form) for one in own][:1] or plain(workload, candidates, vdevice)

    construct.cache_clear()
    worth = mock.patch("rammer.devices.cuda.tiling.rules._WORTH", np.inf)
    with mock.patch.object(rules, "_best", best), worth, products_alone():
        plan, vdevice = gpu.plan(model, precision=precision, veus=5)
    construct.cache_clear()
    expected = run_onnx_runtime(model, {"x": inputs})
    loaded = gpu.load(source_of(plan, vdevice))
    bits = set()
    for order in orders(plan.veus):
        found = gpu.run(loaded, [inputs], expected, order)
        for one, other in zip(found, expected, strict=True):
            assert relative_difference(one, other) < tolerance, order
        bits.add(b"".join(one.tobytes() for one in found))
    assert len(bits) == 1
    forms = [one.form for one in plan.kernels if isinstance(one.form, WarpgroupGemmForm)]
    return forms, sum(tensor.layout.tagged for tensor in plan.graph.tensors)


CASES = {
    "one warpgroup": ((70,), lambda form: form.instruction_m == 64 and not form.swapped),
    "two warpgroups": ((150,), lambda form: form.instruction_m == 128 and not form.swapped),
    "swapped": ((20,), lambda form: form.swapped),
    "rows of two axes": ((3, 7), lambda form: True),
}


@pytest.mark.parametrize("case", CASES)
def test_normalised_rows(case, gpu):
    rows, wanted = CASES[case]
    x = np.random.default_rng(0).standard_normal((*rows, 192)).astype(np.float16)
    forms, tagged = run(gpu, block(rows, 192, 136), wanted, x)
    assert any(map(wanted, forms))
    assert tagged == 2


@pytest.mark.parametrize("mean", [0.0, 30.0, 1000.0])
def test_mean_may_be_far_away(mean, gpu):
    x = (mean + np.random.default_rng(0).standard_normal((20, 192))).astype(np.float16)
    x[0] = 0.0
    x[1, 3] = 60.0
    assert run(gpu, block((20,), 192, 64), lambda form: True, x)[1] == 2


@pytest.mark.parametrize(("precision", "tolerance"), [("fp16", 2e-3), ("tf32", 2e-3), ("bf16", 2e-2)])
@pytest.mark.parametrize("rows", [(20,), (70,)])
def test_rows_of_float32(rows, precision, tolerance, gpu):
    """Who makes them writes them rounded, too."""
    x = np.random.default_rng(0).standard_normal((*rows, 192)).astype(np.float32)
    forms, tagged = run(gpu, block(rows, 192, 136, FLOAT), lambda form: True, x, precision, tolerance)
    assert forms
    assert tagged == 2
