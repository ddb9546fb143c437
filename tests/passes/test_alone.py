"""What Roller predicts of a part of a graph that has yet to go through other passes."""

from dataclasses import replace

import pytest

from rammer.devices.registry import find_device
from rammer.ir.vdevice import Figure
from rammer.options import CompileOptions
from rammer.passes.helpers.alone import alone, predicted_alone_us
from tests.support.passes import Net, only

H200 = find_device("cuda:sm_90").describe(CompileOptions())


def untouched(graph, _device):
    return graph


def chain():
    net = Net()
    x = net.add("Abs", net.input(1, 16, 8, 8))
    y = net.conv(x, net.weight(32, 16, 3, 3), net.weight(32), pad=1)
    return net.build(net.part(net.add("Neg", y), 1, 0, 16))


def test_one_operator_of_a_graph():
    graph = chain()
    conv = only(graph, "Conv")
    part = alone(conv, graph)
    assert part.operators == (conv,)
    assert (part.inputs, part.outputs) == (conv.inputs[:1], conv.outputs)
    assert {value: array.shape for value, array in part.constants.items()} == {
        value: graph.constants[value].shape for value in conv.inputs[1:]
    }
    assert all(set(array.strides) == {0} for array in part.constants.values())


def test_each_operator_counts_with_its_handover_and_slices_do_not():
    graph = chain()
    later = replace(H200, handover_us=Figure(H200.handover_us.value + 1, "nominal: a test"))
    before_us, after_us = (predicted_alone_us(graph, device, 132, untouched) for device in (H200, later))
    assert after_us - before_us == pytest.approx(3)


def test_fewer_units_take_longer():
    graph = chain()
    few_us, many_us = (predicted_alone_us(graph, H200, veus, untouched) for veus in (1, 8))
    assert few_us > many_us


def test_what_the_passes_leave_is_what_counts():
    graph = chain()
    seen = []

    def rest(part, device):
        seen.append((part, device.veu_count))
        return alone(only(part, "Conv"), part)

    one_us = predicted_alone_us(graph, H200, 7, rest)
    assert seen == [(graph, 7)]
    assert one_us < predicted_alone_us(graph, H200, 7, untouched)
