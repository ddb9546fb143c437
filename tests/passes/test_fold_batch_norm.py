"""Normalisations go into weights, where weights are constants that nobody else needs."""

from typing import Any

import numpy as np
import pytest

from rammer.ir.types import DType
from rammer.passes import fold_batch_norm
from tests.support.passes import Net, kinds, only, rewritten, source_nodes, unchanged


def batch_norm(net, x, channels, scale=None):
    var = net.constant(np.linspace(0.5, 2, channels).astype(np.float32))
    scale = net.weight(channels) if scale is None else scale
    return net.add("BatchNormalization", x, scale, net.weight(channels), net.weight(channels), var, epsilon=1e-3)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_into_a_convolution(bias, group):
    net = Net()
    operands = [net.weight(8, 4 // group, 3, 3), *([net.weight(8)] if bias else [])]
    y = net.conv(net.input(2, 4, 5, 5), *operands, pad=1, group=group, name="conv")
    graph = rewritten(net.build(batch_norm(net, y, 8)), fold_batch_norm.run)
    assert kinds(graph) == ["Conv"]
    assert len(graph.operators[0].inputs) == 3
    assert source_nodes(graph.operators[0])[0] == "conv"


@pytest.mark.parametrize("group", [1, 2])
def test_into_a_transposed_convolution(group):
    net = Net()
    attributes: dict[str, Any] = {
        "strides": (2, 2),
        "dilations": (1, 1),
        "pads": (0, 0, 0, 0),
        "output_padding": (0, 0),
    }
    y = net.add("ConvTranspose", net.input(1, 4, 3, 3), net.weight(4, 6 // group, 2, 2), group=group, **attributes)
    assert kinds(rewritten(net.build(batch_norm(net, y, 6)), fold_batch_norm.run)) == ["ConvTranspose"]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("bias", [None, (5,), (1, 5), (1,), (3, 1), (3, 5), ()])
def test_into_a_matrix_product_with_a_bias(transposed, bias):
    net = Net()
    w = net.weight(5, 4) if transposed else net.weight(4, 5)
    biases = [] if bias is None else [net.weight(*bias)]
    y = net.add("Gemm", net.input(3, 4), w, *biases, alpha=0.5, beta=2.0, trans_a=False, trans_b=transposed)
    assert kinds(rewritten(net.build(batch_norm(net, y, 5)), fold_batch_norm.run)) == ["Gemm"]


def test_into_a_matrix_product():
    net = Net()
    y = net.add("MatMul", net.input(3, 4), net.weight(4, 5))
    assert kinds(rewritten(net.build(batch_norm(net, y, 5)), fold_batch_norm.run)) == ["Gemm"]


def test_not_into_a_product_whose_channels_are_no_columns():
    net = Net()
    y = net.add("MatMul", net.input(2, 3, 4), net.weight(4, 5))
    graph = rewritten(net.build(batch_norm(net, y, 3)), fold_batch_norm.run)
    assert kinds(graph) == ["MatMul", "Affine"]


def test_not_where_others_read_the_product():
    net = Net()
    y = net.conv(net.input(1, 3, 4, 4), net.weight(2, 3, 1, 1))
    graph = rewritten(net.build(net.add("Add", batch_norm(net, y, 2), y)), fold_batch_norm.run)
    assert kinds(graph) == ["Conv", "Affine", "Add"]


def test_not_where_the_product_is_an_output():
    net = Net()
    y = net.conv(net.input(1, 3, 4, 4), net.weight(2, 3, 1, 1))
    assert "Affine" in kinds(rewritten(net.build(y, batch_norm(net, y, 2)), fold_batch_norm.run))


def test_parameters_that_are_computed_stay():
    net = Net()
    y = net.conv(net.input(1, 3, 4, 4), net.weight(2, 3, 1, 1))
    before = net.build(batch_norm(net, y, 2, scale=net.input(2)))
    assert unchanged(before, fold_batch_norm.run)


def test_weights_that_are_computed_stay():
    net = Net()
    y = net.conv(net.input(1, 3, 4, 4), net.input(2, 3, 1, 1))
    assert kinds(rewritten(net.build(batch_norm(net, y, 2)), fold_batch_norm.run)) == ["Conv", "Affine"]


def test_shared_weights_stay_for_the_other_reader():
    net = Net()
    w = net.weight(2, 3, 1, 1)
    first, second = (net.conv(net.input(1, 3, 4, 4), w) for _ in range(2))
    graph = rewritten(net.build(batch_norm(net, first, 2), second), fold_batch_norm.run)
    assert kinds(graph) == ["Conv", "Conv"]
    assert graph.operators[0].inputs[1] != graph.operators[1].inputs[1]


def test_weights_are_rounded_once():
    net = Net()
    x = net.input(1, 1, 1, 1, dtype=DType.FLOAT16)
    w, scale, zero, var = (
        net.constant(np.full(shape, value, np.float16))
        for shape, value in (((1, 1, 1, 1), 1.001), ((1,), 3.0), ((1,), 0.0), ((1,), 7.0))
    )
    y = net.conv(x, w)
    norm = net.add("BatchNormalization", y, scale, zero, zero, var, epsilon=0.0)
    conv = only(fold_batch_norm.run(net.build(norm)), "Conv")
    graph = fold_batch_norm.run(net.build(norm))
    (weight, _) = (graph.constants[value] for value in conv.inputs[1:])
    exact = np.float64(np.float16(1.001)) * 3 / np.sqrt(7.0)
    assert weight.dtype == np.float16
    assert weight.item() == float(np.float16(exact))


def test_what_cannot_be_folded_is_rounded_once_too():
    net = Net()
    x = net.input(2, 3, 4, dtype=DType.FLOAT16)
    before = net.build(batch_norm(net, x, 3))
    graph = rewritten(before, fold_batch_norm.run, tolerance=1e-3)
    assert kinds(graph) == ["Affine"]
    assert {array.dtype for array in graph.constants.values()} == {np.dtype(np.float32)}
