"""Pointwise operators move over views to what they can fuse with."""

import numpy as np
import pytest

from rammer.passes import eliminate_dead, fuse, hoist_pointwise
from tests.support.passes import Net, kinds, only, rewritten, source_nodes, unchanged


def hoisted(before):
    return rewritten(before, hoist_pointwise.run, eliminate_dead.run)


def product(net, *shape):
    """A value that an operator makes which can take an epilogue."""
    return net.add("MatMul", net.input(*shape), net.weight(shape[-1], shape[-1]))


def test_over_a_concatenation():
    net = Net()
    joined = net.add("Concat", product(net, 2, 3), product(net, 2, 4), axis=1)
    graph = hoisted(net.build(net.add("Tanh", net.add("Relu", joined, name="relu"))))
    assert kinds(graph)[-1] == "Concat"
    assert sorted(kinds(graph)[:-1]) == sorted(["MatMul", "Relu", "Tanh"] * 2)
    assert kinds(rewritten(graph, fuse.run)) == ["MatMul+Relu+Tanh", "MatMul+Relu+Tanh", "Concat"]


def test_constants_are_cut_along_a_concatenation():
    net = Net()
    joined = net.add("Concat", product(net, 2, 3), product(net, 2, 4), axis=1)
    graph = hoisted(net.build(net.add("Add", net.add("Mul", joined, net.weight(7)), net.weight(2, 1))))
    shapes = [graph.constants[op.inputs[1]].shape for op in graph.operators if op.kind in ("Mul", "Add")]
    assert sorted(shapes) == [(2, 1), (2, 1), (3,), (4,)]


def test_a_normalisation_reaches_the_products():
    net = Net()
    joined = net.add("Concat", product(net, 2, 3), product(net, 2, 4), axis=1)
    var = net.constant(np.ones(7, np.float32))
    norm = net.add("BatchNormalization", joined, net.weight(7), net.weight(7), net.weight(7), var, epsilon=0.1)
    graph = hoisted(net.build(net.add("Neg", norm)))
    norms = [operator for operator in graph.operators if operator.kind == "BatchNormalization"]
    assert [operator.attributes["epsilon"] for operator in norms] == [0.1, 0.1]


def test_not_over_parts_that_nothing_computes():
    net = Net()
    joined = net.add("Concat", net.input(2, 3), product(net, 2, 4), axis=1)
    assert unchanged(net.build(net.add("Relu", joined)), hoist_pointwise.run)


def test_not_over_parts_of_several_concatenations():
    net = Net()
    a, b, c = (product(net, 2, 3) for _ in range(3))
    first = net.add("Relu", net.add("Concat", a, b, axis=1))
    second = net.add("Tanh", net.add("Concat", a, c, axis=1))
    assert unchanged(net.build(first, second), hoist_pointwise.run)


def test_not_over_very_many_parts():
    net = Net()
    joined = net.add("Concat", *(product(net, 1, 2) for _ in range(hoist_pointwise.LARGEST_PARTS + 1)), axis=0)
    assert unchanged(net.build(net.add("Relu", joined)), hoist_pointwise.run)


def test_a_concatenation_that_others_read_stays_as_well():
    net = Net()
    joined = net.add("Concat", product(net, 2, 3), product(net, 2, 4), axis=1)
    graph = hoisted(net.build(net.add("Relu", joined), net.add("ReduceSum", joined, axes=(1,), keepdims=False)))
    assert kinds(graph).count("Concat") == 2


def test_over_a_reshape():
    net = Net()
    y = net.add("Reshape", product(net, 2, 6), shape=(3, 4))
    graph = hoisted(net.build(net.add("Clip", y, lower=0.0, upper=1.0)))
    assert kinds(graph) == ["MatMul", "Clip", "Reshape"]
    assert graph.values[graph.operators[1].outputs[0]].type.shape == (2, 6)


def test_a_constant_that_broadcasts_stays_after_a_reshape():
    net = Net()
    y = net.add("Reshape", product(net, 2, 6), shape=(3, 4))
    assert unchanged(net.build(net.add("Mul", y, net.weight(4))), hoist_pointwise.run)


