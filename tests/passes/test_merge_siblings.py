"""Convolutions of one input become one where that is asked for, whatever their kernels."""

import pytest

from rammer.passes import eliminate_dead, merge_siblings
from tests.support.passes import Net, kinds, only, rewritten


def merged(before, **options):
    """The graph with every class of siblings merged; the same results are checked."""
    chosen = [one.values for one in merge_siblings.siblings(before)]
    return rewritten(before, lambda graph: merge_siblings.merge(graph, chosen), eliminate_dead.run, **options)


def branches(net, x, kernels, channels=4, stride=1):
    """A convolution by each kernel, rows x columns, that keeps the image's size but for the stride."""
    found = []
    for features, (rows, columns) in enumerate(kernels, start=2):
        weight = net.weight(features, channels, rows, columns)
        pads = (rows // 2, columns // 2, (rows - 1) // 2, (columns - 1) // 2)
        attributes = {"strides": (stride, stride), "dilations": (1, 1), "pads": pads, "group": 1}
        bias = (net.weight(features),) if features % 2 else ()
        found.append(net.add("Conv", x, weight, *bias, finite_weights=True, **attributes))
    return found


@pytest.mark.parametrize("kernels", [[(1, 1), (3, 3)], [(1, 3), (3, 1)], [(5, 5), (1, 1), (3, 3)], [(2, 2), (1, 3)]])
@pytest.mark.parametrize("stride", [1, 2])
def test_kernels_of_any_size_side_by_side_in_a_concatenation(kernels, stride):
    net = Net()
    x = net.input(2, 4, 7, 9)
    parts = [net.add("Relu", one) for one in branches(net, x, kernels, stride=stride)]
    graph = merged(
        net.build(net.conv(net.add("Concat", *parts, axis=1), net.weight(3, sum(range(2, 2 + len(parts))), 1, 1)))
    )
    assert kinds(graph) == ["Conv", "Relu", "Conv"]
    assert graph.operators[0].name.startswith("conv")
    assert len(graph.operators[0].sources) == len(kernels)


def test_parts_that_others_read_are_slices():
    net = Net()
    x = net.input(1, 4, 6, 6)
    one, other = branches(net, x, [(1, 1), (3, 3)])
    graph = merged(net.build(net.conv(one, net.weight(2, 2, 3, 3)), net.conv(other, net.weight(2, 3, 1, 1))))
    assert kinds(graph) == ["Conv", "Slice", "Conv", "Slice", "Conv"] or kinds(graph).count("Slice") == 2
    assert kinds(graph).count("Conv") == 3


def test_what_is_concatenated_elsewhere_is_another_class():
    net = Net()
    x = net.input(1, 4, 6, 6)
    first, second, third = branches(net, x, [(1, 1), (3, 3), (1, 3)])
    joined = net.add("Concat", first, net.input(1, 2, 6, 6), second, third, axis=1)
    before = net.build(net.conv(joined, net.weight(2, 11, 1, 1)))
    (found,) = merge_siblings.siblings(before)
    assert found.places == (0, 2, 3)
    assert found.may_merge(found.values[1:])
    assert not found.may_merge(found.values[:2])
    assert not found.may_merge(found.values[:1])
    graph = rewritten(before, lambda graph: merge_siblings.merge(graph, [found.values[1:]]), eliminate_dead.run)
    assert len(only(graph, "Concat").inputs) == 3


def test_what_keeps_convolutions_apart():
    net = Net()
    x = net.input(1, 4, 6, 6)
    sums = net.add("Add", *branches(net, x, [(1, 1)]), net.input(1, 2, 6, 6))
    relu = net.add("Relu", net.conv(x, net.weight(2, 4, 3, 3), pad=1))
    sigmoid = net.add("Sigmoid", net.conv(x, net.weight(2, 4, 1, 1)))
    grouped = net.conv(x, net.weight(4, 2, 3, 3), pad=1, group=2)
    strided = net.conv(x, net.weight(2, 4, 3, 3), pad=1, stride=2)
    smaller = net.conv(x, net.weight(2, 4, 3, 3))
    apart = [sums, relu, sigmoid, grouped, strided, smaller]
    ends = [net.conv(value, net.weight(1, 4 if value == grouped else 2, 1, 1)) for value in apart]
    assert merge_siblings.siblings(net.build(*ends)) == []


def test_a_merged_convolution_alone_has_its_type_and_layout():
    net = Net()
    x = net.conv(net.input(1, 3, 6, 6), net.weight(4, 3, 1, 1))
    parts = branches(net, x, [(1, 1), (3, 3)])
    before = net.build(net.conv(net.add("Concat", *parts, axis=1), net.weight(2, 5, 1, 1)))
    (found,) = merge_siblings.siblings(before)
    alone = merge_siblings.merged_alone(before, found.values)
    assert kinds(alone) == ["Conv"]
    assert alone.values[alone.outputs[0]].type.shape == (1, 5, 6, 6)
    assert alone.values[alone.inputs[0]].storage.strides[1] == 1
