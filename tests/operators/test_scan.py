"""Running sums, products and extremes against NumPy."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rammer.errors import InvalidModelError
from rammer.ir.types import DType, TensorType
from rammer.operators.builder import GraphBuilder
from rammer.passes import unroll
from tests.support.operators import expression, run_operator

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "CumSum": np.cumsum,
    "CumProd": np.cumprod,
    "CumMax": np.maximum.accumulate,
    "CumMin": np.minimum.accumulate,
}
FIRST: Mapping[str, int] = {
    "CumSum": 0,
    "CumProd": 1,
    "CumMax": np.iinfo(np.int64).min,
    "CumMin": np.iinfo(np.int64).max,
}
"""Where nothing comes before."""
LENGTHS = [1, 5, 32, 33, 48, 600]
"""One block, several, several with a shorter one at the end, and blocks of blocks."""


def scanned(kind, x, axis, *, reverse, exclusive):
    """NumPy's inclusive scan; the exclusive one is that of a line moved on by one."""
    line = np.flip(x, axis) if reverse else x
    if exclusive:
        first = np.full_like(line.take([0], axis), FIRST[kind])
        line = np.concatenate([first, np.delete(line, -1, axis)], axis)
    result = FUNCTIONS[kind](line, axis).astype(x.dtype)
    return np.flip(result, axis) if reverse else result


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_scans_of_every_length(kind, length, reverse, exclusive):
    x = np.random.default_rng(length).integers(-5, 6, size=(length, 3))
    expected = scanned(kind, x, 0, reverse=reverse, exclusive=exclusive)
    result = run_operator(kind, [x], axis=0, reverse=reverse, exclusive=exclusive)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.uint8, np.int32])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_scans_of_every_type(kind, axis, dtype):
    x = np.random.default_rng(0).choice([1, 2], size=(2, 40, 2), p=[0.9, 0.1]).astype(dtype)
    expected = scanned(kind, x.astype(np.float64), axis, reverse=False, exclusive=False)
    result = run_operator(kind, [x], axis=axis, reverse=False, exclusive=False)
    np.testing.assert_array_equal(result, expected.astype(np.int64).astype(dtype))


def test_halves_are_rounded_once():
    x = np.full(4096, 0.1, np.float16)
    result = run_operator("CumSum", [x], axis=0, reverse=False, exclusive=False)
    np.testing.assert_allclose(result, np.cumsum(x.astype(np.float64)), rtol=2**-11)


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_comes_before_a_special_value_does_not_see_it(kind, value):
    x = np.ones(100, np.float32)
    x[70] = value
    result = run_operator(kind, [x], axis=0, reverse=False, exclusive=False)
    np.testing.assert_array_equal(result, FUNCTIONS[kind](x))


def test_scans_of_nothing():
    x = np.zeros((0, 3), np.float32)
    assert run_operator("CumSum", [x], axis=0, exclusive=True, reverse=False).shape == (0, 3)
    assert run_operator("CumSum", [x], axis=1, exclusive=True, reverse=False).shape == (0, 3)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_work_is_proportional_to_the_elements(kind):
    length = 1 << 20
    builder = GraphBuilder("test")
    x = builder.input("x", TensorType(DType.FLOAT32, (length,)))
    outputs = builder.add(kind, [x], {"axis": 0, "exclusive": False, "reverse": False}, name="op")
    expressions = [operator.expr for operator in unroll.run(builder.build(outputs)).operators]
    assert len(expressions) < 20
    points = [math.prod(axis.extent for axis in (*expr.axes, *expr.reduce_axes)) for expr in expressions if expr]
    assert sum(points) < 2.2 * length


@pytest.mark.parametrize(
    ("kind", "type_", "axis", "message"),
    [
        ("CumSum", (DType.FLOAT32, (3,)), 1, "rank 1"),
        ("CumProd", (DType.BOOL, (3,)), 0, "takes numbers"),
    ],
)
def test_operands_that_do_not_fit(kind, type_, axis, message):
    with pytest.raises(InvalidModelError, match=message):
        expression(kind, [TensorType(*type_)], axis=axis, exclusive=False, reverse=False)
