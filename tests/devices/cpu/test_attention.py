"""The skeleton `attention` on the processor, against ONNX's evaluator, and in NumPy where rows are peculiar."""

import numpy as np
import pytest
from onnx import TensorProto

import rammer
from rammer.passes import fuse_attention
from rammer.tiling.attention import attention
from tests.support.attention import SIZES, attention_inputs, attention_model, expected, peculiar_rows, softmax_model


@pytest.fixture(autouse=True)
def _attention_pays(monkeypatch):
    monkeypatch.setattr(fuse_attention, "predicted_us", lambda expr, *_: 0.0 if attention(expr) else 1.0)


def compiled(model, veus=2):
    net = rammer.compile(model, "cpu", veus=veus)
    chosen = [operator["candidates"][operator["chosen"]]["skeleton"] for operator in net.report["operators"]]
    assert chosen.count("attention") == 1
    return net


def check(shapes, tolerance=1e-5, **given):
    model = attention_model(shapes, **given)
    inputs = attention_inputs(model)
    for found, wanted in zip(compiled(model).run(inputs).values(), expected(model, inputs), strict=True):
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("rows", "keys", "depth", "width"), SIZES)
def test_shapes(rows, keys, depth, width):
    """Rows, keys, columns and depths that no vector or block divides."""
    check([(2, 3, rows, depth), (2, 3, keys, depth), (2, 3, keys, width)])


@pytest.mark.parametrize("bool_mask", [False, True])
@pytest.mark.parametrize("mask", [(33, 40), (1, 40), (2, 1, 33, 40), (2, 4, 1, 40)])
def test_masks(mask, bool_mask):
    check([(2, 4, 33, 16), (2, 4, 40, 16), (2, 4, 40, 16), mask], bool_mask=bool_mask)


@pytest.mark.parametrize(("rows", "keys"), [(40, 40), (150, 150), (20, 230), (100, 30)])
def test_causal(rows, keys):
    check([(1, 2, rows, 16), (1, 2, keys, 16), (1, 2, keys, 16)], is_causal=1)


def test_causal_rows_stop_at_their_last_key():
    model = attention_model([(1, 1, 64, 8), (1, 1, 300, 8), (1, 1, 300, 8)], is_causal=1)
    inputs = attention_inputs(model)
    wanted = compiled(model).run(inputs)["y"]
    inputs["V"][:, :, 64:] = np.nan  # 0 times NaN would show
    np.testing.assert_array_equal(compiled(model).run(inputs)["y"], wanted)


@pytest.mark.parametrize("given", [{"softcap": 2.0}, {"scale": 0.3}])
def test_what_is_done_to_scores(given):
    check([(2, 4, 33, 16), (2, 4, 40, 16), (2, 4, 40, 16)], **given)


def test_queries_share_heads_of_keys():
    check([(2, 8, 40, 16), (2, 2, 40, 16), (2, 2, 40, 16)])


def test_heads_beside_each_other():
    check([(2, 32, 64), (2, 40, 32), (2, 40, 32)], q_num_heads=4, kv_num_heads=2)


def test_a_cache_is_read_where_it_lies():
    shapes = [(2, 4, 32, 16), (2, 2, 32, 16), (2, 2, 32, 16), None, (2, 2, 70, 16), (2, 2, 70, 16)]
    check(shapes, is_causal=1)


def test_16_bits():
    check([(2, 4, 33, 16), (2, 4, 40, 16), (2, 4, 40, 16)], 2e-3, element_type=TensorProto.FLOAT16)


def test_rows_without_keys_and_rows_of_nan():
    inputs, wanted = peculiar_rows()
    found = compiled(softmax_model(inputs))(*inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert np.isnan(found[[3, 7, 8]]).all()
