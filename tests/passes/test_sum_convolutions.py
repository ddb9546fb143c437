"""Convolutions of one image that are added become one, where nothing else needs them apart."""

from typing import Any

import numpy as np
import pytest

from rammer.passes import sum_convolutions
from tests.support.passes import Net, kinds, rewritten, unchanged


def branches(net, x, *, taps=(3, 3), stride=1, group=1, dilations=1):
    """Convolutions of an image of 4 channels to 8, each with as much padding as keeps the extents."""
    made = []
    for number, size in enumerate(taps):
        operands = [net.weight(8, 4 // group, size, size), *([net.weight(8)] if number else [])]
        attributes: dict[str, Any] = {"strides": (stride,) * 2, "dilations": (dilations,) * 2, "group": group}
        pad = dilations * (size - 1) // 2
        made.append(net.add("Conv", x, *operands, pads=(pad,) * 4, finite_weights=True, **attributes))
    return made


@pytest.mark.parametrize("taps", [(3, 3), (3, 1), (1, 3), (1, 1, 3, 5), (3, 3, 1)])
@pytest.mark.parametrize(("stride", "group", "dilations"), [(1, 1, 1), (2, 1, 1), (1, 4, 1), (1, 2, 2)])
def test_branches_are_one_convolution(taps, stride, group, dilations):
    net = Net()
    total, *others = branches(net, net.input(2, 4, 9, 8), taps=taps, stride=stride, group=group, dilations=dilations)
    for other in others:
        total = net.add("Add", total, other)
    graph = rewritten(net.build(net.add("Relu", total)), sum_convolutions.run)
    assert kinds(graph) == ["Conv", "Relu"]
    weight = graph.constants[graph.operators[0].inputs[1]]
    assert weight.shape[2:] == (max(taps),) * 2
    assert len(graph.operators[0].sources) == len(taps)


def test_what_else_is_added_stays():
    net = Net()
    x, rest = net.input(1, 4, 6, 6), net.add("Exp", net.input(1, 8, 6, 6))
    first, second, third = branches(net, x, taps=(1, 1, 1))
    total = net.add("Add", net.add("Add", net.add("Add", first, rest), second), net.add("Add", rest, third))
    graph = rewritten(net.build(total), sum_convolutions.run)
    assert kinds(graph) == ["Exp", "Conv", "Add", "Add"]
    assert graph.operators[1].outputs[0] in graph.operators[2].inputs


def test_an_image_of_its_own_is_convolved_apart():
    net = Net()
    (first,), (second,) = (branches(net, net.input(1, 4, 6, 6), taps=(3,)) for _ in range(2))
    assert unchanged(net.build(net.add("Add", first, second)), sum_convolutions.run)


def test_windows_that_do_not_lie_within_each_other_stay():
    net = Net()
    x = net.input(1, 4, 6, 6)
    attributes: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "finite_weights": True}
    first = net.add("Conv", x, net.weight(8, 4, 3, 1), pads=(1, 0, 1, 0), **attributes)
    second = net.add("Conv", x, net.weight(8, 4, 1, 3), pads=(0, 1, 0, 1), **attributes)
    assert unchanged(net.build(net.add("Add", first, second)), sum_convolutions.run)


@pytest.mark.parametrize("read", ["convolution", "sum", "twice"])
def test_what_is_read_elsewhere_stays(read):
    net = Net()
    first, second = branches(net, net.input(1, 4, 6, 6))
    total = net.add("Add", first, first if read == "twice" else second)
    outputs = [net.add("Relu", first)] if read == "convolution" else []
    if read == "sum":
        third = branches(net, net.input(1, 4, 6, 6), taps=(3,))[0]
        outputs, total = [total], net.add("Add", total, third)
    graph = rewritten(net.build(net.add("Relu", total), *outputs), sum_convolutions.run)
    assert kinds(graph).count("Conv") == 2


def test_weights_whose_sum_is_not_finite_stay():
    net = Net()
    x = net.input(1, 4, 6, 6)
    large = net.constant(np.full((8, 4, 1, 1), 3e38, np.float32))
    total = net.add("Add", net.conv(x, large), net.conv(x, large))
    with np.errstate(all="ignore"):
        graph = sum_convolutions.run(net.build(total))
    assert kinds(graph) == ["Conv", "Conv", "Add"]


def test_weights_that_are_no_constants_stay():
    net = Net()
    x, w = net.input(1, 4, 6, 6), net.input(8, 4, 1, 1)
    total = net.add("Add", net.conv(x, w), net.conv(x, net.weight(8, 4, 1, 1)))
    assert unchanged(net.build(total), sum_convolutions.run)
