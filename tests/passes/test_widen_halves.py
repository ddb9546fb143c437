"""16-bit floats on devices that multiply none: what lies between inputs and outputs is float32."""

import ml_dtypes
import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.passes import widen_halves
from rammer.verify.graph import verify
from tests.support.kernels import AVX512
from tests.support.passes import Net, kinds

HALVES = {DType.FLOAT16: np.float16, DType.BFLOAT16: ml_dtypes.bfloat16}
X = np.linspace(-3, 3, 12).reshape(3, 4)
W = np.linspace(0.1, 1.7, 20).reshape(4, 5)


def widened(net, *outputs):
    graph = widen_halves.run(net.build(*outputs), AVX512)
    verify(graph)
    return graph


def types_of(graph):
    return [graph.values[output].type.dtype for operator in graph.operators for output in operator.outputs]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_values_between_inputs_and_outputs_are_float32(dtype):
    net = Net()
    half = HALVES[dtype]
    product = net.add("MatMul", net.input(3, 4, dtype=dtype), net.constant(W.astype(half)))
    graph = widened(net, net.add("Relu", net.add("Add", product, product)))
    assert kinds(graph) == ["Cast", "MatMul", "Add", "Relu", "Cast"]
    assert types_of(graph) == [DType.FLOAT32] * 4 + [dtype]
    assert [array.dtype for array in graph.constants.values()] == [np.float32]
    (found,) = evaluate_graph(graph, [X.astype(half)])
    wide = np.maximum(2 * (X.astype(half).astype(np.float32) @ W.astype(half).astype(np.float32)), 0)
    np.testing.assert_array_equal(found, wide.astype(half))


def test_what_the_model_rounds_is_rounded():
    net = Net()
    third = net.add("Mul", net.input(3, 4), net.constant(np.full(4, 1 / 3, np.float32)))
    narrow = net.add("Cast", third, to=DType.FLOAT16)
    graph = widened(net, net.add("Cast", net.add("Neg", narrow), to=DType.FLOAT32))
    x = X.astype(np.float32)
    (found,) = evaluate_graph(graph, [x])
    np.testing.assert_array_equal(found, -(x * np.float32(1 / 3)).astype(np.float16).astype(np.float32))


def test_readers_of_an_output_read_it_unrounded():
    net = Net()
    x = net.input(3, 4, dtype=DType.FLOAT16)
    square = net.add("Mul", x, x)
    graph = widened(net, square, net.add("Sub", square, x))
    narrow = X.astype(np.float16)
    wide = narrow.astype(np.float32)
    for found, wanted in zip(evaluate_graph(graph, [narrow]), (wide * wide, wide * wide - wide), strict=True):
        np.testing.assert_array_equal(found, wanted.astype(np.float16))


@pytest.mark.parametrize("kind", ["Gather", "GatherElements"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_table_of_which_a_part_is_looked_up_stays(dtype, kind):
    net = Net()
    positions = np.array([[3, 0, 1, 2, 2]] if kind == "GatherElements" else [3, 0, 1])
    places = net.input(*positions.shape, dtype=DType.INT64)
    found = net.add(kind, net.constant(W.astype(HALVES[dtype])), places, axis=0)
    graph = widened(net, net.add("Mul", found, found), found)
    assert kinds(graph) == [kind, "Cast", "Mul", "Cast"]
    assert [array.dtype for array in graph.constants.values()] == [HALVES[dtype]]
    rows = W.astype(HALVES[dtype])
    rows = rows[positions] if kind == "Gather" else np.take_along_axis(rows, positions, 0)
    wide = rows.astype(np.float32)
    for value, wanted in zip(evaluate_graph(graph, [positions]), (wide * wide, rows), strict=True):
        np.testing.assert_array_equal(value, wanted.astype(HALVES[dtype]))


def test_a_table_that_is_read_as_often_as_it_is_large_is_widened():
    net = Net()
    positions = net.input(4, dtype=DType.INT64)
    graph = widened(net, net.add("Gather", net.constant(W.astype(np.float16)), positions, axis=0))
    assert kinds(graph) == ["Gather", "Cast"]
    assert types_of(graph) == [DType.FLOAT32, DType.FLOAT16]


def test_other_types_stay():
    net = Net()
    x = net.input(3, 4, dtype=DType.FLOAT16)
    graph = widened(net, net.add("Less", x, net.add("Neg", x)), net.add("Cast", x, to=DType.INT32))
    assert [graph.values[value].type.dtype for value in graph.outputs] == [DType.BOOL, DType.INT32]


def test_units_with_products_of_16_bits_keep_them():
    net = Net()
    x = net.input(3, 4, dtype=DType.FLOAT16)
    graph = net.build(net.add("Mul", x, x))
    gpu = find_device("cuda:sm_90").describe(CompileOptions())
    assert widen_halves.run(graph, gpu) is graph


def test_models_of_float32_are_left_alone():
    net = Net()
    graph = net.build(net.add("Relu", net.input(3, 4)))
    assert widen_halves.run(graph, AVX512) is graph
