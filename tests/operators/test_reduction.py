"""Reductions against NumPy and ONNX Runtime."""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rammer.errors import InvalidModelError
from rammer.ir.types import DType, TensorType
from tests.support.onnx_node import run_node
from tests.support.operators import expression, run_operator

ULP = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-12}

STATISTICS: Mapping[str, Callable[..., Any]] = {
    "ReduceSum": np.sum,
    "ReduceMean": np.mean,
    "ReduceMax": np.max,
    "ReduceMin": np.min,
    "ReduceProd": np.prod,
    "ReduceL1": lambda x, **k: np.sum(np.abs(x), **k),
    "ReduceL2": lambda x, **k: np.sqrt(np.sum(x * x, **k)),
    "ReduceLogSum": lambda x, **k: np.log(np.sum(x, **k)),
    "ReduceLogSumExp": lambda x, **k: np.log(np.sum(np.exp(x), **k)),
    "ReduceSumSquare": lambda x, **k: np.sum(x * x, **k),
}


def positive(*shape, dtype=np.float32, seed=0):
    return (np.random.default_rng(seed).random(shape) + 0.25).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 2), (2, 1), (0, 1, 2), ()])
@pytest.mark.parametrize("kind", STATISTICS)
def test_reductions_of_floats(kind, axes, keepdims, dtype):
    x = positive(3, 4, 5, dtype=dtype)
    expected = STATISTICS[kind](x.astype(np.float64), axis=axes, keepdims=keepdims)
    result = run_operator(kind, [x], axes=axes, keepdims=keepdims)
    limit = ULP[result.dtype.name]
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("kind", [kind for kind in STATISTICS if kind != "ReduceLogSumExp"])
def test_reductions_of_integers(kind, dtype):
    x = np.random.default_rng(0).integers(-6, 7, size=(3, 4)).astype(dtype)
    x = np.abs(x) if kind == "ReduceLogSum" else x
    (expected,) = run_node(kind, [x, np.array([1])], 1, {"keepdims": 0})
    np.testing.assert_array_equal(run_operator(kind, [x], axes=(1,), keepdims=False), expected)


def test_log_sum_exp_of_integers_is_truncated_once():
    x = np.array([[5, 2, 1], [-3, -4, -9], [60, 60, 60]], np.int64)
    np.testing.assert_array_equal(run_operator("ReduceLogSumExp", [x], axes=(1,), keepdims=False), [5, -2, 61])


def test_extremes_of_booleans():
    x = np.array([[True, False], [False, False], [True, True]])
    np.testing.assert_array_equal(run_operator("ReduceMax", [x], axes=(1,), keepdims=False), [True, False, True])
    np.testing.assert_array_equal(run_operator("ReduceMin", [x], axes=(1,), keepdims=False), [False, False, True])


@pytest.mark.parametrize(
    ("kind", "identity"),
    [
        ("ReduceSum", 0),
        ("ReduceProd", 1),
        ("ReduceMax", -np.inf),
        ("ReduceMin", np.inf),
        ("ReduceMean", np.nan),
        ("ReduceL1", 0),
        ("ReduceL2", 0),
        ("ReduceSumSquare", 0),
        ("ReduceLogSum", -np.inf),
        ("ReduceLogSumExp", -np.inf),
    ],
)
def test_over_no_elements(kind, identity):
    result = run_operator(kind, [np.zeros((2, 0), np.float32)], axes=(1,), keepdims=True)
    np.testing.assert_array_equal(result, np.full((2, 1), identity, np.float32))
    assert run_operator(kind, [np.zeros((0, 2), np.float32)], axes=(1,), keepdims=True).shape == (0, 1)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_extremes_of_no_integers(dtype):
    x = np.zeros((1, 0), dtype)
    assert run_operator("ReduceMax", [x], axes=(1,), keepdims=False) == [np.iinfo(dtype).min]
    assert run_operator("ReduceMin", [x], axes=(1,), keepdims=False) == [np.iinfo(dtype).max]
    with pytest.raises(InvalidModelError, match="mean of no integers"):
        run_operator("ReduceMean", [x], axes=(1,), keepdims=False)


def test_nan_passes_through_extremes():
    x = np.array([[1.0, np.nan, 3.0], [1.0, 2.0, 3.0]], np.float32)
    np.testing.assert_array_equal(run_operator("ReduceMax", [x], axes=(1,), keepdims=False), [np.nan, 3])
    np.testing.assert_array_equal(run_operator("ReduceMin", [x], axes=(1,), keepdims=False), [np.nan, 1])


def test_log_sum_exp_neither_overflows_nor_loses_infinity():
    inf = np.inf
    x = np.array([[1000, 1000], [-1000, -1000], [-inf, -inf], [inf, 0], [-inf, 2], [np.nan, 0]], np.float32)
    expected = [1000 + np.log(2), -1000 + np.log(2), -inf, inf, 2, np.nan]
    result = run_operator("ReduceLogSumExp", [x], axes=(1,), keepdims=False)
    np.testing.assert_allclose(result, np.array(expected, np.float32), rtol=1e-6)


def test_halves_are_summed_in_float32():
    x = np.full((1, 4096), 1.0, np.float16)
    assert run_operator("ReduceSum", [x], axes=(1,), keepdims=False) == [4096]
    assert run_operator("ReduceMean", [x * np.float16(100)], axes=(1,), keepdims=False) == [100]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.uint8])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
def test_position_of_the_extreme_with_ties(kind, last, axis, keepdims, dtype):
    x = np.random.default_rng(0).integers(0, 3, size=(3, 4, 5)).astype(dtype)
    function = np.argmax if kind == "ArgMax" else np.argmin
    expected = function(np.flip(x, axis) if last else x, axis=axis, keepdims=keepdims)
    expected = x.shape[axis] - 1 - expected if last else expected
    result = run_operator(kind, [x], axis=axis, keepdims=keepdims, select_last_index=last)
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, expected)


def test_a_nan_is_the_extreme():
    x = np.array([[1, np.nan, 3, np.nan], [np.inf, 1, np.inf, 2], [-np.inf] * 4], np.float32)
    first = run_operator("ArgMax", [x], axis=1, keepdims=False, select_last_index=False)
    np.testing.assert_array_equal(first, [1, 0, 0])
    last = run_operator("ArgMax", [x], axis=1, keepdims=False, select_last_index=True)
    np.testing.assert_array_equal(last, [3, 2, 3])


def test_inverse_standard_deviation():
    x = positive(3, 8, dtype=np.float64)
    result = run_operator("InverseStdDev", [x], axes=(1,), keepdims=True, epsilon=1e-5)
    np.testing.assert_allclose(result, 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5), rtol=1e-12)


@pytest.mark.parametrize(
    ("kind", "type_", "attributes", "message"),
    [
        ("ReduceSum", (DType.FLOAT32, (3,)), {"axes": (1,), "keepdims": True}, "rank 1"),
        ("ReduceSum", (DType.FLOAT32, (3, 4)), {"axes": (1, 1), "keepdims": True}, "twice"),
        ("ReduceSum", (DType.BOOL, (3,)), {"axes": (0,), "keepdims": True}, "takes numbers"),
        ("ArgMax", (DType.FLOAT32, (3, 0)), {"axis": 1, "keepdims": True, "select_last_index": False}, "empty"),
        ("InverseStdDev", (DType.INT32, (3,)), {"axes": (0,), "keepdims": True, "epsilon": 0.0}, "floating-point"),
    ],
)
def test_operands_that_do_not_fit(kind, type_, attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        expression(kind, [TensorType(*type_)], **attributes)
