"""Products compute the short sums that they multiply, where a device stages operands and its figures promise a gain."""

import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from rammer.devices.cuda.emit.kernel import emit_kernel
from rammer.devices.cuda.tiling import figures
from rammer.devices.cuda.tiling.rules import GpuRules
from rammer.devices.reference.device import describe
from rammer.devices.registry import find_device
from rammer.ir.expr import Load, nodes
from rammer.ir.kernel_form import DepthwiseForm, GemmForm
from rammer.ir.vdevice import Figure
from rammer.ir.workload import Workload
from rammer.lowering.lower import lower
from rammer.options import CompileOptions
from rammer.passes import channels_last, fuse, fuse_windows, layout, round_products
from rammer.passes.helpers.predicted import predicted_us
from rammer.roller.construct import construct
from rammer.roller.model import predict
from rammer.tiling.pattern import contraction, window_points
from tests.support.passes import Net, expression_of, only, rewritten, unchanged

H200 = find_device("cuda:sm_90").describe(CompileOptions())
CHANNELS = 32
SLOW = replace(H200, handover_us=Figure(10.0, "nominal: a test"))


def on(device=H200):
    return partial(fuse_windows.run, device=device)


def separable(kernel=3, size=16, features=64, taps=1, keep=False):
    """A depthwise convolution, a product over its channels with bias and activation, and what keeps them apart."""
    net = Net()
    x = net.add("Abs", net.input(1, CHANNELS, size, size))
    y = net.conv(x, net.weight(CHANNELS, 1, kernel, kernel), pad=kernel // 2, group=CHANNELS, name="depthwise")
    z = net.conv(y, net.weight(features, CHANNELS, taps, taps), net.weight(features), pad=taps // 2, name="pointwise")
    z = net.add("Neg", net.add("Relu", z))
    return net.build(z, net.add("Neg", y)) if keep else net.build(z)


@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_a_depthwise_convolution_joins_its_product(kernel):
    after = rewritten(separable(kernel), fuse.run, on())
    product = only(after, "Conv+Conv+Relu+Neg")
    found = contraction(expression_of(product))
    assert found is not None
    (term,) = found.terms
    assert [axis.extent for axis in term.reduce.axes] == [CHANNELS]
    assert sorted(map(window_points, term.operands)) == [0, kernel * kernel]
    assert {source.node for source in product.sources} >= {"depthwise", "pointwise"}


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_so_does_a_pooling(kind):
    net = Net()
    attributes: dict[str, Any] = {"kernel": (3, 3), "strides": (1, 1), "dilations": (1, 1), "pads": (1,) * 4}
    attributes |= {"out_shape": (16, 16)} | ({"count_include_pad": False} if kind == "AveragePool" else {})
    y = net.add(kind, net.input(1, CHANNELS, 16, 16), **attributes)
    (product,) = rewritten(net.build(net.conv(y, net.weight(64, CHANNELS, 1, 1))), fuse.run, on()).operators
    assert product.kind == f"{kind}+Conv"


def gated(*, keep=False):
    """Channels that are multiplied with a gate each, computed of themselves, and a product over them."""
    net = Net()
    x = net.add("Abs", net.input(1, CHANNELS, 16, 16))
    gate = net.add("Sigmoid", net.add("ReduceMean", x, axes=(2, 3), keepdims=True))
    y = net.add("Mul", x, gate, name="gated")
    z = net.conv(y, net.weight(64, CHANNELS, 1, 1), name="project")
    return net.build(z, net.add("Neg", y)) if keep else net.build(z)


def test_gated_channels_join_their_product():
    after = rewritten(gated(), fuse.run, on(SLOW))
    product = only(after, "Mul+Conv")
    found = contraction(expression_of(product))
    assert found is not None
    (term,) = found.terms
    assert sorted(len([node for node in nodes(operand) if isinstance(node, Load)]) for operand in term.operands) == [
        1,
        2,
    ]
    assert {source.node for source in product.sources} >= {"gated", "project"}


def test_not_if_others_read_what_is_gated():
    assert unchanged(rewritten(gated(keep=True), fuse.run), on(SLOW))


@pytest.mark.parametrize("is_shared", [False, True])
def test_not_of_what_another_product_reads_too(is_shared):
    """The states of a recurrent layer, say, which then travel element by element."""
    net = Net()
    x, other = (net.conv(net.input(1, 8, 16, 16), net.weight(CHANNELS, 8, 1, 1)) for _ in range(2))
    y = net.add("Mul", x, net.add("Transpose", other, perm=(0, 1, 3, 2)))
    z = net.conv(y, net.weight(64, CHANNELS, 1, 1))
    outputs = [z, net.conv(x, net.weight(16, CHANNELS, 3, 3), pad=1)] if is_shared else [z]
    assert unchanged(net.build(*outputs), on(SLOW)) == is_shared


def test_gates_stay_apart_where_computing_them_takes_longer():
    graph = rewritten(gated(), fuse.run)
    assert not unchanged(graph, on())
    rules = GpuRules(doubles=replace(figures.H200_DOUBLES, computed_cycles=1e5))
    assert unchanged(graph, on(replace(H200, rules=rules)))


def test_operators_are_compared_as_they_are_tiled_when_they_lie_in_memory_as_a_whole():
    """A depthwise convolution of its own then copies its patch, which takes aligned tensors."""
    device = replace(H200, precision="fp16")
    graph = separable(kernel=5, size=14, features=96)
    round_, lay_out = partial(round_products.run, device=device), partial(layout.run, device=device)
    after = rewritten(graph, fuse.run, channels_last.run, round_, lay_out, tolerance=2e-2)
    operator = next(one for one in after.operators if one.name == "depthwise")
    layouts = tuple(after.values[value].storage for value in (*operator.inputs, *operator.outputs))
    expr = expression_of(operator)
    (best, *_) = construct(Workload(expr, layouts, (16,) * len(layouts)), device)
    assert isinstance(best.form, DepthwiseForm)
    time_us = predict(best, device).task_us + device.task_overhead_us.value
    assert predicted_us(expr, layouts, (1,), device, device.veu_count) <= time_us


def test_not_for_devices_that_read_operands_from_memory():
    assert unchanged(separable(), on(describe(4)))


def test_not_if_others_read_the_sums():
    assert unchanged(separable(keep=True), on())


def test_not_if_the_product_has_taps_itself():
    assert unchanged(separable(taps=3), on())


def test_not_if_sums_are_long():
    assert unchanged(separable(kernel=9), on())


def test_not_where_many_rtasks_would_compute_the_same_sums():
    graph = separable(kernel=7, size=16, features=8192)
    quick, slow = (Figure(time_us, "nominal: a test") for time_us in (0.0, 10.0))
    assert unchanged(graph, on(replace(H200, handover_us=quick, task_overhead_us=quick)))
    assert not unchanged(graph, on(replace(H200, handover_us=slow)))


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_a_thread_loads_once_what_neighbouring_sums_share(precision):
    device = replace(H200, precision=precision)
    round_, lay_out = partial(round_products.run, device=device), partial(layout.run, device=device)
    graph = separable(kernel=5, size=32)
    after = rewritten(graph, fuse.run, channels_last.run, round_, lay_out, on(device), tolerance=2e-2)
    operator = lower(after, device).operators[-1]
    texts = [emit_kernel(kernel, "k").text for kernel in operator.kernels if isinstance(kernel.form, GemmForm)]
    together = [int(count) for text in texts for count in re.findall(r"compute_neighbours<(\d+)>", text)]
    assert max(together) == 4
    for text, count in zip(texts, together, strict=True):
        assert len(re.findall(r"in0\[", text)) == 5 * (5 + count - 1)
        assert len(re.findall(r"in1\[", text)) == 25


def test_where_neighbours_share_no_loads_rtasks_are_predicted_to_take_longer():
    """A line of 32 pixels or 2 x 12 of them, which reach beyond it. On an H200 16 took 1.75 us, 2 x 6 of 16 2.05."""
    device = replace(H200, precision="fp16")
    graph = separable(kernel=5, size=32)
    round_, lay_out = partial(round_products.run, device=device), partial(layout.run, device=device)
    after = rewritten(graph, fuse.run, channels_last.run, round_, lay_out, on(device), tolerance=2e-2)
    line = next(kernel for kernel in lower(after, device).operators[-1].kernels if kernel.tile.task == (64, 1, 32))
    box = replace(line, tile=replace(line.tile, task=(64, 2, 12)))
    assert device.rules.compute_us(line, device) < device.rules.compute_us(box, device)
