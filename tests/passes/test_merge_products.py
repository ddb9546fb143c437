"""Products of one input become one, where that costs their readers nothing."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rammer.passes import eliminate_dead, fuse, hoist_pointwise, inline_views, merge_products
from tests.support.kernels import AVX512
from tests.support.passes import Net, kinds, only, rewritten, source_nodes, unchanged


def merge(before, device=AVX512):
    return merge_products.run(before, device)


def everything(before):
    passes = (hoist_pointwise, inline_views, eliminate_dead, fuse)
    return rewritten(before, merge, *(module.run for module in passes))


def test_convolutions_with_equal_activations_fuse_as_one():
    net = Net()
    x = net.input(1, 4, 5, 5)
    branches = [net.add("Relu", net.conv(x, net.weight(n, 4, 1, 1), net.weight(n))) for n in (2, 3, 4)]
    outputs = [net.conv(branch, net.weight(2, n, 3, 3), pad=1) for branch, n in zip(branches, (2, 3, 4), strict=True)]
    before = net.build(*outputs)
    assert kinds(rewritten(before, merge))[:4] == ["Conv", "Slice", "Slice", "Slice"]
    graph = everything(before)
    assert kinds(graph).count("Conv+Relu") == 1
    fused = only(graph, "Conv+Relu")
    assert graph.values[fused.outputs[0]].type.shape == (1, 9, 5, 5)
    assert len(source_nodes(fused)) == 6


@pytest.mark.parametrize("transposed", [False, True])
def test_gemms_with_and_without_a_bias(transposed):
    net = Net()
    x = net.input(3, 4)
    attributes: dict[str, Any] = {"alpha": 0.5, "beta": 2.0, "trans_a": False, "trans_b": transposed}
    shapes = [(n, 4) if transposed else (4, n) for n in (5, 6, 7)]
    first = net.add("Gemm", x, net.weight(*shapes[0]), net.weight(5), **attributes)
    second = net.add("Gemm", x, net.weight(*shapes[1]), **attributes)
    third = net.add("Gemm", x, net.weight(*shapes[2]), net.weight(1), **attributes)
    sums = [net.add("ReduceSum", y, axes=(1,), keepdims=True) for y in (first, second, third)]
    graph = rewritten(net.build(*sums), merge)
    assert kinds(graph).count("Gemm") == 1
    assert len(only(graph, "Gemm").inputs) == 3


def test_projections_with_biases_of_their_own():
    net = Net()
    x = net.input(2, 3, 4)
    parts = [net.add("Add", net.add("MatMul", x, net.weight(4, 5)), net.weight(5)) for _ in range(3)]
    scores = net.add("MatMul", parts[0], net.add("Transpose", parts[1], perm=(0, 2, 1)))
    graph = everything(net.build(net.add("MatMul", scores, parts[2])))
    assert kinds(graph) == ["MatMul+Add", "MatMul", "MatMul"]


@pytest.mark.parametrize("zeros", [False, True])
def test_products_by_weights_of_few_bits(zeros):
    net = Net()
    x, rng = net.input(2, 64), np.random.default_rng(0)

    def product(points):
        packed, scales = rng.integers(256, size=(points, 32)).astype(np.uint8), net.weight(points, 2)
        points_ = [net.constant(rng.integers(256, size=(points, 1)).astype(np.uint8))] if zeros else []
        return net.add("MatMulNBits", x, net.constant(packed), scales, *points_, bits=4, block=32)

    sums = [net.add("ReduceSum", product(points), axes=(1,), keepdims=True) for points in (5, 6, 7)]
    graph = rewritten(net.build(*sums), merge)
    assert kinds(graph).count("MatMulNBits") == 1
    merged = only(graph, "MatMulNBits")
    assert [graph.values[value].type.shape[0] for value in merged.inputs[1:]] == [18] * (3 if zeros else 2)


def test_gates_that_were_written_apart():
    net = Net()
    x, h, c = net.input(1, 3), net.input(1, 4), net.input(1, 4)
    pre = [
        net.add("Add", net.add("MatMul", x, net.weight(3, 4)), net.add("MatMul", h, net.weight(4, 4))) for _ in range(4)
    ]
    i, f, o = (net.add("Sigmoid", gate) for gate in pre[:3])
    new_c = net.add("Add", net.add("Mul", f, c), net.add("Mul", i, net.add("Tanh", pre[3])))
    graph = everything(net.build(net.add("Mul", o, net.add("Tanh", new_c)), new_c))
    assert kinds(graph).count("MatMul") == 2
    assert len(graph.operators) == 3


def test_two_products_keep_their_different_epilogues():
    net = Net()
    x, r = net.input(1, 4, 5, 5), net.input(1, 3, 5, 5)
    first = net.add("Relu", net.conv(x, net.weight(2, 4, 1, 1)))
    second = net.add("Add", net.conv(x, net.weight(3, 4, 1, 1)), r)
    before = net.build(net.conv(first, net.weight(1, 2, 1, 1)), net.conv(second, net.weight(1, 3, 1, 1)))
    assert unchanged(before, merge)


def test_what_ends_in_a_concatenation_is_written_there():
    net = Net()
    x = net.input(1, 4, 5, 5)
    parts = [net.add("Relu", net.conv(x, net.weight(2, 4, 1, 1))) for _ in range(2)]
    before = net.build(net.add("Concat", *parts, axis=1))
    assert unchanged(before, merge)


def test_outputs_are_written_in_place():
    net = Net()
    x = net.input(2, 4)
    before = net.build(*(net.add("MatMul", x, net.weight(4, 3)) for _ in range(3)))
    assert unchanged(before, merge)


def test_other_attributes_groups_inputs_and_kernels_stay_apart():
    net = Net()
    x, other = net.input(1, 4, 5, 5), net.input(1, 4, 5, 5)
    products = [
        net.conv(x, net.weight(2, 4, 1, 1)),
        net.conv(x, net.weight(2, 4, 1, 1), stride=2),
        net.conv(x, net.weight(2, 4, 3, 3), pad=1),
        net.conv(x, net.weight(4, 1, 1, 1), group=4),
        net.conv(x, net.weight(4, 1, 1, 1), group=4),
        net.conv(other, net.weight(2, 4, 1, 1)),
        net.conv(x, net.input(2, 4, 1, 1)),
    ]
    before = net.build(*(net.add("GlobalAveragePool", y) for y in products))
    assert unchanged(before, merge)


def test_a_bias_per_row_stays():
    net = Net()
    x = net.input(3, 4)
    attributes: dict[str, Any] = {"alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": False}
    products = [net.add("Gemm", x, net.weight(4, 5), net.weight(3, 1), **attributes) for _ in range(2)]
    before = net.build(*(net.add("ReduceSum", y, axes=(1,), keepdims=True) for y in products))
    assert unchanged(before, merge)


@pytest.mark.parametrize(
    ("count", "own_cache_bytes", "features", "merged"),
    [
        (3, 0, 16, True),
        (3, 4096, 16, False),  # each result is 4096 bytes, all are 12288
        (3, 4095, 16, True),
        (3, 6144, 16, False),  # two vEUs have room for them alone
        (3, 6145, 16, True),
        (3, 4096, 8, True),
        (7, 14337, 16, True),
        (8, 65536, 16, False),  # four for each vEU, and a quarter of the room
        (8, 65537, 16, True),
    ],
)
def test_what_would_leave_the_caches_stays_apart(count, own_cache_bytes, features, merged):
    net = Net()
    x = net.input(1, 4, 8, 8)
    branches = [net.conv(x, net.weight(features, 4, 1, 1)) for _ in range(count)]
    before = net.build(*(net.conv(branch, net.weight(2, features, 3, 3), pad=1) for branch in branches))
    device = replace(AVX512, veus=AVX512.veus[:2], own_cache_bytes=own_cache_bytes)
    after = rewritten(before, lambda graph: merge(graph, device))
    assert kinds(after).count("Conv") == count + (1 if merged else count)
