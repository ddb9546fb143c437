"""The skeleton `attention` on GPUs, against ONNX's evaluator, and in NumPy where rows are peculiar."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import rammer
from rammer.devices.cuda.source import source_of
from rammer.ir.graph import Array
from rammer.ir.kernel_form import FlashAttentionForm
from rammer.passes import fuse_attention
from rammer.tiling.attention import attention
from tests.support.attention import SIZES, attention_inputs, attention_model, expected, peculiar_rows, softmax_model
from tests.support.host_cuda import HostGpu, orders

Run = Callable[[onnx.ModelProto, Sequence[Array], Sequence[Array], str], list[list[Array]]]
TOLERANCES = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 2e-2}


@pytest.fixture(autouse=True)
def _attention_pays(monkeypatch):
    monkeypatch.setattr(fuse_attention, "predicted_us", lambda expr, *_: 0.0 if attention(expr) else 1.0)


@pytest.fixture
def run_on_host(gpu: HostGpu) -> Run:
    """Runs a model on the host's GPU, in each order that matters."""

    def run(
        model: onnx.ModelProto, inputs: Sequence[Array], like: Sequence[Array], precision: str
    ) -> list[list[Array]]:
        plan, vdevice = gpu.plan(model, precision=precision)
        assert sum(isinstance(kernel.form, FlashAttentionForm) for kernel in plan.kernels) == 1
        loaded = gpu.load(source_of(plan, vdevice))
        return [gpu.run(loaded, inputs, like, order) for order in orders(plan.veus)]

    return run


@pytest.fixture
def run_on_gpu() -> Run:
    """Runs a model on a GPU."""

    def run(
        model: onnx.ModelProto, inputs: Sequence[Array], like: Sequence[Array], precision: str
    ) -> list[list[Array]]:
        net = rammer.compile(model, "cuda", precision=precision)
        chosen = [operator["candidates"][operator["chosen"]]["skeleton"] for operator in net.report["operators"]]
        assert chosen.count("attention") == 1
        names = [value.name for value in model.graph.input]
        return [list(net.run(dict(zip(names, inputs, strict=True))).values())]

    return run


@pytest.fixture(params=["run_on_host", pytest.param("run_on_gpu", marks=pytest.mark.gpu)])
def run(request):
    return request.getfixturevalue(request.param)


def check(run, shapes, precision="fp32", tolerance=None, **given):
    model = attention_model(shapes, **given)
    inputs = attention_inputs(model)
    wanted = expected(model, inputs)
    allowed = tolerance or TOLERANCES[precision]
    for found in run(model, list(inputs.values()), wanted, precision):
        for one, other in zip(found, wanted, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            difference = np.abs(one.astype(np.float64) - other.astype(np.float64))
            assert difference.max() <= allowed * max(1.0, np.abs(other).max())


# bf16 differs from fp16 by instructions alone, which shared heads have in both.
@pytest.mark.parametrize("precision", [pytest.param(p, marks=[pytest.mark.long] * (p == "bf16")) for p in TOLERANCES])
@pytest.mark.parametrize(("rows", "keys", "depth", "width"), SIZES)
def test_shapes(run, rows, keys, depth, width, precision):
    check(run, [(1, 2, rows, depth), (1, 2, keys, depth), (1, 2, keys, width)], precision)


@pytest.mark.parametrize("bool_mask", [False, True])
@pytest.mark.parametrize("mask", [(33, 40), (1, 40), (2, 1, 33, 40), (2, 4, 1, 40)])
def test_masks(run, mask, bool_mask):
    check(run, [(2, 4, 33, 16), (2, 4, 40, 16), (2, 4, 40, 16), mask], "fp16", bool_mask=bool_mask)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize(("rows", "keys"), [(40, 40), (150, 150), (20, 230), (100, 30)])
def test_causal(run, rows, keys, precision):
    check(run, [(1, 2, rows, 16), (1, 2, keys, 16), (1, 2, keys, 16)], precision, is_causal=1)


def test_causal_rows_stop_at_their_last_key(run):
    model = attention_model([(1, 1, 64, 8), (1, 1, 900, 8), (1, 1, 900, 8)], is_causal=1)
    inputs = attention_inputs(model)
    wanted = expected(model, inputs)
    inputs["V"][:, :, 800:] = np.nan  # 0 times NaN would show
    for (found,) in run(model, list(inputs.values()), wanted, "fp16"):
        np.testing.assert_allclose(found, wanted[0], atol=5e-3)


@pytest.mark.parametrize("given", [{"softcap": 2.0}, {"scale": 0.3}])
def test_what_is_done_to_scores(run, given):
    check(run, [(2, 4, 33, 16), (2, 4, 40, 16), (2, 4, 40, 16)], "fp16", **given)


@pytest.mark.parametrize("rows", [1, 2, 3, 40])
@pytest.mark.parametrize("precision", TOLERANCES)
def test_queries_share_heads_of_keys(run, rows, precision):
    check(run, [(2, 8, rows, 16), (2, 2, 140, 16), (2, 2, 140, 16)], precision)


def test_heads_beside_each_other(run):
    check(run, [(2, 32, 64), (2, 40, 32), (2, 40, 32)], "fp16", q_num_heads=4, kv_num_heads=2)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_cache_is_read_where_it_lies(run, precision):
    shapes = [(2, 4, 32, 16), (2, 2, 32, 16), (2, 2, 32, 16), None, (2, 2, 70, 16), (2, 2, 70, 16)]
    check(run, shapes, precision, is_causal=1)


def test_models_of_16_bits(run):
    shapes = [(2, 4, 33, 16), (2, 4, 40, 16), (2, 4, 40, 16)]
    check(run, shapes, "fp16", element_type=TensorProto.FLOAT16)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("fp16", 3e-2)])
def test_rows_without_keys_and_rows_of_nan(run, precision, tolerance):
    inputs, wanted = peculiar_rows()
    for (found,) in run(softmax_model(inputs), inputs, [wanted.astype(np.float32)], precision):
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
        assert np.isnan(found[[3, 7, 8]]).all()
