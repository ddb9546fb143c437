"""TopK against NumPy: order, ties, NaN, every number of elements around a power of two."""

import numpy as np
import pytest
from onnx import helper

import rammer
from rammer.errors import InvalidModelError
from rammer.ir.types import DType, TensorType
from tests.support.onnx_reference import model_of
from tests.support.operators import expression, run_all

RNG = np.random.default_rng(0)


def expected(x, k, axis, largest):
    """NumPy has no stable descending order: of the reversed line, the ascending one backwards."""
    if largest:
        reverse = np.flip(x, axis)
        order = x.shape[axis] - 1 - np.flip(np.argsort(reverse, axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    order = np.take(order, range(k), axis)
    return np.take_along_axis(x, order, axis), order


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("extent", [1, 2, 3, 4, 7, 33])
@pytest.mark.parametrize("k", [1, 3, None])
def test_lines_of_every_length(extent, k, largest):
    k = extent if k is None else k
    x = RNG.integers(0, 5, (3, extent)).astype(np.float32)
    if k > extent:
        with pytest.raises(InvalidModelError, match="elements along"):
            expression("TopK", [TensorType(DType.FLOAT32, x.shape)], axis=1, k=k, largest=largest)
        return
    for found, wanted in zip(
        run_all("TopK", [x], axis=1, k=k, largest=largest), expected(x, k, 1, largest), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", "float16", "float64"])
def test_types_and_axes(dtype, axis, largest):
    x = RNG.integers(0, 100, (3, 5, 4)).astype(dtype)
    if dtype.startswith("float"):
        x.flat[::7], x.flat[3::9], x.flat[5::11] = np.nan, np.inf, -np.inf
    for found, wanted in zip(
        run_all("TopK", [x], axis=axis, k=3, largest=largest), expected(x, 3, axis, largest), strict=True
    ):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [7, 8, 31, 32, 64, 65, 150])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
def test_runs_that_are_put_in_order_by_comparing(k, dtype, largest):
    """Of 7 and fewer there are none, of 32 and more long ones; equal elements, and what is not a number, everywhere."""
    x = RNG.integers(0, 30, (2, 150)).astype(dtype)
    if dtype.startswith("float"):
        x.flat[::7], x.flat[3::9], x.flat[5::11], x.flat[6::13] = np.nan, np.inf, -np.inf, -0.0
    for found, wanted in zip(
        run_all("TopK", [x], axis=1, k=k, largest=largest), expected(x, k, 1, largest), strict=True
    ):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("shape", "k"), [((3, 0), 0), ((3, 4), 0), ((0, 4), 2)])
def test_nothing_to_sort(shape, k):
    values, positions = run_all("TopK", [np.zeros(shape, np.float32)], axis=1, k=k, largest=True)
    assert values.shape == positions.shape == (shape[0], k)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [5, 8, 33])
def test_on_the_processor(k, largest):
    x = RNG.integers(0, 30, (2, 150)).astype(np.float32)
    x.flat[::7], x.flat[3::9], x.flat[5::11], x.flat[6::13] = np.nan, np.inf, -np.inf, -0.0
    nodes = [helper.make_node("TopK", ["x", "k"], ["y", "i"], axis=1, largest=int(largest))]
    model = model_of(nodes, {"x": x}, ["y", "i"], constants={"k": np.array([k])})
    found = rammer.compile(model, "cpu", veus=2).run({"x": x})
    for one, wanted in zip(found.values(), expected(x, k, 1, largest), strict=True):
        np.testing.assert_array_equal(one, wanted)
