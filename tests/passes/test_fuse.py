"""Elementwise work joins the operators around it, and never closes a cycle."""

from typing import Any

import numpy as np
import pytest

from rammer.ir.expr import Reduce
from rammer.ir.types import DType
from rammer.passes import eliminate_dead, fuse, inline_numbers, inline_views
from rammer.passes.helpers import fusion
from rammer.tiling.pattern import contraction
from tests.support.passes import Net, kinds, only, rewritten, source_nodes


def fused(before):
    return rewritten(before, inline_views.run, eliminate_dead.run, fuse.run)


def fused_kinds(*outputs, net):
    return kinds(fused(net.build(*outputs)))


def matmul(net, x, columns, name=""):
    return net.add("MatMul", x, net.weight(4, columns), name=name)


def test_a_chain_is_an_epilogue():
    net = Net()
    y = net.conv(net.input(1, 3, 5, 5), net.weight(4, 3, 3, 3), net.weight(4), pad=1, name="conv")
    y = net.add("Add", y, net.input(1, 4, 5, 5), name="add")
    graph = fused(net.build(net.add("Relu", y, name="relu")))
    (operator,) = graph.operators
    assert operator.kind == "Conv+Add+Relu"
    assert operator.name == "relu"
    assert source_nodes(operator) == ["conv", "add", "relu"]
    assert not operator.attributes
    assert contraction(operator.expr) is not None


def test_a_diamond_is_an_epilogue():
    net = Net()
    y = matmul(net, net.input(2, 4), 4)
    assert fused_kinds(net.add("Mul", y, net.add("Sigmoid", y)), net=net) == ["MatMul+Sigmoid+Mul"]


def test_grouped_convolutions_take_constants_per_channel():
    net = Net()
    y = net.conv(net.input(1, 4, 5, 5), net.weight(6, 2, 1, 1), group=2)
    assert fused_kinds(net.add("Mul", y, net.weight(6, 1, 1)), net=net) == ["Conv+Mul"]


def test_a_transpose_is_an_epilogue():
    net = Net()
    y = net.conv(net.input(1, 3, 5, 4), net.weight(4, 3, 1, 1))
    turned = net.add("Transpose", y, perm=(0, 2, 3, 1))
    assert fused_kinds(net.add("Add", turned, net.weight(4)), net=net) == ["Conv+Add"]
    net = Net()
    y = net.conv(net.input(1, 3, 5, 4), net.weight(4, 3, 1, 1))
    assert fused_kinds(net.add("Transpose", y, perm=(0, 2, 3, 1)), net=net) == ["Conv+Transpose"]


def test_a_result_that_others_read_stays_a_result():
    net = Net()
    y = matmul(net, net.input(2, 4), 4)
    graph = fused(net.build(net.add("Relu", y), net.add("ReduceSum", y, axes=(1,), keepdims=False)))
    assert kinds(graph) == ["MatMul+Relu", "ReduceSum"]
    assert len(graph.operators[0].outputs) == 2


def test_a_result_that_is_an_output_stays_a_result():
    net = Net()
    y = matmul(net, net.input(2, 4), 4)
    graph = fused(net.build(y, net.add("Relu", y)))
    assert len(only(graph, "MatMul+Relu").outputs) == 2


def test_several_results_of_one_operator_meet_in_its_epilogue():
    net = Net()
    x, h, c = net.input(2, 3), net.input(2, 4), net.input(2, 4)
    attributes: dict[str, Any] = {
        "activations": ("Sigmoid", "Tanh", "Tanh"),
        "input_forget": False,
        "batched_inputs": False,
    }
    attributes |= {"activation_alpha": (0.0,) * 3, "activation_beta": (0.0,) * 3}
    new_h, new_c = net.add_all("LSTMCell", x, h, c, net.weight(16, 3), net.weight(16, 4), net.weight(32), **attributes)
    assert fused_kinds(net.add("Mul", new_h, net.add("Exp", new_c)), net=net) == ["LSTMCell+Exp+Mul"]


def test_softmax_takes_an_epilogue():
    net = Net()
    y = net.add("Softmax", net.input(3, 4), axis=1)
    assert fused_kinds(net.add("Mul", y, net.input(3, 4)), net=net) == ["Softmax+Mul"]


def test_a_wider_consumer_is_no_epilogue():
    net = Net()
    mean = net.add("ReduceMean", net.input(3, 4), axes=(1,), keepdims=True)
    assert fused_kinds(net.add("Sub", net.input(3, 4), mean), net=net) == ["ReduceMean", "Sub"]


def test_a_consumer_of_two_elements_is_no_epilogue():
    net = Net()
    y = matmul(net, net.input(4, 4), 4)
    assert fused_kinds(net.add("Add", y, net.add("Transpose", y, perm=(1, 0))), net=net) == ["MatMul", "Add"]


