"""Scatters against loops in NumPy, with few and with many updates of a place."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import rammer
from rammer.errors import InvalidModelError
from rammer.ir.types import DType, TensorType
from tests.support.onnx_node import run_node
from tests.support.onnx_reference import evaluate_model, model_of
from tests.support.operators import expression, run_operator

RNG = np.random.default_rng(0)
COMBINE: dict[str, Any] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "none": lambda old, new: new,
}


def scattered(data, positions, updates, reduction):
    result = data.copy()
    for line, places in enumerate(positions):
        for update, place in enumerate(places):
            if 0 <= place < data.shape[1]:
                result[line, place] = COMBINE[reduction](result[line, place], updates[line, update])
    return result


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize(("count", "places"), [(0, 30), (1, 30), (20, 30), (100, 30), (33, 22000), (100, 9000)])
@pytest.mark.parametrize(("dtype", "lowest"), [("int32", -5), ("float32", 0), ("float16", 25)])
def test_positions_that_repeat_and_lie_outside(dtype, lowest, count, places, reduction):
    data, updates = (RNG.integers(1, 4, (2, extent, 3)).astype(dtype) for extent in (places, count))
    if reduction == "mul" and dtype == "float16":
        data, updates = np.sign(data), np.sign(updates)
    positions = np.where(RNG.random((2, count)) < 0.1, places, RNG.integers(lowest, 30, (2, count)))
    result = run_operator("Scatter", [data, positions, updates], reduction=reduction)
    np.testing.assert_array_equal(result, scattered(data, positions, updates, reduction))


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize(("count", "places"), [(30, 5), (2000, 5), (100, 9000)])
def test_infinities_stay_at_their_places(count, places, reduction):
    data, updates = RNG.normal(size=(1, places, 5)), RNG.normal(size=(1, count, 5))
    updates[0, 3:6] = [[np.inf], [np.nan], [-np.inf]]
    updates[0, 3:6, 3:] = 1
    positions = RNG.integers(0, places, (1, count))
    given: list[Any] = [data.astype(np.float32), positions, updates.astype(np.float32)]
    with np.errstate(all="ignore"):
        expected = scattered(data, positions, updates, reduction)
        result = run_operator("Scatter", given, reduction=reduction)
    np.testing.assert_allclose(result, expected.astype(np.float32), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("count", [8, 500])
def test_infinities_on_the_processor(count):
    data, updates = RNG.normal(size=(9000, 3)).astype(np.float32), RNG.normal(size=(count, 3)).astype(np.float32)
    updates[1:4, 0] = np.inf, np.nan, -np.inf
    indices = RNG.integers(0, 9000, count)
    expected = scattered(data[None], indices[None], updates[None], "add")[0]
    for kind, index in (("ScatterElements", np.tile(indices[:, None], 3)), ("ScatterND", indices[:, None])):
        node = helper.make_node(kind, ["x", "i", "u"], ["y"], reduction="add")
        model = model_of([node], {"x": data, "i": index, "u": updates}, ["y"], opset=18)
        result = rammer.compile(model, "cpu", veus=2)(data, index, updates)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reduction", COMBINE)
@pytest.mark.parametrize("axis", [0, -1])
def test_scatter_elements(axis, reduction):
    data, updates = RNG.normal(size=(5, 6)).astype(np.float32), RNG.normal(size=(4, 3)).astype(np.float32)
    indices = (
        np.stack([RNG.permutation(3) for _ in range(4)]) - 1
        if axis
        else RNG.permuted(np.tile(np.arange(4), (3, 1)), axis=1).T
    )
    (expected,) = run_node("ScatterElements", [data, indices, updates], 1, {"axis": axis, "reduction": reduction}, 18)
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=axis, reduction=reduction)
    model = model_of([node], {"x": data, "i": indices, "u": updates}, ["y"], opset=18)
    (result,) = evaluate_model(model, [data, indices, updates])
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("tuples", [(3,), (50,), (7, 8)])
def test_scatter_nd_on_the_processor(tuples):
    data = RNG.normal(size=(6, 5, 4)).astype(np.float32)
    indices = np.stack([RNG.integers(-6, 6, tuples), RNG.integers(-5, 5, tuples)], axis=-1)
    updates = RNG.normal(size=(*tuples, 4)).astype(np.float32)
    (expected,) = run_node("ScatterND", [data, indices, updates], 1, {"reduction": "add"}, 18)
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], reduction="add")
    model = model_of([node], {"x": data, "i": indices, "u": updates}, ["y"], opset=18)
    result = rammer.compile(model, "cpu", veus=2)(data, indices, updates)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("circular", [True, False])
def test_a_cache_is_written_from_a_position_on(circular):
    x, y = np.arange(24.0, dtype=np.float32).reshape(3, 4, 2), -np.ones((3, 2, 2), np.float32)
    first = np.array([0, 3, 2])
    expected = x.copy()
    for line, start in enumerate(first):
        for place in range(start, start + 2):
            if circular or place < 4:
                expected[line, place % 4] = -1
    result = run_operator("TensorScatter", [x, y, first], axis=1, circular=circular)
    np.testing.assert_array_equal(result, expected)


F32, I64 = DType.FLOAT32, DType.INT64


@pytest.mark.parametrize(
    ("kind", "types", "attributes"),
    [
        ("Scatter", [(F32, (1, 2, 3)), (I64, (1, 4)), (F32, (1, 5, 3))], {"reduction": "none"}),
        ("Scatter", [(F32, (1, 2, 3)), (F32, (1, 4)), (F32, (1, 4, 3))], {"reduction": "none"}),
        ("TensorScatter", [(F32, (1, 2)), (F32, (1, 3))], {"axis": 1, "circular": False}),
        ("TensorScatter", [(F32, (1, 2)), (F32, (1, 2)), (I64, (2,))], {"axis": 1, "circular": False}),
    ],
)
def test_operands_that_do_not_fit(kind, types, attributes):
    with pytest.raises(InvalidModelError):
        expression(kind, [TensorType(*type_) for type_ in types], **attributes)
