"""Normalisations against NumPy in float64 and ONNX Runtime."""

import ml_dtypes
import numpy as np
import pytest

from rammer.errors import InvalidModelError
from rammer.ir.expr import Axis, nodes
from rammer.ir.region import affine
from rammer.ir.types import DType, TensorType
from tests.support.onnx_node import run_node
from tests.support.operators import expression, run_operator

ULP = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 1e-11}
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


def normal(*shape, dtype=np.float32, seed=0, scale=1.5, shift=0.3):
    return (np.random.default_rng(seed).standard_normal(shape) * scale + shift).astype(dtype)


def check(kind, arrays, reference, **attributes):
    """Compare with `reference` of the operands in float64, within the rounding of the result's type."""
    result = run_operator(kind, arrays, **attributes)
    assert result.dtype == arrays[0].dtype
    limit = ULP[result.dtype.name]
    expected = reference(*(array.astype(np.float64) for array in arrays))
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=limit, atol=limit)


def standardized(x, axes, epsilon):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def per_channel(array, rank):
    return array.reshape(-1, *(1,) * (rank - 2))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (2, 3, 4, 5), (0, 3, 2), (2, 0, 4)])
def test_batch_normalization(shape, dtype):
    arrays = [normal(*shape, dtype=dtype)] + [normal(shape[1], dtype=dtype, seed=seed) for seed in (1, 2, 3)]
    arrays.append(np.abs(normal(shape[1], dtype=dtype, seed=4)) + dtype(0.1))

    def reference(x, scale, bias, mean, var):
        scale, bias, mean, var = (per_channel(array, x.ndim) for array in (scale, bias, mean, var))
        return (x - mean) / np.sqrt(var + 1e-3) * scale + bias

    check("BatchNormalization", arrays, reference, epsilon=1e-3)


def test_parameters_may_be_wider_than_the_operand():
    x = normal(2, 3, 4, dtype=np.float16)
    parameters = [np.abs(normal(3, seed=seed)) for seed in range(1, 5)]
    result = run_operator("BatchNormalization", [x, *parameters], epsilon=1e-5)
    assert result.dtype == np.float16
    expected = run_operator("BatchNormalization", [x.astype(np.float32), *parameters], epsilon=1e-5)
    np.testing.assert_array_equal(result, expected.astype(np.float16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_layer_normalization(axis, bias, dtype):
    shape = (3, 4, 5)
    arrays = [normal(*shape, dtype=dtype)] + [normal(*shape[axis:], dtype=dtype, seed=s) for s in (1, 2)[: 1 + bias]]

    def reference(x, scale, shift=0.0):
        return standardized(x, tuple(range(axis, 3)), 1e-4) * scale + shift

    check("LayerNormalization", arrays, reference, axis=axis, epsilon=1e-4)


def test_layer_normalization_broadcasts_scale():
    x, scale = normal(2, 4, 5), normal(1, 5, seed=1)
    check("LayerNormalization", [x, scale], lambda x, s: standardized(x, (1, 2), 1e-5) * s, axis=1, epsilon=1e-5)


def test_variance_does_not_cancel():
    x = normal(2, 64, shift=3000.0)
    ones = np.ones(64, np.float32)
    result = run_operator("LayerNormalization", [x, ones], axis=1, epsilon=0.0)
    np.testing.assert_allclose(result, standardized(x.astype(np.float64), 1, 0.0), atol=2e-3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [1, 2])
def test_rms_normalization(axis, dtype):
    arrays = [normal(3, 4, 5, dtype=dtype), normal(*(3, 4, 5)[axis:], dtype=dtype, seed=1)]

    def reference(x, scale):
        return x / np.sqrt((x * x).mean(tuple(range(axis, 3)), keepdims=True) + 1e-5) * scale

    check("RMSNormalization", arrays, reference, axis=axis, epsilon=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3, 7), (2, 3, 4, 5)])
