"""Elementwise operators choose between parts of what they read, where a concatenation put these together."""

import numpy as np

from rammer.passes import eliminate_dead, fuse, inline_views, select_parts
from rammer.tiling.pattern import chosen_axes
from tests.support.passes import Net, expression_of, kinds, rewritten

HEADS, SIZE = 3, 16


def selected(graph):
    return rewritten(graph, inline_views.run, fuse.run, eliminate_dead.run, select_parts.run, eliminate_dead.run)


def turned(net, x, *, start=SIZE // 2):
    """Pairs of elements that lie half a head apart, turned by a right angle."""
    high = net.add("Neg", net.part(x, 2, start, SIZE // 2))
    return net.add("Concat", high, net.part(x, 2, 0, SIZE // 2), axis=2)


def rotated(net, x):
    across = net.add("Mul", turned(net, x), net.input(1, 1, SIZE))
    return net.add("Add", net.add("Mul", x, net.input(1, 1, SIZE)), across)


def test_a_rotation_is_one_operator():
    net = Net()
    graph = selected(net.build(rotated(net, net.input(1, HEADS, SIZE))))
    (operator,) = graph.operators
    expr = expression_of(operator)
    assert [axis.extent for axis in chosen_axes(expr)] == [2]
    assert len(operator.inputs) == 3


def test_heads_of_a_larger_value():
    net = Net()
    whole = net.add("Tanh", net.input(1, 1, 2 * HEADS * SIZE))
    heads = net.add("Reshape", net.part(whole, 2, HEADS * SIZE, HEADS * SIZE), shape=(1, HEADS, SIZE))
    graph = selected(net.build(whole, rotated(net, heads)))
    assert len(graph.operators) == 2
    assert graph.operators[1].inputs[0] == graph.operators[0].outputs[0]


def test_parts_of_several_numbers():
    net = Net()
    x = net.input(2, 12)
    thirds = [net.part(x, 1, start, 4) for start in (8, 0, 4)]
    y = net.add("Mul", net.add("Concat", *thirds, axis=1), x)
    assert len(selected(net.build(y)).operators) == 1


def test_parts_of_other_values_stay_together():
    net = Net()
    x, other = net.input(2, 8), net.input(2, 8)
    y = net.add("Mul", net.add("Concat", net.part(other, 1, 0, 4), net.part(x, 1, 0, 4), axis=1), x)
    assert "Concat" in kinds(selected(net.build(y)))


def test_parts_of_odd_sizes_stay_together():
    net = Net()
    x = net.input(2, 8)
    y = net.add("Mul", net.add("Concat", net.part(x, 1, 5, 3), net.part(x, 1, 0, 5), axis=1), x)
    assert "Concat" in kinds(selected(net.build(y)))


def test_parts_that_are_work_stay_operators():
    net = Net()
    x = net.input(1, 8)
    product = net.add("MatMul", net.part(x, 1, 0, 4), net.constant(np.eye(4, dtype=np.float32)))
    y = net.add("Mul", net.add("Concat", product, net.part(x, 1, 0, 4), axis=1), x)
    assert "Concat" in kinds(selected(net.build(y)))
