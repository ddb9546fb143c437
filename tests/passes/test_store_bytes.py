"""Numbers that stand for bytes are stored as bytes: the same bits come out."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.reference.device import describe
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts
from rammer.passes import eliminate_dead, fold_constants, fold_scales, fuse, inline_numbers, inline_views, store_bytes
from rammer.verify.graph import verify
from tests.support.passes import Net

WITH = replace(describe(2), byte_products=ByteProducts.QUADS)
LIMITS = {DType.UINT8: (0, 255), DType.INT8: (-128, 127)}


def requantised(net, x, zero, dtype, scale=0.05):
    """A value that is quantised, as bytes, and the numbers that these stand for."""
    numpy_type = dtype.numpy
    quanta = net.add("Round", net.add("Div", x, net.constant(np.array(scale, np.float32))))
    quanta = net.add("Add", quanta, net.constant(np.array(zero, np.float32))) if zero else quanta
    lower, upper = map(float, LIMITS[dtype])
    bytes_ = net.add("Cast", net.add("Clip", quanta, lower=lower, upper=upper), to=dtype)
    zeros = (net.constant(np.array(zero, numpy_type)),) if zero else ()
    centred = net.add("Cast", net.add("Centre", bytes_, *zeros), to=DType.FLOAT32)
    return bytes_, net.add("Mul", centred, net.constant(np.array(scale, np.float32)))


def fused(graph):
    for run in (fold_constants.run, lambda one: fold_scales.run(one, WITH), eliminate_dead.run, inline_numbers.run):
        graph = run(graph)
    return fuse.run(eliminate_dead.run(inline_views.run(graph)))


def stored(graph):
    after = store_bytes.run(graph, WITH)
    verify(after)
    return after


def check(before, after):
    rng = np.random.default_rng(0)
    inputs = [(4 * rng.standard_normal(before.values[v].type.shape)).astype(np.float32) for v in before.inputs]
    inputs[0].reshape(-1)[:3] = np.inf, -np.inf, 1e30
    for found, wanted in zip(evaluate_graph(after, inputs), evaluate_graph(before, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


def between(graph):
    """The types of what operators make for others."""
    made = {value for operator in graph.operators for value in operator.outputs} - {*graph.outputs}
    return sorted(graph.values[value].type.dtype.value for value in made)


def block(zero, dtype, *, gives_bytes):
    """Rows that are normalised, quantised, and added to what becomes of them."""
    net = Net()
    bytes_, numbers = requantised(net, net.add("Softmax", net.input(6, 8), axis=1), zero, dtype, scale=0.004)
    total = net.add("Add", net.add("Softmax", numbers, axis=1), numbers)
    return net.build(total, bytes_) if gives_bytes else net.build(total)


@pytest.mark.parametrize(("zero", "dtype"), [(0, DType.UINT8), (101, DType.UINT8), (-7, DType.INT8)])
@pytest.mark.parametrize("gives_bytes", [True, False])
def test_what_others_compute_with_is_bytes(zero, dtype, gives_bytes):
    before = fused(block(zero, dtype, gives_bytes=gives_bytes))
    assert between(before) == ["float32"]
    after = stored(before)
    assert between(after) == ([] if gives_bytes else ["uint8"])
    check(before, after)


def test_outputs_and_operands_of_products_stay():
    net = Net()
    _, numbers = requantised(net, net.add("Softmax", net.input(6, 8), axis=1), 5, DType.UINT8, scale=0.004)
    product = net.add("MatMul", numbers, net.weight(8, 3))
    graph = fused(net.build(product))
    assert between(stored(graph)) == between(graph) == ["float32"]
    net = Net()
    _, numbers = requantised(net, net.add("Softmax", net.input(6, 8), axis=1), 5, DType.UINT8, scale=0.004)
    graph = fused(net.build(numbers, net.add("Softmax", numbers, axis=1)))
    assert between(stored(graph)) == between(graph) == []


def test_other_numbers_stay():
    net = Net()
    x = net.add("Clip", net.add("Round", net.add("Softmax", net.input(6, 8), axis=1)), lower=0.0, upper=300.0)
    graph = fused(net.build(net.add("Add", net.add("Softmax", x, axis=1), x)))
    assert between(stored(graph)) == between(graph) == ["float32"]


def test_devices_without_products_of_bytes_keep_their_graphs():
    graph = block(0, DType.UINT8, gives_bytes=True)
    assert store_bytes.run(graph, describe(2)) is graph
