"""Operands of products are rounded to the precision that was asked for, and nothing else is."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.evaluate import converted, evaluate_graph
from rammer.options import CompileOptions
from rammer.passes import round_products
from rammer.verify.graph import verify
from tests.support.passes import Net

H200 = find_device("cuda:sm_90").describe(CompileOptions())


def run(graph, precision):
    rounded = round_products.run(graph, replace(H200, precision=precision))
    verify(rounded)
    return rounded


def narrow(array, precision):
    return converted(array, round_products.ROUNDED[precision]).astype(np.float32)


def normal(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def result_of(graph, given):
    (result,) = evaluate_graph(graph, [given])
    return np.asarray(result, np.float32)


def stored(graph):
    return sorted(graph.values[value].type.dtype.value for value in graph.constants)


@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
def test_products_are_of_rounded_operands_and_sums_are_not(precision):
    net, w, b = Net(), normal(40, 24), normal(24)
    x = net.input(16, 40)
    y = net.add("Gemm", x, net.constant(w), net.constant(b), alpha=1.0, beta=1.0, trans_a=False, trans_b=False)
    given = normal(16, 40)
    result = result_of(run(net.build(y), precision), given)
    exact = narrow(given, precision).astype(np.float64) @ narrow(w, precision).astype(np.float64) + b
    np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-5)
    assert np.abs(result - (given.astype(np.float64) @ w + b)).max() > 1e-4  # it makes a difference


def test_float32_changes_nothing():
    net = Net()
    graph = net.build(net.add("MatMul", net.input(16, 40), net.weight(40, 24)))
    assert run(graph, "fp32") is graph


@pytest.mark.parametrize(("precision", "dtype"), [("tf32", "tf32"), ("bf16", "bfloat16"), ("fp16", "float16")])
def test_weights_are_stored_narrow(precision, dtype):
    net = Net()
    graph = run(net.build(net.add("MatMul", net.input(16, 40), net.weight(40, 24))), precision)
    assert stored(graph) == [dtype]


def test_weights_that_stream_are_stored_narrow_and_inputs_stay():
    net, w = Net(), normal(40, 24)
    graph = run(net.build(net.add("MatMul", net.input(1, 40), net.constant(w))), "fp16")
    assert stored(graph) == ["float16"]
    given = normal(1, 40)
    np.testing.assert_allclose(
        result_of(graph, given), given.astype(np.float64) @ narrow(w, "fp16"), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize(("stationary_bytes", "dtype"), [(0, "float32"), (1 << 10, "float16")])
def test_weights_of_several_readers_are_stored_narrow_where_units_keep_them(stationary_bytes, dtype):
    net = Net()
    w = net.weight(40, 24)
    outputs = [net.add("MatMul", net.input(1, 40), w) for _ in range(2)]
    device = replace(H200, precision="fp16", stationary_bytes=stationary_bytes)
    assert stored(round_products.run(net.build(*outputs), device)) == [dtype]


def test_an_odd_number_of_elements_is_rounded_where_it_is_multiplied():
    net, w = Net(), normal(41, 24)
    graph = run(net.build(net.add("MatMul", net.input(16, 41), net.constant(w))), "fp16")
    assert stored(graph) == ["float32"]
    given = normal(16, 41)
    exact = narrow(given, "fp16").astype(np.float64) @ narrow(w, "fp16").astype(np.float64)
    np.testing.assert_allclose(result_of(graph, given), exact, rtol=1e-5, atol=1e-5)


def test_a_constant_that_is_more_than_a_weight_stays():
    net = Net()
    w = net.weight(24, 24)
    product = net.add("MatMul", net.input(16, 24), w)
    graph = run(net.build(product, net.add("Exp", w)), "fp16")
    assert stored(graph) == ["float16", "float32"]


def test_integers_and_products_without_sums_stay():
    net = Net()
    x = net.input(16, 40)
    graph = net.build(net.add("Mul", x, net.weight(40)))
    assert run(graph, "tf32").operators == graph.operators
