"""Rows of weights get an even length where a device copies them in pieces and its figures promise a gain."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from rammer.devices.cuda.emit.kernel import emit_kernel
from rammer.devices.reference.device import describe
from rammer.devices.registry import find_device
from rammer.ir.kernel_form import Instruction
from rammer.lowering.lower import lower
from rammer.options import CompileOptions
from rammer.passes import channels_last, fuse, layout, pad_sums, round_products
from rammer.tiling.pattern import contraction
from tests.support.passes import Net, expression_of, only, rewritten, unchanged

H200 = find_device("cuda:sm_90").describe(CompileOptions())


def on(device=H200):
    return partial(pad_sums.run, device=device)


def first_convolution(kernel=11, stride=4, pad=2, channels=3, features=64, size=112):
    net = Net()
    y = net.conv(
        net.input(1, channels, size, size),
        net.weight(features, channels, kernel, kernel),
        net.weight(features),
        pad=pad,
        stride=stride,
    )
    return net.build(net.add("Relu", y))


def weights_of(graph):
    operator = only(graph, "Conv+Relu")
    return graph.constants[operator.inputs[1]]


@pytest.mark.parametrize(("kernel", "pad", "before"), [(11, 2, 0), (11, 0, 0), (7, 3, 1)])
def test_rows_of_windows_are_padded(kernel, pad, before):
    """Windows that begin at odd places get a zero before them."""
    graph = first_convolution(kernel, pad=pad)
    after = rewritten(graph, fuse.run, channels_last.run, on())
    found = contraction(expression_of(only(after, "Conv+Relu")))
    assert found is not None
    longer = -(-kernel // 4) * 4
    assert sorted(axis.extent for axis in found.terms[0].reduce.axes) == sorted([3, kernel, longer])
    weights = weights_of(after)
    assert weights.shape == (64, 3, kernel, longer)
    own = weights[..., before : before + kernel]
    np.testing.assert_array_equal(own, graph.constants[graph.operators[0].inputs[1]])
    assert np.count_nonzero(weights) == np.count_nonzero(own)


def test_what_lies_beyond_the_image_counts_as_0():
    """The last windows end where the image does, so that the padding of the row is outside of it."""
    after = rewritten(first_convolution(pad=0, size=227), fuse.run, channels_last.run, on())
    assert weights_of(after).shape[-1] == 12


_ELEMENT_BYTES = {"float": 4, "uint32_t": 4, "uint16_t": 2}


@pytest.mark.parametrize(("precision", "sizes"), [("fp32", [16, 8]), ("tf32", [16, 8]), ("fp16", [8, 8])])
def test_padded_rows_are_copied_in_pieces(precision, sizes):
    device = replace(H200, precision=precision)
    passes = [partial(one.run, device=device) for one in (pad_sums, round_products, layout)]
    graph = rewritten(first_convolution(), fuse.run, channels_last.run, *passes, tolerance=1e-2)
    kernel = lower(graph, device).operators[0].kernels[0]
    text = emit_kernel(kernel, "k").text
    element_bytes = [_ELEMENT_BYTES[name] for name in re.findall(r"typedef rammer_operand<(\w+)", text)]
    elements = map(int, re.findall(r"::copy<(\d+)", text))
    assert [count * size for count, size in zip(elements, element_bytes, strict=True)] == sizes


def test_even_rows_stay():
    assert unchanged(fuse.run(first_convolution(kernel=8)), on())


def test_somewhat_fewer_copies_do_not_pay_for_much_more_arithmetic():
    """By threads, that is; where tensor cores multiply float32 in float64, it does."""
    by_threads = replace(H200, instructions=tuple(set(H200.instructions) - {Instruction.MMA_F64}))
    graph = fuse.run(first_convolution(kernel=5, pad=1))
    assert unchanged(graph, on(by_threads))
    assert not unchanged(graph, on())


def test_channels_that_lie_side_by_side_stay():
    net = Net()
    x = net.add("Abs", net.input(1, 16, 32, 32))
    graph = net.build(net.add("Neg", net.conv(x, net.weight(64, 16, 3, 3), pad=1)))
    before = channels_last.run(fuse.run(graph))
    assert pad_sums.run(before, H200).operators == before.operators


def test_weights_that_are_computed_stay():
    net = Net()
    w = net.add("Abs", net.input(64, 3, 11, 11))
    graph = net.build(net.conv(net.input(1, 3, 112, 112), w, pad=2, stride=4))
    assert unchanged(graph, on())


def test_devices_that_stage_nothing_are_left_alone():
    assert unchanged(fuse.run(first_convolution()), on(describe(8)))
