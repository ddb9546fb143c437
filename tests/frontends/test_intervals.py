"""What is known of integers that a model computes: where they lie, which scalars they are, which are equal."""

import numpy as np
import pytest

from rammer.frontends.builder import FoldingBuilder
from rammer.frontends.intervals import ANYTHING, Interval, interval_of, range_of, settled
from rammer.ir.graph import SourceLocation
from rammer.ir.types import DType, TensorType

HERE = SourceLocation(model="test", node="node", op_type="Add")
NATURAL = Interval(0, 9)


@pytest.mark.parametrize(
    ("kind", "others", "expected"),
    [
        ("Add", [Interval(1, 2)], Interval(1, 11)),
        ("Sub", [Interval(1, 2)], Interval(-2, 8)),
        ("Mul", [Interval(2, 3)], Interval(0, 27)),
        ("Mul", [Interval(-1, 3)], ANYTHING),
        ("Div", [Interval(2, 4)], Interval(0, 4)),
        ("Div", [Interval(0, 4)], ANYTHING),
        ("Min", [Interval(3, 4)], Interval(0, 4)),
        ("Min", [ANYTHING], Interval(ANYTHING.least, 9)),
        ("Max", [Interval(3, 4)], Interval(3, 9)),
        ("Concat", [Interval(-3, 4)], Interval(-3, 9)),
        ("Where", [Interval(2, 3), Interval(5, 6)], Interval(2, 6)),
        ("Reshape", [], NATURAL),
        ("Neg", [], Interval(-9, 0)),
        ("Add", [ANYTHING], ANYTHING),
        ("Exp", [], ANYTHING),
    ],
)
def test_where_results_lie(kind, others, expected):
    assert interval_of(kind, [NATURAL, *others], DType.INT64) == expected


def test_what_may_wrap_around_may_be_anything():
    assert interval_of("Add", [Interval(0, 200), Interval(0, 100)], DType.UINT8) == ANYTHING
    assert interval_of("Sub", [NATURAL, Interval(1, 1)], DType.UINT8) == ANYTHING
    assert interval_of("Cast", [Interval(0, 200)], DType.INT8) == ANYTHING
    assert interval_of("Cast", [Interval(0)], DType.INT8) == ANYTHING
    assert interval_of("Neg", [Interval(0)], DType.INT64) == ANYTHING
    assert interval_of("Reshape", [NATURAL], DType.FLOAT32) == ANYTHING
    assert range_of(DType.INT8) == Interval(-128, 127)


@pytest.mark.parametrize(
    ("kind", "other", "expected"),
    [
        ("Add", Interval(0, 0), 0),
        ("Sub", Interval(0, 0), 0),
        ("Mul", Interval(1, 1), 0),
        ("Div", Interval(1, 1), 0),
        ("Max", Interval(-5, 0), 0),
        ("Max", Interval(9, 20), 1),
        ("Max", Interval(3, 20), None),
        ("Min", Interval(9, 20), 0),
        ("Equal", Interval(-1, -1), False),
        ("Equal", Interval(9, 9), None),
        ("Less", Interval(10, 12), True),
        ("Less", Interval(-4, 0), False),
        ("Less", Interval(9, 9), None),
        ("Mod", Interval(1, 1), None),
    ],
)
def test_what_need_not_be_computed(kind, other, expected):
    found = settled(kind, [NATURAL, other])
    assert found == expected
    assert type(found) is type(expected)


class Growing:
    """A graph of one integer, `n`, and what is computed from it."""

    def __init__(self):
        self.builder = FoldingBuilder("test")
        self.n = self.builder.input("n", TensorType(DType.INT64, ()))
        self.builder.bound(self.n, 0, 9)

    def add(self, kind, *operands, **attributes):
        given = [self.builder.constant(np.array(x), "c") if isinstance(x, int | list) else x for x in operands]
        return self.builder.add(kind, given, attributes, name="node", source=HERE)[0]

    def shape(self):
        return self.add("Concat", self.add("Reshape", self.n, shape=(1,)), [4, 5], axis=0)

    def elements(self, operand):
        found = self.builder.elements(operand, name="node", source=HERE)
        return None if found is None else [one if one.array is None else int(one.array) for one in found]


def test_the_scalars_of_a_shape():
    graph = Growing()
    shape = graph.shape()
    assert graph.elements(shape) == [graph.n, 4, 5]
    assert graph.add("Gather", shape, 0, axis=0) is graph.n
    assert graph.add("Gather", shape, [1, 2], axis=0).array.tolist() == [4, 5]
    assert graph.elements(graph.add("Slice", shape, starts=(0,), steps=(2,), sizes=(2,))) == [graph.n, 5]
    assert graph.builder.most(shape) == 9
    assert graph.builder.most(graph.add("ReduceMin", shape, axes=(0,), keepdims=True)) == 4
    assert graph.builder.most(graph.add("ReduceProd", shape, axes=(0,), keepdims=False)) == 180


def test_shapes_are_computed_element_by_element():
    graph = Growing()
    shape = graph.shape()
    doubled = graph.add("Mul", shape, [1, 2, 1])
    assert graph.elements(doubled) == [graph.n, 8, 5]
    missing = graph.add("Equal", shape, [-1, -1, -1])
    assert missing.array.tolist() == [False, False, False]
    assert graph.elements(graph.add("Where", missing, [1, 1, 1], shape)) == [graph.n, 4, 5]


def test_a_cast_knows_both_ends_where_one_is_known():
    graph = Growing()
    narrow = graph.builder.input("narrow", TensorType(DType.INT32, ()))
    few = graph.add("Min", narrow, graph.builder.constant(np.array(5, np.int32), "five"))
    assert graph.builder.interval(graph.add("Cast", few, to=DType.INT64)) == Interval(-(1 << 31), 5)
    assert graph.builder.interval(graph.add("Cast", few, to=DType.INT8)) == ANYTHING
    assert graph.builder.interval(graph.add("Cast", narrow, to=DType.INT64)) == ANYTHING


def test_of_other_values_no_scalars_are_known():
    graph = Growing()
    many = graph.builder.input("many", TensorType(DType.INT64, (3,)))
    assert graph.elements(many) is None
    assert graph.elements(graph.add("Concat", many, [1], axis=0)) is None
    assert graph.builder.most(graph.add("ReduceMin", many, axes=(0,), keepdims=False)) is None


def test_equal_values_are_those_that_are_computed_alike():
    graph = Growing()
    a, b = (graph.add("Mul", graph.n, 3) for _ in range(2))
    assert a is not b
    assert graph.builder.are_equal(a, b)
    assert not graph.builder.are_equal(a, graph.add("Mul", graph.n, 4))
    assert graph.add("Min", a, b) is a
    graph.builder.bound(b, 0, 5)
    assert graph.builder.most(a) == 5
