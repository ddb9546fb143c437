"""Views get simpler, and loads are led through them to the data."""

from typing import Any

import numpy as np
import pytest

from rammer.ir.region import affine
from rammer.ir.types import DType
from rammer.passes import eliminate_dead, fuse, hoist_pointwise, inline_numbers, inline_views, simplify_views
from tests.support.passes import Net, expression_of, kinds, only, rewritten, source_nodes


def simplified(before):
    return rewritten(before, simplify_views.run, eliminate_dead.run)


def inlined(before):
    return rewritten(before, inline_views.run, eliminate_dead.run)


IDENTITIES: dict[str, dict[str, Any]] = {
    "Identity": {},
    "Cast": {"to": DType.FLOAT32},
    "Reshape": {"shape": (2, 1, 3)},
    "Transpose": {"perm": (0, 1, 2)},
    "Expand": {"shape": (2, 1, 3)},
    "Slice": {"starts": (0, 0, 0), "steps": (1, 1, 1), "sizes": (2, 1, 3)},
    "Pad": {"mode": "constant", "pads": (0,) * 6, "value": 0.0},
    "Tile": {"repeats": (1, 1, 1)},
    "Concat": {"axis": 1},
    "ReduceSum": {"axes": (), "keepdims": True},
}


@pytest.mark.parametrize("kind", IDENTITIES)
def test_what_changes_nothing_is_gone(kind):
    net = Net()
    y = net.add(kind, net.add("Neg", net.input(2, 1, 3)), **IDENTITIES[kind])
    assert kinds(simplified(net.build(net.add("Relu", y)))) == ["Neg", "Relu"]


def test_an_output_that_is_an_input_stays_a_copy():
    net = Net()
    assert kinds(simplified(net.build(net.add("Identity", net.input(2))))) == ["Identity"]


@pytest.mark.parametrize(
    ("kind", "attributes"), [("Transpose", {"perm": (1, 0, 2)}), ("Expand", {"shape": (1, 2, 1, 3)})]
)
def test_moved_dimensions_of_extent_one_are_a_reshape(kind, attributes):
    net = Net()
    y = net.add(kind, net.input(2, 1, 3), **attributes)
    assert kinds(simplified(net.build(net.add("Relu", y)))) == ["Reshape", "Relu"]


def test_reshapes_of_reshapes_are_one():
    net = Net()
    y = net.add("Reshape", net.add("Reshape", net.input(2, 6), shape=(12,)), shape=(3, 4))
    graph = simplified(net.build(net.add("Relu", y)))
    assert kinds(graph) == ["Reshape", "Relu"]
    assert graph.operators[0].inputs == graph.inputs


def test_a_reshape_there_and_back_is_gone():
    net = Net()
    x = net.add("Neg", net.input(2, 6))
    y = net.add("Reshape", net.add("Reshape", x, shape=(12,)), shape=(2, 6))
    assert kinds(simplified(net.build(net.add("Relu", y)))) == ["Neg", "Relu"]


def test_transposes_of_transposes_are_one():
    net = Net()
    y = net.add("Transpose", net.add("Transpose", net.input(2, 3, 4), perm=(2, 0, 1)), perm=(0, 2, 1))
    graph = simplified(net.build(net.add("Relu", y)))
    assert kinds(graph) == ["Transpose", "Relu"]
    assert graph.operators[0].attributes["perm"] == (2, 1, 0)


def test_a_transpose_there_and_back_is_gone():
    net = Net()
    x = net.add("Neg", net.input(2, 3))
    y = net.add("Transpose", net.add("Transpose", x, perm=(1, 0)), perm=(1, 0))
    assert kinds(simplified(net.build(net.add("Relu", y)))) == ["Neg", "Relu"]


def test_pixels_in_one_dimension_are_transposed_as_rows_and_columns():
    net = Net()
    image = net.add("Neg", net.input(2, 3, 4, 5))
    rows = net.add("Transpose", net.add("Reshape", image, shape=(2, 3, 20)), perm=(0, 2, 1))
    graph = simplified(net.build(net.add("Relu", rows)))
    assert kinds(graph) == ["Neg", "Transpose", "Reshape", "Relu"]
    assert graph.operators[1].attributes["perm"] == (0, 2, 3, 1)