def split(net, x, sizes, dim=1):
    starts = np.cumsum([0, *sizes])[:-1]
    return [net.part(x, dim, int(start), size) for start, size in zip(starts, sizes, strict=True)]


def test_over_slices_that_are_treated_alike():
    net = Net()
    parts = split(net, product(net, 2, 6), [1, 2, 3])
    chains = [
        net.add("Tanh", net.add("Add", part, net.weight(n)), name=f"tanh{n}")
        for part, n in zip(parts, (1, 2, 3), strict=True)
    ]
    graph = hoisted(net.build(*chains))
    assert kinds(graph) == ["MatMul", "Add", "Tanh", "Slice", "Slice", "Slice"]
    assert graph.constants[only(graph, "Add").inputs[1]].shape == (6,)
    assert set(source_nodes(only(graph, "Tanh"))) == {"tanh1", "tanh2", "tanh3"}


def test_what_else_reads_a_slice_does_not_matter():
    net = Net()
    parts = split(net, product(net, 2, 6), [2, 4])
    relus = [net.add("Relu", part) for part in parts]
    graph = hoisted(net.build(*relus, net.add("Softmax", parts[0], axis=1)))
    assert kinds(graph).count("Relu") == 1


def test_slices_that_are_treated_differently_stay():
    net = Net()
    first, second = split(net, product(net, 2, 6), [2, 4])
    assert unchanged(net.build(net.add("Relu", first), net.add("Tanh", second)), hoist_pointwise.run)


def test_slices_with_different_shared_constants_stay():
    net = Net()
    first, second = split(net, product(net, 2, 6), [3, 3])
    before = net.build(net.add("Mul", first, net.weight(2, 1)), net.add("Mul", second, net.weight(2, 1)))
    assert unchanged(before, hoist_pointwise.run)


@pytest.mark.parametrize("last", [3, 5])
def test_slices_with_gaps_or_overlaps_stay(last):
    net = Net()
    x = product(net, 2, 6)
    parts = [net.part(x, 1, 0, 2), net.part(x, 1, 6 - last, last)]
    assert unchanged(net.build(*(net.add("Relu", part) for part in parts)), hoist_pointwise.run)


def test_over_a_small_margin_that_nobody_reads():
    net = Net()
    part = net.part(product(net, 4, 5), 0, 1, 3)
    graph = hoisted(net.build(net.add("Neg", net.add("Mul", net.add("Relu", part), net.weight(5)))))
    assert kinds(graph) == ["MatMul", "Relu", "Mul", "Neg", "Slice"]


def test_a_margin_that_others_read_or_that_is_large_stays():
    net = Net()
    read, large, output = (product(net, 4, 5) for _ in range(3))
    parts = [net.part(read, 0, 0, 3), net.part(large, 0, 0, 1), net.part(output, 0, 0, 3)]
    results = [net.add("Relu", part) for part in parts]
    assert unchanged(net.build(*results, net.add("Neg", read), output), hoist_pointwise.run)


def test_a_constant_along_a_margin_stays_after_it():
    net = Net()
    part = net.part(product(net, 4, 5), 1, 0, 3)
    assert unchanged(net.build(net.add("Mul", part, net.weight(3))), hoist_pointwise.run)


def test_a_constant_along_what_is_turned_round_stays_after_it():
    net = Net()
    turned = net.add("Slice", product(net, 2, 3), starts=(0, 2), steps=(1, -1), sizes=(2, 3))
    assert unchanged(net.build(net.add("Add", turned, net.weight(3))), hoist_pointwise.run)


def test_one_number_moves_over_what_is_turned_round():
    net = Net()
    turned = net.add("Slice", product(net, 2, 3), starts=(0, 2), steps=(1, -1), sizes=(2, 3))
    graph = hoisted(net.build(net.add("Add", turned, net.weight(2, 1))))
    assert kinds(graph) == ["MatMul", "Add", "Slice"]
