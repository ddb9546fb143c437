"""Values that are only read rounded are stored rounded, and results are the same bits."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.passes import channels_last, fuse, narrow_values, round_products
from rammer.verify.graph import verify
from tests.support.passes import Net, random_inputs

H200 = find_device("cuda:sm_90").describe(CompileOptions())
PRECISIONS = ["tf32", "bf16", "fp16"]


def narrowed(graph, precision):
    """Dtypes of the values between operators, in order; what is computed is compared bit for bit."""
    device = replace(H200, precision=precision)
    before = round_products.run(channels_last.run(fuse.run(graph)), device)
    after = narrow_values.run(before, device)
    verify(after)
    inputs = random_inputs(before)
    for expected, found in zip(evaluate_graph(before, inputs), evaluate_graph(after, inputs), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    return [after.values[value].type.dtype for operator in after.operators[:-1] for value in operator.outputs]


def convolutions(channels=16, *, pooled=False, residual=False):
    net = Net()
    x = net.input(1, 8, 12, 12)
    y = net.add("Relu", net.conv(x, net.weight(channels, 8, 3, 3), pad=1))
    z = y
    if pooled:
        z = net.add("MaxPool", y, kernel=(3, 3), strides=(2, 2), dilations=(1, 1), pads=(0,) * 4, out_shape=(5, 5))
    z = net.conv(z, net.weight(channels, channels, 3, 3), pad=1)
    return net.build(net.add("Add", z, y) if residual else z)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_a_product_reads_is_stored_rounded(precision):
    assert narrowed(convolutions(), precision) == [round_products.ROUNDED[precision]]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_pooling_hands_on_rounded_what_it_reads_whole(precision):
    assert narrowed(convolutions(pooled=True), precision) == [DType.FLOAT32, round_products.ROUNDED[precision]]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_residual_wants_all_bits(precision):
    assert narrowed(convolutions(residual=True), precision) == [DType.FLOAT32]


def branches(*, whole=False):
    """Two convolutions of halves of an image, joined for a third; with `whole`, one half is read as it is, too."""
    net = Net()
    y = net.add("Relu", net.conv(net.input(1, 8, 12, 12), net.weight(32, 8, 3, 3), pad=1))
    halves = [net.part(y, 1, 16 * i, 16) for i in range(2)]
    z = [net.add("Relu", net.conv(half, net.weight(16, 16, 3, 3), pad=1)) for half in halves]
    joined = net.add("Concat", *z, axis=1)
    last = net.conv(joined, net.weight(32, 32, 1, 1))
    return net.build(*([net.add("Abs", halves[0]), last] if whole else [last]))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_parts_are_stored_alike(precision):
    assert set(narrowed(branches(), precision)) == {round_products.ROUNDED[precision]}


def test_a_part_that_is_read_as_it_is_keeps_the_whole():
    dtypes = narrowed(branches(whole=True), "fp16")
    assert sorted(dtype.value for dtype in dtypes) == ["float16"] * 3 + ["float32"] * 4


def test_rows_that_are_no_whole_words_stay():
    assert narrowed(convolutions(channels=15), "fp16") == [DType.FLOAT32]
    assert narrowed(convolutions(channels=15), "tf32") == [DType.TF32]


def test_products_that_stream_read_all_bits():
    net = Net()
    y = net.add("Relu", net.add("MatMul", net.input(1, 64), net.weight(64, 64)))
    assert narrowed(net.build(net.add("MatMul", y, net.weight(64, 64))), "fp16") == [DType.FLOAT32]


def test_outputs_of_the_model_stay():
    net = Net()
    y = net.add("Relu", net.conv(net.input(1, 8, 12, 12), net.weight(16, 8, 3, 3), pad=1))
    graph = net.build(y, net.conv(y, net.weight(16, 16, 3, 3), pad=1))
    assert narrowed(graph, "fp16") == [DType.FLOAT32]


def test_float32_changes_nothing():
    graph = convolutions()
    assert narrow_values.run(graph, H200) is graph
