"""Pooling against ONNX Runtime and a direct loop over windows."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from rammer.errors import InvalidModelError
from rammer.ir.expr import Const, nodes
from rammer.ir.types import DType, TensorType
from tests.support.onnx_node import run_node
from tests.support.operators import expression, run_operator

ULP = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-6, "float64": 1e-12}

GEOMETRIES = [
    # spatial, kernel, strides, dilations, pads, ceil
    ((7,), (3,), (1,), (1,), (0, 0), False),
    ((7,), (3,), (2,), (1,), (1, 1), False),
    ((8,), (3,), (2,), (1,), (0, 1), True),
    ((9,), (3,), (2,), (2,), (2, 1), False),
    ((10,), (3,), (3,), (2,), (1, 2), True),
    ((6, 7), (2, 3), (1, 2), (1, 1), (0, 1, 1, 1), False),
    ((6, 7), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), True),
    ((9, 8), (3, 2), (2, 3), (2, 1), (2, 0, 1, 1), True),
    ((4, 5, 6), (2, 2, 3), (2, 1, 2), (1, 2, 1), (0, 1, 1, 1, 0, 1), False),
]


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def out_shape(spatial, kernel, strides, dilations, pads, ceil):
    """ONNX's rule: rounded up, a window that begins in the end's padding does not count."""
    count = len(spatial)
    extents = []
    for dim, (extent, taps, stride, dilation) in enumerate(zip(spatial, kernel, strides, dilations, strict=True)):
        room = extent + pads[dim] + pads[count + dim] - dilation * (taps - 1) - 1
        size = (-(-room // stride) if ceil else room // stride) + 1
        if ceil and (size - 1) * stride >= extent + pads[dim]:
            size -= 1
        extents.append(size)
    return tuple(extents)


def ours(geometry):
    spatial, kernel, strides, dilations, pads, ceil = geometry
    out = out_shape(spatial, kernel, strides, dilations, pads, ceil)
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": pads, "out_shape": out}


def theirs(geometry):
    _, kernel, strides, dilations, pads, ceil = geometry
    return {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "ceil_mode": int(ceil),
    }


def windows(x, geometry):
    """Per result point, the elements inside x and how many taps fall into x together with its padding."""
    spatial, kernel, strides, dilations, pads, _ = geometry
    out = out_shape(*geometry)
    for point in itertools.product(*map(range, out)):
        inside, padded = [], 0
        for taps in itertools.product(*map(range, kernel)):
            place = [o * s + t * d - p for o, s, t, d, p in zip(point, strides, taps, dilations, pads, strict=False)]
            if all(0 <= i < n for i, n in zip(place, spatial, strict=True)):
                inside.append(x[(..., *place)])
            ends = pads[len(spatial) :]
            padded += all(i < n + e for i, n, e in zip(place, spatial, ends, strict=True))
        yield point, np.stack(inside), padded


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_max_pool(geometry):
    x = normal(2, 3, *geometry[0]) - 5  # All negative: padding must not win.
    (expected,) = run_node("MaxPool", [x], 1, theirs(geometry))
    np.testing.assert_array_equal(run_operator("MaxPool", [x], **ours(geometry)), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, np.int8, np.uint8])
def test_max_pool_of_other_types(dtype):
    geometry = GEOMETRIES[6]
    x = np.random.default_rng(0).permutation(42).reshape(1, 1, 6, 7) - (0 if dtype is np.uint8 else 100)
    expected = np.zeros((1, 1, *out_shape(*geometry)), dtype)
    for point, inside, _ in windows(x.astype(dtype), geometry):
        expected[(..., *point)] = inside.max(0)
    np.testing.assert_array_equal(run_operator("MaxPool", [x.astype(dtype)], **ours(geometry)), expected)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_average_pool(geometry, count_include_pad, dtype):
    x = normal(2, 3, *geometry[0], dtype=dtype)
    result = run_operator("AveragePool", [x], **ours(geometry), count_include_pad=count_include_pad)
    expected = np.zeros((2, 3, *out_shape(*geometry)))
    for point, inside, padded in windows(x.astype(np.float64), geometry):
        expected[(..., *point)] = inside.sum(0) / (padded if count_include_pad else len(inside))
    limit = ULP[result.dtype.name]
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("geometry", [g for g in GEOMETRIES if not g[5]])
def test_average_pool_matches_onnx_runtime(geometry, count_include_pad):
    x = normal(2, 3, *geometry[0])
    attributes = {**theirs(geometry), "count_include_pad": int(count_include_pad)}
    (expected,) = run_node("AveragePool", [x], 1, attributes)
    result = run_operator("AveragePool", [x], **ours(geometry), count_include_pad=count_include_pad)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_pool_that_stays_inside_needs_no_fill_and_a_constant_divisor():
    x = TensorType(DType.FLOAT32, (1, 2, 8, 8))
    attributes = {"kernel": (2, 4), "strides": (2, 2), "dilations": (1, 1), "pads": (0,) * 4, "out_shape": (4, 3)}
    expr = expression("AveragePool", [x], **attributes, count_include_pad=False)
    assert [load.fill for load in expr.loads] == [None]
    assert 8 in [node.value for node in nodes(*expr.roots) if isinstance(node, Const)]
    assert "min" not in str(expr)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("geometry", [GEOMETRIES[1], GEOMETRIES[5]])
def test_lp_pool(geometry, p):
    x = normal(2, 3, *geometry[0])
    (expected,) = run_node("LpPool", [x], 1, {**theirs(geometry), "p": p})
    np.testing.assert_allclose(run_operator("LpPool", [x], **ours(geometry), p=p), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spatial", [(5,), (4, 5), (2, 3, 4), ()])
def test_global_pools(spatial):
    x = normal(2, 3, *spatial)
    axes = tuple(range(2, x.ndim))
    mean = run_operator("GlobalAveragePool", [x])
    np.testing.assert_allclose(mean, x.mean(axes, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(run_operator("GlobalMaxPool", [x]), x.max(axes, keepdims=True))
    norm = run_operator("GlobalLpPool", [x], p=2)
    np.testing.assert_allclose(norm, np.sqrt((x * x).sum(axes, keepdims=True)), rtol=1e-5)


def test_an_empty_batch():
    x = np.zeros((0, 3, 6, 7), np.float32)
    assert run_operator("MaxPool", [x], **ours(GEOMETRIES[6])).shape == (0, 3, *out_shape(*GEOMETRIES[6]))
    assert run_operator("GlobalAveragePool", [x]).shape == (0, 3, 1, 1)


F32 = DType.FLOAT32
GOOD = {"kernel": (2,), "strides": (1,), "dilations": (1,), "pads": (0, 0), "out_shape": (3,)}


@pytest.mark.parametrize(
    ("kind", "shape", "dtype", "attributes", "message"),
    [
        ("MaxPool", (1, 2), F32, GOOD, "no spatial dimension"),
        ("MaxPool", (1, 2, 4, 4), F32, GOOD, "another number of spatial dimensions"),
        ("MaxPool", (1, 2, 4), F32, {**GOOD, "strides": (0,)}, "positive"),
        ("MaxPool", (1, 2, 4), F32, {**GOOD, "out_shape": (-1,)}, "exceeds"),
        ("MaxPool", (1, 2, 4), DType.BOOL, GOOD, "numbers"),
        ("AveragePool", (1, 2, 4), DType.INT32, {**GOOD, "count_include_pad": True}, "floating-point"),
        ("LpPool", (1, 2, 4), F32, {**GOOD, "p": 0}, "not positive"),
        ("GlobalMaxPool", (2,), F32, {}, "no channels"),
    ],
)
def test_operands_that_do_not_fit(kind, shape, dtype, attributes, message):
    with pytest.raises(InvalidModelError, match=message):
        expression(kind, [TensorType(dtype, shape)], **attributes)
