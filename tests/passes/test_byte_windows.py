"""Convolutions of quantised integers by groups: in float32, with the same integers as results."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.reference.device import describe
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts
from rammer.passes import byte_windows, eliminate_dead, fold_constants
from rammer.verify.graph import verify
from tests.support.passes import Net

RNG = np.random.default_rng(4)
WITH = replace(describe(2), byte_products=ByteProducts.QUADS)


def convolution(*, dtype=DType.UINT8, zero=0, computed=False, channels=8, group=8, bias=True, taps=3):
    net = Net()
    x = net.input(2, channels, 7, 6, dtype=dtype)
    point = net.input(dtype=dtype) if computed else net.constant(np.array(zero, dtype.numpy))
    image = net.add("Centre", x, point) if zero or computed else net.add("Centre", x)
    integers = RNG.integers(-127, 128, (16, channels // group, taps, taps)).astype(np.int8)
    operands = [image, net.add("Centre", net.constant(integers))]
    operands += [net.constant(RNG.integers(-(2**20), 2**20, 16).astype(np.int32))] if bias else []
    geometry = {"strides": (2, 1), "dilations": (1, 1), "pads": (1, 0, 2, 1), "group": group, "finite_weights": True}
    total = net.add("Conv", *operands, **geometry)
    number = net.add("Cast", total, to=DType.FLOAT32)
    return net.build(number)


def kinds(graph):
    return [operator.kind for operator in eliminate_dead.run(fold_constants.run(graph)).operators]


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, ["ConvOfBytes"]),
        ({"dtype": DType.INT8, "bias": False}, ["ConvOfBytes"]),
        ({"zero": 100}, ["Centre", "Cast", "Conv"]),
        ({"computed": True}, ["Centre", "Cast", "Conv"]),
        ({"group": 4}, ["Centre", "Cast", "Conv"]),
    ],
)
def test_sums_stay_exact(options, kind):
    graph = convolution(**options)
    after = byte_windows.run(graph, WITH)
    verify(after)
    assert kinds(after) == kind
    inputs = []
    for type_ in (graph.values[value].type for value in graph.inputs):
        ends = np.iinfo(type_.dtype.numpy)
        inputs.append(RNG.integers(ends.min, ends.max + 1, type_.shape).astype(type_.dtype.numpy))
    (found,), (wanted,) = evaluate_graph(after, inputs), evaluate_graph(graph, inputs)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("options", [{"group": 1}, {"channels": 64, "group": 2, "taps": 5}])
def test_long_sums_stay_integers(options):
    assert "ConvOfBytes" not in kinds(byte_windows.run(convolution(**options), WITH))
    assert kinds(byte_windows.run(convolution(**options), WITH))[-1] == "Cast"


def test_devices_without_products_of_bytes_keep_their_graphs():
    graph = convolution()
    assert byte_windows.run(graph, describe(2)) is graph