def test_rows_that_become_an_image_are_transposed_as_rows_and_columns():
    net = Net()
    rows = net.add("Neg", net.input(2, 20, 3))
    image = net.add("Reshape", net.add("Transpose", rows, perm=(0, 2, 1)), shape=(2, 3, 4, 5))
    graph = simplified(net.build(net.add("Relu", image)))
    assert kinds(graph) == ["Neg", "Reshape", "Transpose", "Relu"]
    assert graph.operators[2].attributes["perm"] == (0, 3, 1, 2)


def test_a_transposition_among_merged_heads_cancels_the_reshapes_around_it():
    net = Net()
    keys = net.add("Neg", net.input(2, 3, 4, 5))
    merged = net.add("Transpose", net.add("Reshape", keys, shape=(6, 4, 5)), perm=(0, 2, 1))
    graph = simplified(net.build(net.add("Relu", net.add("Reshape", merged, shape=(2, 3, 5, 4)))))
    assert kinds(graph) == ["Neg", "Transpose", "Relu"]
    assert graph.operators[1].attributes["perm"] == (0, 1, 3, 2)


@pytest.mark.parametrize(
    ("shape", "first", "perm", "second"),
    [
        ((2, 3, 4), (6, 4), (1, 0), (4, 3, 2)),
        ((2, 1, 6, 1), (2, 6), (1, 0), (3, 2, 1, 2)),
        ((1, 6, 4), (1, 1, 24), (2, 0, 1), (4, 6)),
        ((4, 6), (8, 3), (1, 0), (6, 4)),
        ((6, 1, 1), (6,), (0,), (2, 3, 1)),
        ((2, 3, 4), (24,), (0,), (4, 3, 2)),
    ],
)
def test_transpositions_between_reshapes_keep_every_element(shape, first, perm, second):
    net = Net()
    x = net.add("Neg", net.input(*shape))
    moved = net.add("Transpose", net.add("Reshape", x, shape=first), perm=perm)
    graph = simplified(net.build(net.add("Relu", net.add("Reshape", moved, shape=second))))
    assert kinds(graph).count("Transpose") <= 1


def test_what_stands_between_two_rows_of_pixels_is_the_epilogue_of_a_convolution():
    net = Net()
    weights = net.constant(np.ones((3, 1, 3, 3), np.float32))
    rows = net.add("Softmax", net.input(1, 20, 3), axis=2)
    image = net.add("Reshape", net.add("Transpose", rows, perm=(0, 2, 1)), shape=(1, 3, 4, 5))
    windows = net.add(
        "Conv",
        image,
        weights,
        strides=(1, 1),
        dilations=(1, 1),
        pads=(1, 1, 1, 1),
        group=3,
        finite_weights=True,
    )
    turned = net.add("Transpose", net.add("Reshape", windows, shape=(1, 3, 20)), perm=(0, 2, 1))
    steps = (simplify_views.run, hoist_pointwise.run, inline_views.run, eliminate_dead.run, fuse.run)
    graph = rewritten(net.build(net.add("Sigmoid", turned)), *steps)
    assert kinds(graph) == ["Softmax", "Reshape", "Conv+Sigmoid", "Reshape"]


def test_a_chain_of_views_is_read_through():
    net = Net()
    y = net.add("Transpose", net.input(4, 3, 2), perm=(2, 0, 1), name="turn")
    y = net.part(y, 1, 1, 2, name="cut")
    y = net.add("Expand", net.add("Reshape", y, shape=(2, 2, 3, 1), name="lift"), shape=(2, 2, 3, 5), name="widen")
    graph = inlined(net.build(net.add("Exp", y, name="exp")))
    (exp,) = graph.operators
    assert exp.inputs == graph.inputs
    assert source_nodes(exp) == ["turn", "cut", "lift", "widen", "exp"]
    (load,) = exp.expr.loads
    assert [str(index) for index in load.indices] == ["(i1 + 1)", "i2", "i0"]


def test_operands_of_products_are_read_through():
    net = Net()
    turned = net.add("Transpose", net.input(4, 3), perm=(1, 0))
    assert kinds(inlined(net.build(net.add("MatMul", turned, net.part(net.input(4, 9), 1, 2, 5))))) == ["MatMul"]


