"""A weighted sum computes its softmax and its scores, where nobody else reads them and a device has the skeleton."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.kernel_form import Skeleton
from rammer.ir.region import affine
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.passes import eliminate_dead, fuse, fuse_attention, inline_numbers, inline_views, select_parts
from rammer.tiling.attention import attention
from tests.support.passes import Net, expression_of, kinds, only, rewritten

VDEVICE = find_device("reference").describe(CompileOptions(device="reference", veus=2))
BATCH, HEADS, ROWS, KEYS, SIZE = 2, 3, 32, 40, 16


@pytest.fixture(autouse=True)
def _attention_pays(monkeypatch):
    monkeypatch.setattr(fuse_attention, "predicted_us", lambda expr, *_: 0.0 if attention(expr) else 1.0)


def fused(graph, device=VDEVICE, tolerance=1e-5, *, rotates=False):
    first = (inline_numbers.run, inline_views.run, eliminate_dead.run, fuse.run)
    steps = (*first, select_parts.run, eliminate_dead.run) if rotates else first
    return rewritten(graph, *steps, lambda g: fuse_attention.run(g, device), eliminate_dead.run, tolerance=tolerance)


def heads(net, count=HEADS, rows=ROWS, dtype=DType.FLOAT32):
    """(batch, heads, rows, size), from rows in which heads lie side by side."""
    x = net.add("Reshape", net.input(BATCH, rows, count * SIZE, dtype=dtype), shape=(BATCH, rows, count, SIZE))
    return net.add("Transpose", x, perm=(0, 2, 1, 3))


def number(net, value):
    return net.constant(np.asarray(value, np.float32))


def transposed(net, x):
    return net.add("Transpose", x, perm=(0, 1, 3, 2))


def weighted(net, scores, value):
    return net.add("MatMul", net.add("Softmax", scores, axis=3), value)


def test_scale_before_a_mask():
    net = Net()
    q, k, v = heads(net), heads(net, rows=KEYS), heads(net, rows=KEYS)
    scores = net.add("Div", net.add("MatMul", q, transposed(net, k)), number(net, 4.0))
    y = weighted(net, net.add("Add", scores, net.input(BATCH, 1, 1, KEYS)), v)
    graph = fused(net.build(net.add("Transpose", y, perm=(0, 2, 1, 3))))
    assert kinds(graph) == ["Attention"]
    found = attention(expression_of(graph.operators[0]))
    assert found is not None
    assert found.keys.extent == KEYS
    assert [axis.extent for axis in found.rows] == [ROWS]
    assert [axis.extent for axis in found.columns] == [SIZE]
    assert len(graph.operators[0].sources) >= 5


def test_a_mask_that_chooses():
    net = Net()
    q, k, v = heads(net), heads(net, rows=KEYS), heads(net, rows=KEYS)
    mask = net.input(1, 1, ROWS, KEYS, dtype=DType.BOOL)
    scores = net.add("Where", mask, net.add("MatMul", q, transposed(net, k)), number(net, -1e30))
    assert kinds(fused(net.build(weighted(net, scores, v)))) == ["Attention"]


def test_rows_of_nan_may_be_cleared():
    net = Net()
    q, k, v = heads(net), heads(net, rows=KEYS), heads(net, rows=KEYS)
    mask = net.constant(np.where(np.arange(ROWS) == 3, -np.inf, 0.0).astype(np.float32).reshape(ROWS, 1))
    weights = net.add("Softmax", net.add("Add", net.add("MatMul", q, transposed(net, k)), mask), axis=3)
    cleared = net.add("Where", net.add("IsNaN", weights), number(net, 0.0), weights)
    assert kinds(fused(net.build(net.add("MatMul", cleared, v)))) == ["Attention"]


def test_rows_of_which_nothing_counts_may_be_cleared():
    net = Net()
    q, k, v = heads(net), heads(net, rows=KEYS), heads(net, rows=KEYS)
    mask = net.input(1, 1, ROWS, KEYS, dtype=DType.BOOL)
    some = net.add("ReduceMax", mask, axes=(3,), keepdims=True)
    scores = net.add("Where", mask, net.add("MatMul", q, transposed(net, k)), number(net, -1e30))
    cleared = net.add("Where", some, net.add("Softmax", scores, axis=3), number(net, 0.0))
    assert kinds(fused(net.build(net.add("MatMul", cleared, v)))) == ["ReduceMax", "Attention"]


def test_scales_of_both_factors_leave_the_sum():
    net = Net()
    q, k, v = heads(net), heads(net, rows=KEYS), heads(net, rows=KEYS)
    columns = net.add("Mul", transposed(net, k), number(net, 0.5))
    y = weighted(net, net.add("MatMul", net.add("Mul", q, number(net, 0.5)), columns), v)
    graph = fused(net.build(net.add("Relu", y)))
    found = attention(expression_of(only(graph, "Attention")))
    assert found is not None
    assert kinds(graph) == ["Attention"]
    assert "0.25" in str(found.score)


def test_heads_of_keys_are_shared_by_index():
    net = Net()
    groups, members = 2, 4
    q = heads(net, groups * members)
    shared = []
    for part in (heads(net, groups, KEYS), heads(net, groups, KEYS)):
        wide = net.add("Reshape", part, shape=(BATCH, groups, 1, KEYS, SIZE))
        wide = net.add("Expand", wide, shape=(BATCH, groups, members, KEYS, SIZE))
        shared.append(net.add("Reshape", wide, shape=(BATCH, groups * members, KEYS, SIZE)))
    k, v = shared
    graph = fused(net.build(weighted(net, net.add("MatMul", q, transposed(net, k)), v)))
    assert kinds(graph) == ["Attention"]
    expr = expression_of(graph.operators[0])
    found = attention(expr)
    assert found is not None
    assert [axis.extent for axis in found.rows] == [members, ROWS]
    assert all(affine(index) is not None for load in expr.loads for index in load.indices)


def test_a_cache_is_read_in_its_two_parts():
    net = Net()
    q = heads(net, rows=1)
    parts = [net.add("Concat", net.input(BATCH, HEADS, KEYS, SIZE), heads(net, rows=1), axis=2) for _ in range(2)]
    k, v = parts
    y = weighted(net, net.add("MatMul", q, transposed(net, k)), v)
    graph = fused(net.build(y, *parts))
    operator = only(graph, "Attention")
    assert not set(operator.inputs) & set(graph.outputs)


def rotated(net, x, waves):
    """Heads whose pairs of elements, half a head apart, are turned."""
    high = net.add("Neg", net.part(x, 3, SIZE // 2, SIZE // 2))
    turned = net.add("Concat", high, net.part(x, 3, 0, SIZE // 2), axis=3)
    straight, across = (net.add("Mul", part, wave) for part, wave in zip((x, turned), waves, strict=True))
    return net.add("Add", straight, across)


@pytest.mark.parametrize("rows", [1, 3])
def test_queries_and_new_keys_are_rotated_where_they_are_multiplied(rows):
    net = Net()
    waves = [net.input(1, 1, 1, SIZE) for _ in range(2)]
    q = rotated(net, net.input(BATCH, HEADS, rows, SIZE), waves)
    new = heads(net, rows=rows)
    k = net.add("Concat", net.input(BATCH, HEADS, KEYS, SIZE), rotated(net, new, waves), axis=2)
    v = net.add("Concat", net.input(BATCH, HEADS, KEYS, SIZE), new, axis=2)
    y = weighted(net, net.add("MatMul", q, transposed(net, k)), v)
    graph = fused(net.build(y, k, v), rotates=True)
    operator = only(graph, "Attention")
    found = attention(expression_of(operator))
    assert found is not None
    assert [axis.extent for axis in found.depth] == [2, SIZE // 2]
    # Of several new rows a key would read some that there are not.
    assert (set(operator.inputs) <= set(graph.inputs)) == (rows == 1)


def test_16_bits_are_rounded_no_more_between():
    net = Net()
    q, k, v = (heads(net, rows=rows, dtype=DType.FLOAT16) for rows in (ROWS, KEYS, KEYS))
    graph = fused(net.build(weighted(net, net.add("MatMul", q, transposed(net, k)), v)), tolerance=2e-3)
    assert kinds(graph) == ["Attention"]
    assert str(expression_of(graph.operators[0])).count("float16(") == 1  # the result


@pytest.mark.parametrize("what", ["scores", "weights"])
def test_what_others_read_stays(what):
    net = Net()
    q, k, v = heads(net), heads(net, rows=KEYS), heads(net, rows=KEYS)
    scores = net.add("MatMul", q, transposed(net, k))
    weights = net.add("Softmax", scores, axis=3)
    y = net.add("MatMul", weights, v)
    assert "Attention" not in kinds(fused(net.build(y, scores if what == "scores" else weights)))


def test_a_softmax_along_another_axis_stays():
    net = Net()
    q, k, v = heads(net), heads(net), heads(net)
    weights = net.add("Softmax", net.add("MatMul", q, transposed(net, k)), axis=2)
    assert "Attention" not in kinds(fused(net.build(net.add("MatMul", weights, v))))


def test_weights_that_are_scaled_by_key_stay():
    net = Net()
    q, k, v = heads(net), heads(net, rows=KEYS), heads(net, rows=KEYS)
    weights = net.add("Softmax", net.add("MatMul", q, transposed(net, k)), axis=3)
    weights = net.add("Mul", weights, net.input(KEYS))
    assert "Attention" not in kinds(fused(net.build(net.add("MatMul", weights, v))))


def test_only_where_a_device_has_the_skeleton_and_it_pays(monkeypatch):
    net = Net()
    q, k, v = heads(net), heads(net, rows=KEYS), heads(net, rows=KEYS)
    graph = net.build(weighted(net, net.add("MatMul", q, transposed(net, k)), v))
    without = replace(VDEVICE, skeletons=tuple(s for s in VDEVICE.skeletons if s != Skeleton.ATTENTION))
    assert "Attention" not in kinds(fused(graph, without))
    monkeypatch.setattr(fuse_attention, "predicted_us", lambda expr, *_: 4.0 if attention(expr) else 1.0)
    assert "Attention" not in kinds(fused(graph))
