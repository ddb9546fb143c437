"""Regions: every element an expression touches lies in its boxes."""

import itertools
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rammer.ir.evaluate import evaluate_tile
from rammer.ir.expr import (
    Axis,
    Call,
    Const,
    Output,
    ScalarFn,
    TensorExpr,
    call,
    const,
    load,
    nodes,
    select,
)
from rammer.ir.region import (
    Affine,
    Interval,
    affine,
    box_contains,
    box_hull,
    box_size,
    boxes_overlap,
    depends_on_data,
    full_box,
    index_box,
    interval_of,
    read_boxes,
    reshape_box,
    reshape_groups,
    write_boxes,
)
from rammer.ir.types import DType, TensorType
from tests.support.operators import expression

A, B = Axis("i", 7), Axis("j", 5)
intervals = st.tuples(st.integers(-6, 6), st.integers(-6, 6)).map(lambda ends: Interval(*ends))


@given(intervals, intervals)
def test_intervals_are_sets_of_integers(a, b):
    left, right = set(range(*a)), set(range(*b))
    assert a.extent == len(left)
    assert a.overlaps(b) == bool(left & right)
    assert a.contains(b) == (right <= left)
    assert left | right <= set(range(*a.hull(b)))
    assert a.hull(b).extent <= max([*left, *right], default=-1) - min([*left, *right], default=0) + 1
    assert set(range(*a.shifted(3))) == {i + 3 for i in left}


@given(st.lists(st.tuples(intervals, intervals), max_size=3))
def test_boxes_are_sets_of_points(pairs):
    a, b = tuple(x for x, _ in pairs), tuple(y for _, y in pairs)
    points = [set(itertools.product(*(range(*interval) for interval in box))) for box in (a, b)]
    assert box_size(a) == len(points[0])
    assert boxes_overlap(a, b) == bool(points[0] & points[1])
    if points[1] <= points[0]:
        assert box_contains(a, b)
    if box_contains(a, b):
        assert points[1] <= points[0]
    assert box_contains(box_hull(a, b), a)


def test_the_box_of_a_tensor():
    assert full_box((2, 3)) == (Interval(0, 2), Interval(0, 3))
    assert box_size(full_box(())) == 1
    assert boxes_overlap((), ())


# --- Index expressions -----------------------------------------------------------------------------------


def number(root, values):
    """The value of an integer expression, in plain Python."""
    functions: Mapping[ScalarFn, Callable[..., int]] = {
        ScalarFn.ADD: lambda a, b: a + b,
        ScalarFn.SUB: lambda a, b: a - b,
        ScalarFn.MUL: lambda a, b: a * b,
        ScalarFn.FLOORDIV: lambda a, b: a // b,
        ScalarFn.MOD: lambda a, b: a % b,
        ScalarFn.MIN: min,
        ScalarFn.MAX: max,
        ScalarFn.NEG: lambda a: -a,
        ScalarFn.LT: lambda a, b: a < b,
        ScalarFn.SELECT: lambda c, a, b: a if c else b,
    }
    found = dict(values)
    for node in nodes(root):
        if isinstance(node, Const):
            found[node] = node.value
        elif isinstance(node, Call):
            found[node] = functions[node.fn](*(found[arg] for arg in node.args))
    return found[root]


def grow(children):
    positive = st.integers(1, 6)
    pairs = st.tuples(children, children)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: call(ScalarFn.MIN, *p)),
        pairs.map(lambda p: call(ScalarFn.MAX, *p)),
        st.tuples(children, children, children).map(lambda p: select(call(ScalarFn.LT, p[0], 0), p[1], p[2])),
        st.tuples(children, st.integers(-4, 4)).map(lambda p: p[0] * p[1]),
        st.tuples(children, positive).map(lambda p: p[0] // p[1]),
        st.tuples(children, positive).map(lambda p: p[0] % p[1]),
        children.map(lambda a: -a),
    )


leaves = st.one_of(st.just(A), st.just(B), st.integers(-5, 5).map(partial(const, dtype=DType.INT64)))
integer_expressions = st.recursive(leaves, grow, max_leaves=8)


@st.composite
def axis_ranges(draw, axes=(A, B)):
    ranges = {}
    for axis in axes:
        lo = draw(st.integers(0, axis.extent - 1))
        ranges[axis] = Interval(lo, draw(st.integers(lo + 1, axis.extent)))
    return ranges


def values_over(root, ranges):
    return [
        number(root, dict(zip(ranges, point, strict=True)))
        for point in itertools.product(*(range(*r) for r in ranges.values()))
    ]


@settings(max_examples=500)
@given(integer_expressions, axis_ranges())
def test_an_interval_holds_every_value(root, ranges):
    found = interval_of(root, ranges)
    if found is not None:
        values = values_over(root, ranges)
        assert found.lo <= min(values)
        assert max(values) < found.hi


@given(integer_expressions, axis_ranges())
def test_an_affine_form_is_the_expression(root, ranges):
    form = affine(root)
    if form is not None:
        assert all(coefficient for _, coefficient in form.terms)
        for point in itertools.product(*(range(*r) for r in ranges.values())):
            at = dict(zip(ranges, point, strict=True))
            assert number(root, at) == form.offset + sum(c * at[axis] for axis, c in form.terms)