def test_a_reshape_that_splits_is_read_through_and_one_that_merges_is_not():
    net = Net()
    split = net.add("Reshape", net.input(12), shape=(3, 4))
    merged = net.add("Reshape", net.input(2, 3), shape=(6,))
    graph = inlined(net.build(net.add("Exp", split), net.add("Exp", merged)))
    assert kinds(graph) == ["Reshape", "Exp", "Exp"]
    loads = [load for operator in graph.operators[1:] for load in operator.expr.loads]
    assert all(affine(index) is not None for load in loads for index in load.indices)


def test_a_load_within_one_part_of_a_concatenation_reads_the_part():
    net = Net()
    parts = [net.add("Exp", net.input(2, n)) for n in (2, 3, 4)]
    joined = net.add("Reshape", net.add("Concat", *parts, axis=1), shape=(2, 9, 1))
    graph = inlined(net.build(net.add("Neg", net.part(joined, 1, 2, 3)), net.add("Neg", net.part(joined, 1, 3, 2))))
    assert kinds(graph) == ["Exp", "Neg", "Neg"]
    assert {operator.inputs for operator in graph.operators[1:]} == {graph.operators[0].outputs}


def test_a_load_across_parts_reads_the_concatenation():
    net = Net()
    joined = net.add("Concat", net.input(2, 2), net.input(2, 3), axis=1)
    assert kinds(inlined(net.build(net.add("Neg", net.part(joined, 1, 1, 2))))) == ["Concat", "Neg"]


def test_padding_goes_through_what_keeps_the_bounds():
    net = Net()
    turned = net.add("Transpose", net.input(1, 5, 5, 3), perm=(0, 3, 1, 2))
    graph = inlined(net.build(net.conv(turned, net.weight(2, 3, 3, 3), pad=1)))
    assert kinds(graph) == ["Conv"]
    assert [load.fill is not None for load in graph.operators[0].expr.loads] == [True, False]


def test_padding_of_the_same_value_is_joined():
    net = Net()
    padded = net.add("Pad", net.input(1, 3, 5, 5), mode="constant", pads=(0, 0, 1, 2, 0, 0, 1, 0), value=0.0)
    assert kinds(inlined(net.build(net.conv(padded, net.weight(2, 3, 3, 3), pad=1)))) == ["Conv"]


@pytest.mark.parametrize("pads", [(0, 0, 1, 1, 0, 0, 1, 1), (0, 0, -1, 0, 0, 0, 0, 0)])
def test_other_padding_and_cropping_stay(pads):
    net = Net()
    value = 1.0 if min(pads) >= 0 else 0.0
    padded = net.add("Pad", net.input(1, 3, 5, 5), mode="constant", pads=pads, value=value)
    assert kinds(inlined(net.build(net.conv(padded, net.weight(2, 3, 3, 3), pad=1)))) == ["Pad", "Conv"]


def test_a_padded_load_keeps_reading_a_slice():
    net = Net()
    part = net.part(net.input(1, 6, 5, 5), 1, 2, 3)
    assert kinds(inlined(net.build(net.conv(part, net.weight(2, 3, 3, 3), pad=1)))) == ["Slice", "Conv"]


def steps_of(net, x, count):
    """As many products of rows of `x` by one weight, each added to the last."""
    weight = net.weight(4, 4)
    rows = [net.add("Reshape", net.part(x, 0, step, 1), shape=(1, 4)) for step in range(count)]
    products = [net.add("MatMul", row, weight) for row in rows]
    return [net.add("Neg", product) for product in products]


@pytest.mark.parametrize(("count", "distinct"), [(7, 7), (8, 1)])
def test_many_equal_reductions_stay_equal(count, distinct):
    """Of few, each reads its own part of the whole; of many, each a slice that lowering binds."""
    net = Net()
    graph = inlined(net.build(*steps_of(net, net.input(count, 1, 4), count)))
    products = [operator for operator in graph.operators if operator.kind == "MatMul"]
    assert len({operator.expr for operator in products}) == distinct
    whole = graph.inputs[0]
    assert all((whole in operator.inputs) is (distinct > 1) for operator in products)


