"""Scales of quantised numbers go where the numbers are made: nothing but rounding changes, by one quantum at most."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.reference.device import describe
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts
from rammer.passes import byte_products, eliminate_dead, fold_constants, fold_scales
from rammer.verify.graph import verify
from tests.support.passes import Net

RNG = np.random.default_rng(5)
WITH = replace(describe(2), byte_products=ByteProducts.QUADS)
U8 = DType.UINT8


def scalar(net, number, dtype=np.float32):
    return net.constant(np.asarray(number, dtype))


def quantised(net, x, scale, zero=0, dtype=np.uint8):
    ends = np.iinfo(dtype)
    quanta = net.add("Round", net.add("Div", x, scalar(net, scale)))
    if zero:
        quanta = net.add("Add", quanta, scalar(net, zero))
    clipped = net.add("Clip", quanta, lower=float(ends.min), upper=float(ends.max))
    return net.add("Cast", clipped, to=DType.of(np.zeros(0, dtype)))


def numbers(net, x, scale, zero=0, dtype=np.uint8):
    zeros = (scalar(net, zero, dtype),) if zero else ()
    centred = net.add("Cast", net.add("Centre", x, *zeros), to=DType.FLOAT32)
    return net.add("Mul", centred, scalar(net, scale))


def weights(net, *shape):
    integers = net.constant(RNG.integers(-127, 128, shape).astype(np.int8))
    scales = net.constant(RNG.uniform(0.01, 0.1, (shape[0], *(1 for _ in shape[1:]))).astype(np.float32))
    return net.add("Mul", net.add("Cast", net.add("Centre", integers), to=DType.FLOAT32), scales)


def folded(graph):
    after = byte_products.run(graph, WITH)
    after = eliminate_dead.run(fold_scales.run(fold_constants.run(after), WITH))
    verify(after)
    return after


def kinds(graph):
    return [operator.kind for operator in graph.operators]


def check(graph, apart=0.01):
    """Results that are a quantum apart are few."""
    after = folded(graph)
    inputs = [
        RNG.integers(*((0, 256) if type_.dtype is U8 else (-128, 128)), type_.shape).astype(type_.dtype.numpy)
        for type_ in (graph.values[value].type for value in graph.inputs)
    ]
    for found, wanted in zip(evaluate_graph(after, inputs), evaluate_graph(graph, inputs), strict=True):
        assert found.dtype == wanted.dtype
        quanta = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        assert quanta.max() <= 1
        assert np.count_nonzero(quanta) <= apart * quanta.size
        assert len(np.unique(wanted)) > 20
    return after


@pytest.mark.parametrize(("zero", "dtype"), [(0, np.uint8), (77, np.uint8), (-9, np.int8)])
def test_products(zero, dtype):
    """Scale, bias and the quotient are one product and one sum."""
    net = Net()
    x = net.input(1, 8, 6, 7, dtype=U8)
    y = net.conv(numbers(net, x, 0.002, 13), weights(net, 12, 8, 3, 3), net.weight(12), pad=1)
    after = check(net.build(quantised(net, net.add("Relu", y), 0.3, zero, dtype)))
    assert "Div" not in kinds(after)
    assert kinds(after).count("Mul") == 1


@pytest.mark.parametrize("zero", [0, 20])
def test_depthwise_convolutions(zero):
    """They read bytes, where these have no zero point that padding would stand for."""
    net = Net()
    x = net.input(1, 8, 6, 7, dtype=U8)
    y = net.conv(numbers(net, x, 0.002, zero), weights(net, 8, 1, 3, 3), net.weight(8), pad=1, group=8)
    after = check(net.build(quantised(net, net.add("Clip", y, lower=0.0, upper=6.0), 6 / 255)))
    assert ("ConvOfBytes" in kinds(after)) is (zero == 0)
    assert not {"Mul", "Div"} & {*kinds(after)}


def test_sums_of_quantised_numbers():
    net = Net()
    x, y = (net.input(4, 30, dtype=U8) for _ in range(2))
    total = net.add("Add", numbers(net, x, 0.05, 3), numbers(net, y, 0.02, 100))
    after = check(net.build(quantised(net, total, 0.0613, 90)))
    assert "Div" not in kinds(after)


def test_what_is_quantised_as_it_was_stays():
    """Through views, and by a scale that is half of a number's scale where that was halved."""
    net = Net()
    x = net.input(4, 30, dtype=U8)
    turned = net.add("Transpose", numbers(net, x, 0.0625, 3), perm=(1, 0))
    halved = net.add("Mul", net.add("Reshape", turned, shape=(10, 12)), scalar(net, 0.5))
    after = check(net.build(quantised(net, halved, 0.03125, 3)), apart=0)
    assert kinds(after) == ["Transpose", "Reshape"]


@pytest.mark.parametrize(("scale", "zero"), [(0.0625, 4), (0.0624, 3)])
def test_other_scales_and_zero_points_are_computed(scale, zero):
    net = Net()
    x = net.input(4, 30, dtype=U8)
    assert "Quanta" in kinds(check(net.build(quantised(net, numbers(net, x, 0.0625, 3), scale, zero)), apart=0.5))


def test_numbers_are_made_of_quanta_that_are_there():
    """Between two roundings nothing is moved by a zero point and back."""
    net = Net()
    x = net.input(4, 30, dtype=U8)
    middle = quantised(net, net.add("Mul", numbers(net, x, 0.05), numbers(net, x, 0.01)), 0.2, 50)
    after = check(net.build(quantised(net, numbers(net, middle, 0.2, 50), 0.3, 10)))
    assert kinds(after).count("Centre") == 2  # of the input
    assert kinds(after).count("Bytes") == 1


def test_normalisations_take_scales_and_other_functions_are_multiplied():
    net = Net()
    x = net.input(6, 40, dtype=U8)
    y = net.add("LayerNormalization", numbers(net, x, 0.05), net.weight(40), net.weight(40), axis=1, epsilon=1e-5)
    z = net.add("Sigmoid", numbers(net, x, 0.05, 128))
    after = check(net.build(quantised(net, y, 0.03, 128), quantised(net, z, 1 / 255)))
    assert "Div" not in kinds(after)


def test_values_that_others_read_stay():
    net = Net()
    x = net.input(6, 40, dtype=U8)
    y = net.add("Relu", net.add("Add", numbers(net, x, 0.05, 9), net.weight(40)))
    graph = net.build(quantised(net, y, 0.02), y)
    after = folded(graph)
    inputs = [RNG.integers(0, 256, (6, 40)).astype(np.uint8)]
    found, wanted = evaluate_graph(after, inputs), evaluate_graph(graph, inputs)
    np.testing.assert_array_equal(found[1], wanted[1])
    assert np.abs(found[0].astype(int) - wanted[0].astype(int)).max() <= 1


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_numbers_that_no_byte_stands_for(number):
    """The least and the greatest byte, the least for NaN."""
    net = Net()
    x = net.input(2, 3)
    after = folded(net.build(quantised(net, x, 0.5, 7)))
    with np.errstate(all="ignore"):
        (found,) = evaluate_graph(after, [np.full((2, 3), number, np.float32)])
    assert (found == (255 if number > 0 else 0)).all()


def test_devices_without_products_of_bytes_keep_their_graphs():
    net = Net()
    graph = net.build(quantised(net, net.input(6, 40), 0.5))
    assert fold_scales.run(graph, describe(2)) is graph