def test_instance_normalization(shape, dtype):
    arrays = [normal(*shape, dtype=dtype), normal(3, dtype=dtype, seed=1), normal(3, dtype=dtype, seed=2)]

    def reference(x, scale, bias):
        normalized = standardized(x, tuple(range(2, x.ndim)), 1e-5)
        return normalized * per_channel(scale, x.ndim) + per_channel(bias, x.ndim)

    check("InstanceNormalization", arrays, reference, epsilon=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("per_group", [False, True])
def test_group_normalization(groups, per_group, dtype):
    x = normal(2, 6, 4, 3, dtype=dtype)
    parameters = [normal(groups if per_group else 6, dtype=dtype, seed=seed) for seed in (1, 2)]

    def reference(x, scale, bias):
        normalized = standardized(x.reshape(2, groups, -1), 2, 1e-5).reshape(x.shape)
        scale, bias = (np.repeat(array, 6 // len(array)) for array in (scale, bias))
        return normalized * per_channel(scale, 4) + per_channel(bias, 4)

    check("GroupNormalization", [x, *parameters], reference, groups=groups, epsilon=1e-5)


def test_group_statistics_depend_on_the_group_alone():
    types = [TensorType(DType.FLOAT32, shape) for shape in ((2, 6, 4), (6,), (6,))]
    expr = expression("GroupNormalization", types, groups=3, epsilon=1e-5)
    spatial = {axis for node in expr.reductions for axis in nodes(node) if isinstance(axis, Axis)} & set(expr.axes)
    assert spatial == set(expr.axes[:2])
    assert all(affine(index) is not None for node in expr.loads for index in node.indices)


@pytest.mark.parametrize("axes", [(0, 2, 3), (1,), (0, 1)])
def test_mean_variance_normalization(axes):
    check(
        "MeanVarianceNormalization",
        [normal(2, 3, 4, 5)],
        lambda x: (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + 1e-9),
        axes=axes,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("p", [1, 2])
def test_lp_normalization(p, axis, dtype):
    norm = {1: lambda x: np.abs(x).sum(axis, keepdims=True), 2: lambda x: np.sqrt((x * x).sum(axis, keepdims=True))}
    check("LpNormalization", [normal(3, 4, dtype=dtype)], lambda x: x / norm[p](x), axis=axis, p=p)


def test_lp_normalization_of_zeros():
    np.testing.assert_array_equal(run_operator("LpNormalization", [np.zeros((2, 3), np.float32)], axis=1, p=2), 0)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 9])
def test_local_response_normalization(size):
    x = normal(2, 5, 3, 4)
    attributes = {"size": size, "alpha": 0.3, "beta": 0.75, "bias": 1.5}

    def reference(x):
        squares = [(x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1] ** 2).sum(1) for c in range(x.shape[1])]
        return x / (1.5 + 0.3 / size * np.stack(squares, 1)) ** 0.75

    check("LRN", [x], reference, **attributes)
    if size % 2:
        (expected,) = run_node("LRN", [x], 1, attributes)
        np.testing.assert_allclose(run_operator("LRN", [x], **attributes), expected, rtol=1e-5)


def softmax(x, axis):
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax(axis, dtype):
    x = normal(3, 4, 5, dtype=dtype, scale=4.0)
    check("Softmax", [x], lambda x: softmax(x, axis), axis=axis)
    check("LogSoftmax", [x], lambda x: np.log(softmax(x, axis)), axis=axis)


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_softmax_of_great_numbers_and_infinity(kind):
    x = np.array([[1e4, 1e4 - 1, 0], [-1e30, 0, 1], [-np.inf, 0, 1], [np.nan, 0, 1]], np.float32)
    (expected,) = run_node(kind, [x], 1, {"axis": 1})
    np.testing.assert_allclose(run_operator(kind, [x], axis=1), expected, rtol=1e-5)


def test_softmax_is_one_expression_that_shares_its_maximum():
    expr = expression("Softmax", [TensorType(DType.FLOAT32, (4, 8))], axis=1)
    assert len(expr.reductions) == 2
    names = [axis.name for axis in (*expr.axes, *expr.reduce_axes)]
    assert len(set(names)) == len(names) == 4


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 1)])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "Hardmax"])
def test_lines_of_any_length(kind, shape):
    result = run_operator(kind, [np.zeros(shape, np.float32)], axis=1)
    assert result.shape == shape
    np.testing.assert_array_equal(result, 0.0 if kind == "LogSoftmax" else 1.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
def test_hardmax_marks_the_first_greatest(axis, dtype):
    x = np.random.default_rng(0).integers(0, 3, size=(4, 5)).astype(dtype)
    expected = np.zeros(x.shape)
    np.put_along_axis(expected, x.astype(np.float64).argmax(axis, keepdims=True), 1.0, axis)
    check("Hardmax", [x], lambda _: expected, axis=axis)


F32, F16, I32 = DType.FLOAT32, DType.FLOAT16, DType.INT32


@pytest.mark.parametrize(
    ("kind", "types", "attributes", "message"),
    [
        ("BatchNormalization", [(F32, (2, 3))], {"epsilon": 0.1}, "1 operands"),
        ("BatchNormalization", [(F32, (2, 3)), *[(F32, (2,))] * 4], {"epsilon": 0.1}, "one element per channel"),
        ("BatchNormalization", [(F32, (2,)), *[(F32, (2,))] * 4], {"epsilon": 0.1}, "no channels"),
        ("LayerNormalization", [(F32, (2, 3)), (F32, (2,))], {"axis": 1, "epsilon": 0.1}, "broadcast"),
        ("LayerNormalization", [(I32, (2, 3)), (I32, (3,))], {"axis": 1, "epsilon": 0.1}, "floating-point"),
        ("InstanceNormalization", [(F32, (2, 3, 4)), *[(F32, (2,))] * 2], {"epsilon": 0.1}, "per channel"),
        ("GroupNormalization", [(F32, (2, 3, 4)), *[(F32, (3,))] * 2], {"groups": 2, "epsilon": 0.1}, "divide"),
        ("GroupNormalization", [(F32, (2, 4, 4)), *[(F32, (3,))] * 2], {"groups": 2, "epsilon": 0.1}, "per group"),
        ("LpNormalization", [(F32, (2, 3))], {"axis": 1, "p": 3}, "not 1 or 2"),
        ("LRN", [(F32, (2, 3))], {"size": 0, "alpha": 1.0, "beta": 1.0, "bias": 1.0}, "0 channels"),
        ("Softmax", [(F32, (2, 3))], {"axis": 2}, "rank 2"),
        ("Softmax", [(I32, (2, 3))], {"axis": 1}, "floating-point"),
    ],
)
def test_operands_that_do_not_fit(kind, types, attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        expression(kind, [TensorType(*type_) for type_ in types], **attributes)