def test_a_path_around_prevents_fusion():
    """The gate of a squeeze-and-excite block depends on the convolution that it scales."""
    net = Net()
    y = net.conv(net.input(1, 3, 4, 4), net.weight(4, 3, 1, 1))
    gate = net.add("Sigmoid", net.conv(net.add("GlobalAveragePool", y), net.weight(4, 4, 1, 1)))
    graph = fused(net.build(net.add("Mul", y, gate)))
    assert kinds(graph) == ["Conv", "GlobalAveragePool", "Conv+Sigmoid", "Mul"]


def test_a_join_follows_the_longer_branch():
    net = Net()
    x = net.input(2, 4)
    short = matmul(net, x, 4, name="short")
    long = matmul(net, net.add("Softmax", matmul(net, x, 4), axis=1), 4, name="long")
    for operands in ((short, long), (long, short)):
        graph = fused(net.build(net.add("Add", *operands)))
        assert source_nodes(graph.operators[-1])[0] == "long"


def test_a_producer_that_nobody_read_yet_is_drawn_along():
    net = Net()
    x = net.input(2, 4)
    y = matmul(net, x, 4)
    joined = net.add("Concat", net.add("Softmax", matmul(net, x, 2), axis=1), matmul(net, x, 2), axis=1)
    assert fused_kinds(net.add("Add", y, joined), net=net)[-2:] == ["Concat", "MatMul+Add"]


def test_a_reduction_takes_a_prologue():
    net = Net()
    difference = net.add("Sub", net.input(3, 4), net.input(3, 4))
    y = net.add("ReduceSumSquare", difference, axes=(1,), keepdims=False)
    graph = fused(net.build(net.add("Sqrt", y)))
    assert kinds(graph) == ["Sub+ReduceSumSquare+Sqrt"]


def test_a_prologue_is_not_computed_twice():
    net = Net()
    y = net.add("Exp", net.input(1, 2, 6, 6))
    pool = net.add("MaxPool", y, kernel=(3, 3), strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0), out_shape=(4, 4))
    assert fused_kinds(pool, net=net) == ["Exp", "MaxPool"]
    net = Net()
    assert fused_kinds(net.add("Softmax", net.add("Exp", net.input(3, 4)), axis=1), net=net) == ["Exp", "Softmax"]
    net = Net()
    wide = net.add("Add", net.add("Exp", net.input(3, 1)), net.input(3, 4))
    assert fused_kinds(wide, net=net) == ["Exp", "Add"]


def test_windows_that_do_not_overlap_take_a_prologue():
    net = Net()
    y = net.add("Exp", net.input(1, 2, 6, 6))
    attributes: dict[str, Any] = {"kernel": (2, 2), "strides": (2, 2), "dilations": (1, 1), "out_shape": (3, 3)}
    assert fused_kinds(net.add("MaxPool", y, pads=(0, 0, 0, 0), **attributes), net=net) == ["Exp+MaxPool"]


def test_a_prologue_is_not_loaded_with_a_padding():
    net = Net()
    y = net.add("Exp", net.input(1, 2, 6, 6))
    attributes: dict[str, Any] = {"kernel": (2, 2), "strides": (4, 4), "dilations": (1, 1), "out_shape": (2, 2)}
    assert fused_kinds(net.add("MaxPool", y, pads=(1, 1, 1, 1), **attributes), net=net) == ["Exp", "MaxPool"]


@pytest.mark.parametrize(("value", "expected"), [(3.0, ["Add+Pad"]), (2.0, ["Add", "Pad"])])
def test_a_padding_that_is_made_of_0_leaves_a_prologue(value, expected):
    """x + 3 is 3 around an x that is padded by 0; what is cut from a longer tensor may not be read beyond its end."""
    attributes: dict[str, Any] = {"mode": "constant", "pads": (0, 1, 1, 0), "value": value}
    for is_part in (False, True):
        net = Net()
        x = net.input(4, 9)
        x = net.part(x, 0, 0, 3) if is_part else x
        y = net.add("Add", x, net.constant(np.array(3.0, np.float32)))
        graph = rewritten(net.build(net.add("Pad", y, **attributes)), inline_numbers.run, inline_views.run, fuse.run)
        found = [kind for kind in kinds(eliminate_dead.run(graph)) if kind != "Slice"]
        assert found == (["Add", "Pad"] if is_part else expected)


def test_a_slice_takes_only_what_it_needs():
    net = Net()
    y = net.add("Exp", net.add("Neg", net.input(3, 8)))
    assert fused_kinds(net.add("ReduceMax", net.part(y, 1, 2, 3), axes=(1,), keepdims=False), net=net) == [
        "Neg+Exp+ReduceMax"
    ]