@given(st.integers(-4, 4), st.integers(-9, 9), axis_ranges(axes=(A,)))
def test_an_interval_is_exact_for_one_axis(coefficient, offset, ranges):
    values = values_over(A * coefficient + offset, ranges)
    assert interval_of(A * coefficient + offset, ranges) == Interval(min(values), max(values) + 1)


@pytest.mark.parametrize(
    ("root", "form"),
    [
        (A * 2 + B - 3, Affine(((A, 2), (B, 1)), -3)),
        (A - A, Affine((), 0)),
        ((A + 1) * 3, Affine(((A, 3),), 3)),
        (-(A - B), Affine(((A, -1), (B, 1)), 0)),
        (A * B, None),
        (A // 2, None),
        (call(ScalarFn.MIN, A, 3), None),
    ],
)
def test_affine_forms(root, form):
    assert affine(root) == form
    if form is not None:
        assert form.coefficient(B) == dict(form.terms).get(B, 0)


@pytest.mark.parametrize(
    ("root", "interval"),
    [
        (A % 4, Interval(0, 4)),
        ((A + 8) // 3, Interval(2, 5)),
        ((A + 8) % 16, Interval(8, 15)),
        (call(ScalarFn.MAX, A - 2, 0), Interval(0, 5)),
        (call(ScalarFn.MIN, A, 3), Interval(0, 4)),
        ((A - 3) * (B - 3), Interval(-9, 10)),
        (select(call(ScalarFn.LT, A, 3), A, B - 9), Interval(-9, 7)),
        (call(ScalarFn.FLOORDIV, A, B), None),
        (call(ScalarFn.ABS, A - 3), None),
    ],
)
def test_intervals_of_other_forms(root, interval):
    assert interval_of(root, {}) == interval


def test_an_empty_axis_touches_nothing():
    empty = {A: Interval(3, 3)}
    for root in (A, A * 2 + B, A // 2, A % 3, call(ScalarFn.MIN, A, 3) + B):
        found = interval_of(root, empty)
        assert found is not None
        assert found.extent == 0


def test_an_index_that_reads_a_tensor_covers_its_dimension():
    table = TensorType(DType.INT64, (7,))
    found = load(0, table, (A,))
    assert interval_of(found, {}) is None
    assert index_box((found, B), (10, 20), {B: Interval(1, 3)}) == (Interval(0, 10), Interval(1, 3))
    assert depends_on_data(found + 1)
    assert not depends_on_data(A + 1)


def test_boxes_are_clipped_to_the_tensor():
    assert index_box((A - 2,), (4,), {}) == (Interval(0, 4),)
    assert box_size(index_box((A + 100,), (4,), {})) == 0


# --- Expressions of operators ----------------------------------------------------------------------------

F32 = DType.FLOAT32
PLACE = {"first": 4, "blocks": 2, "block": 4, "number": 1}
SCAN = {**PLACE, "fn": "sum", "axis": 1, "exclusive": True, "reverse": True}
POOL = {"kernel": (3, 2), "strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 1, 1), "out_shape": (4, 5)}
CONV = {"strides": (2, 1), "dilations": (1, 2), "pads": (1, 0, 2, 1), "group": 2}
OPERATORS = [
    ("Add", [(5, 1, 4), (3, 1)], {}),
    ("Reshape", [(4, 6, 5)], {"shape": (2, 12, 5)}),
    ("Reshape", [(4, 6)], {"shape": (3, 8)}),
    ("Transpose", [(3, 4, 5)], {"perm": (2, 0, 1)}),
    ("Slice", [(8, 9)], {"starts": (7, 1), "steps": (-2, 3), "sizes": (4, 3)}),
    ("Concat", [(2, 3), (4, 3), (1, 3)], {"axis": 0}),
    ("Pad", [(4, 5)], {"mode": "constant", "pads": (1, -1, 2, 3), "value": 1.0}),
    ("Pad", [(4, 5)], {"mode": "edge", "pads": (2, 0, 1, 3)}),
    ("Pad", [(4, 5)], {"mode": "reflect", "pads": (3, 1, 2, 4)}),
    ("Pad", [(4, 5)], {"mode": "wrap", "pads": (3, 1, 2, 9)}),
    ("Tile", [(3, 4)], {"repeats": (2, 3)}),
    ("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", [(1, 2, 4, 6)], {"blocksize": 2, "mode": "DCR"}),
    ("Trilu", [(4, 5)], {"upper": True, "k": 1}),
    ("ReduceSum", [(3, 4, 5)], {"axes": (1,), "keepdims": False}),
    ("BlockTotals", [(3, 40)], {"fn": "sum", "axis": 1, "block": 16}),
    ("BlockScan", [(3, 12), (3, 3)], SCAN),
    ("Softmax", [(4, 6)], {"axis": 0}),
    ("LRN", [(1, 6, 3)], {"size": 3, "alpha": 1.0, "beta": 0.5, "bias": 1.0}),
    ("GroupNormalization", [(2, 6, 3), (6,), (6,)], {"groups": 3, "epsilon": 1e-5}),
    ("MaxPool", [(1, 2, 7, 6)], POOL),
    ("AveragePool", [(1, 2, 7, 6)], {**POOL, "count_include_pad": False}),
    ("Conv", [(1, 4, 7, 6), (6, 2, 3, 2), (6,)], CONV),
    ("ConvTranspose", [(1, 4, 3, 4), (4, 3, 3, 2), (6,)], {**CONV, "output_padding": (1, 0)}),
    ("MatMul", [(2, 3, 4), (4, 5)], {}),
]


@pytest.mark.parametrize(("kind", "shapes", "attributes"), OPERATORS)
@given(data=st.data())
def test_a_tile_reads_and_writes_only_its_boxes(kind, shapes, attributes, data):
    """Elements outside the boxes are replaced by others, which must change nothing."""
    expr = expression(kind, [TensorType(F32, shape) for shape in shapes], **attributes)
    ranges = data.draw(axis_ranges(axes=expr.axes))
    random = np.random.default_rng(0)
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    changed = [np.full(shape, np.nan, np.float32) for shape in shapes]
    for array, other, box in zip(inputs, changed, read_boxes(expr, ranges), strict=True):
        if box is not None:
            window = tuple(slice(*interval) for interval in box)
            other[window] = array[window]
    before, after = evaluate_tile(expr, inputs, ranges), evaluate_tile(expr, changed, ranges)
    for (index, values), (_, other_values), box in zip(before, after, write_boxes(expr, ranges), strict=True):
        np.testing.assert_array_equal(values, other_values)
        for position, interval in zip(index, box, strict=True):
            assert (position.min(), position.max() + 1) == interval


def test_the_boxes_of_a_convolution_tile():
    expr = expression(
        "Conv",
        [TensorType(F32, (1, 8, 10, 10)), TensorType(F32, (16, 8, 3, 3))],
        strides=(1, 1),
        dilations=(1, 1),
        pads=(1, 1, 1, 1),
        group=1,
    )
    _, m, row, _ = expr.axes
    x, w = read_boxes(expr, {m: Interval(4, 8), row: Interval(0, 5)})
    assert x == (Interval(0, 1), Interval(0, 8), Interval(0, 6), Interval(0, 10))
    assert w == (Interval(4, 8), Interval(0, 8), Interval(0, 3), Interval(0, 3))


def test_a_slot_that_is_loaded_twice_has_the_hull():
    type_ = TensorType(F32, (12,))
    body = load(0, type_, (A,)) + load(0, type_, (A + 4,))
    expr = TensorExpr(axes=(A,), inputs=(type_,), outputs=(Output(type=type_, indices=(A,), body=body),))
    assert read_boxes(expr, {A: Interval(1, 3)}) == ((Interval(1, 7),),)


def test_a_slot_that_is_never_loaded_has_no_box():
    expr = expression("Concat", [TensorType(F32, (0, 3)), TensorType(F32, (2, 3))], axis=0)
    assert read_boxes(expr, {})[0] is None


# --- Reshaped boxes --------------------------------------------------------------------------------------


@st.composite
def reshapes(draw):
    """Two shapes of one size, and a box of the first."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))

    def grouped():
        cuts = sorted(draw(st.sets(st.integers(1, len(factors) - 1)))) if len(factors) > 1 else []
        return tuple(int(np.prod(factors[a:b])) for a, b in itertools.pairwise([0, *cuts, len(factors)]))

    source, target = grouped(), grouped()
    box = []
    for extent in source:
        lo = draw(st.integers(0, extent - 1))
        box.append(Interval(lo, draw(st.integers(lo + 1, extent))))
    return source, target, tuple(box)


@given(reshapes())
def test_a_reshaped_box_holds_the_same_elements(case):
    source, target, box = case
    numbers = np.arange(np.prod(source)).reshape(source)
    inside = set(numbers[tuple(slice(*interval) for interval in box)].reshape(-1))
    reshaped = reshape_box(box, source, target)
    assert inside <= set(numbers.reshape(target)[tuple(slice(*interval) for interval in reshaped)].reshape(-1))


@given(reshapes())
def test_groups_have_equal_products_and_cover_all_dimensions(case):
    source, target, _ = case
    groups = list(reshape_groups(source, target))
    assert [dim for group, _ in groups for dim in group] == list(range(len(source)))
    assert [dim for _, group in groups for dim in group] == list(range(len(target)))
    for left, right in groups:
        assert np.prod([source[d] for d in left]) == np.prod([target[d] for d in right])


def test_a_dimension_that_stays_keeps_its_interval():
    box = (Interval(1, 3), Interval(2, 4), Interval(0, 5))
    assert reshape_box(box, (4, 6, 5), (2, 2, 6, 5)) == (Interval(0, 2), Interval(0, 2), Interval(2, 4), Interval(0, 5))
    assert reshape_box((Interval(1, 1), Interval(0, 5)), (4, 5), (20,)) == (Interval(0, 0),)