def test_many_equal_reductions_read_through_what_is_more_than_a_part():
    net = Net()
    turned = net.add("Transpose", net.input(1, 8, 4), perm=(1, 0, 2))
    parts = net.add("Concat", *(net.input(1, 1, 4) for _ in range(8)), axis=0)
    graph = inlined(net.build(*steps_of(net, turned, 8), *steps_of(net, parts, 8)))
    assert set(kinds(graph)) == {"MatMul", "Neg"}


def test_many_equal_reductions_read_through_what_cuts_nothing():
    net = Net()
    rows = [net.add("Reshape", net.input(1, 5, 4), shape=(5, 4)) for _ in range(8)]
    weight = net.weight(4, 4)
    graph = inlined(net.build(*(net.add("MatMul", row, weight) for row in rows)))
    assert kinds(graph) == ["MatMul"] * 8
    assert len({operator.expr for operator in graph.operators}) == 1


def test_a_padded_load_of_a_dimension_that_the_operand_lacks_stays():
    net = Net()
    lifted = net.add("Reshape", net.input(1, 3, 5), shape=(1, 3, 1, 5))
    assert kinds(inlined(net.build(net.conv(lifted, net.weight(2, 3, 3, 3), pad=1)))) == ["Reshape", "Conv"]


def test_views_stay_for_those_that_need_them():
    net = Net()
    turned = net.add("Transpose", net.input(2, 3), perm=(1, 0))
    before = net.build(net.add("Concat", turned, net.input(3, 2), axis=1), net.add("Neg", turned))
    graph = inlined(before)
    assert kinds(graph) == ["Transpose", "Concat", "Neg"]
    assert only(graph, "Neg").inputs == only(graph, "Transpose").inputs


def test_positions_of_a_gather_are_read_through():
    net = Net()
    positions = net.part(net.input(4, dtype=DType.INT64), 0, 1, 2)
    table = net.add("Transpose", net.input(3, 5), perm=(1, 0))
    assert kinds(inlined(net.build(net.add("Gather", table, positions, axis=0)))) == ["Gather"]


def test_axes_that_are_replaced_by_each_other_are_replaced_once():
    """At row 0 of a 2x2 view of 4 elements, index `i0 * 2 + i1` folds to the reader's own `i0`."""
    net = Net()
    square = net.add("Reshape", net.input(4, 1), shape=(2, 2))
    row = net.add("Gather", square, net.constant(np.asarray(0)), axis=0)
    (reader,) = rewritten(net.build(row), inline_numbers.run, inline_views.run, eliminate_dead.run).operators
    assert [str(index) for index in expression_of(reader).loads[0].indices] == ["i0", "0"]


def test_a_gather_of_merged_dimensions_stays():
    net = Net()
    table = net.add("Reshape", net.input(5, 2, 3), shape=(5, 6))
    before = net.build(net.add("Gather", table, net.input(4, dtype=DType.INT64), axis=1))
    assert kinds(inlined(before)) == ["Reshape", "Gather"]


def test_widening_is_read_through_and_rounding_is_not():
    net = Net()
    half = net.input(2, 3, dtype=DType.FLOAT16)
    wide = net.add("Transpose", net.add("Cast", half, to=DType.FLOAT32), perm=(1, 0))
    narrow = net.add("Cast", net.add("Neg", net.input(3, 2)), to=DType.FLOAT16)
    total = net.add("Add", wide, net.add("Cast", narrow, to=DType.FLOAT32))
    assert kinds(inlined(net.build(total))) == ["Neg", "Cast", "Add"]


def test_sixteen_bit_views_are_plain_loads():
    net = Net()
    half = net.add("Transpose", net.input(2, 3, dtype=DType.FLOAT16), perm=(1, 0))
    graph = inlined(net.build(net.add("MatMul", half, net.constant(np.ones((2, 4), np.float16)))))
    assert kinds(graph) == ["MatMul"]


def test_one_operand_through_two_views_takes_one_slot():
    net = Net()
    x = net.input(2, 6)
    graph = inlined(net.build(net.add("Mul", net.part(x, 1, 0, 3), net.part(x, 1, 3, 3))))
    (mul,) = graph.operators
    assert len(mul.inputs) == len(mul.expr.inputs) == 1