def test_operands_of_contractions_stay_in_memory():
    net = Net()
    y = net.add("MatMul", net.add("Relu", net.input(3, 4)), net.weight(4, 5))
    graph = fused(net.build(y))
    assert kinds(graph) == ["Relu", "MatMul"]
    assert contraction(graph.operators[1].expr) is not None


def test_positions_of_a_gather_stay_in_memory():
    net = Net()
    one = net.constant(np.ones(2, np.int64))
    positions = net.add("Add", net.input(2, dtype=DType.INT64), one)
    y = net.add("Gather", net.input(5), positions, axis=0)
    assert fused_kinds(net.add("Neg", y), net=net) == ["Add", "Gather+Neg"]


def test_siblings_become_one():
    net = Net()
    x = net.add("Concat", net.input(2, 3), net.input(2, 3), axis=1)
    outputs = [net.add("Relu", x), net.add("Tanh", x), net.add("Mul", x, net.input(2, 6))]
    graph = fused(net.build(*outputs))
    assert kinds(graph) == ["Concat", "Relu+Tanh+Mul"]
    assert len(graph.operators[1].outputs) == 3


def test_siblings_on_a_path_stay_apart():
    net = Net()
    x = net.input(3, 3)
    first = net.add("Exp", x)
    joined = net.add("Concat", net.add("Reshape", first, shape=(9,)), axis=0)
    graph = rewritten(net.build(first, net.add("Sub", net.add("Reshape", joined, shape=(3, 3)), x)), fuse.run)
    assert kinds(graph) == ["Exp", "Reshape", "Concat", "Reshape", "Sub"]


def test_siblings_of_another_shape_stay_apart():
    net = Net()
    x = net.input(1, 3)
    assert fused_kinds(net.add("Relu", x), net.add("Add", x, net.input(2, 3)), net=net) == ["Relu", "Add"]


def test_placed_views_are_left_to_lowering():
    net = Net()
    y = matmul(net, net.input(2, 4), 6)
    joined = net.add("Concat", net.add("Reshape", y, shape=(3, 4)), net.input(1, 4), axis=0)
    graph = fused(net.build(net.add("Exp", joined)))
    assert kinds(graph) == ["MatMul", "Reshape", "Concat", "Exp"]
    assert only(graph, "Concat").attributes == {"axis": 0}


def test_operands_are_limited():
    net = Net()
    total = net.input(2, 3)
    for _ in range(2 * fusion.LARGEST_OPERANDS):
        total = net.add("Add", total, net.input(2, 3))
    graph = fused(net.build(total))
    assert all(len(op.inputs) + len(op.outputs) <= fusion.LARGEST_OPERANDS for op in graph.operators)
    assert len(graph.operators) == 3


def test_bodies_are_limited_and_long_kinds_are_counted():
    net = Net()
    y = net.input(2, 3)
    for _ in range(fusion.LARGEST_NODES):
        y = net.add("Tanh", y)
    graph = fused(net.build(y))
    assert kinds(graph) == ["Tanh+Tanh+Tanh+Tanh+502 more", "Tanh+Tanh+Tanh+Tanh+2 more"]


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_sixteen_bit_results_are_rounded_where_they_were(dtype):
    net = Net()
    x = net.input(4, 4, dtype=dtype)
    y = net.add("MatMul", x, net.constant(np.eye(4).astype(dtype.numpy) * dtype.numpy.type(0.3)))
    y = net.add("Mul", net.add("Sigmoid", y), x)
    before = net.build(net.add("Add", y, x))
    graph = rewritten(before, fuse.run, tolerance=0)
    assert kinds(graph) == ["MatMul+Sigmoid+Mul+Add"]


def test_integers_and_booleans_fuse_too():
    net = Net()
    x, y = net.input(2, 3, dtype=DType.INT32), net.input(2, 3, dtype=DType.INT32)
    mask = net.add("Less", x, y)
    assert fused_kinds(net.add("Where", mask, x, net.add("Neg", y)), net=net) == ["Less+Neg+Where"]


def test_reductions_that_are_nested_keep_axes_of_their_own():
    net = Net()
    y = net.add("LayerNormalization", net.input(3, 4), net.weight(4), axis=1, epsilon=0.1)
    z = net.add("Softmax", y, axis=1)
    graph = fused(net.build(net.add("Relu", z)))
    assert kinds(graph) == ["LayerNormalization", "Softmax+Relu"]
    assert any(isinstance(reduction, Reduce) for reduction in graph.operators[1].expr.reductions)


def test_dead_operators_do_no_harm():
    net = Net()
    x = net.input(2, 3)
    net.add("Tanh", net.add("Exp", x))
    before = net.build(net.add("Relu", x))
    assert kinds(rewritten(before, fuse.run)) == ["Relu"]
