"""What only one outcome of a condition needs has a predicate, whatever other passes make of it."""

import numpy as np
import pytest

from rammer.devices.reference.device import describe
from rammer.ir.expr import Axis, Output, ScalarFn, TensorExpr, call, load, select
from rammer.ir.types import DType, TensorType
from rammer.operators.builder import GraphBuilder
from rammer.passes import fuse, merge_products, predicate
from rammer.passes.helpers.scopes import EVERYWHERE, Bool, _uses, find_scopes
from rammer.verify import graph as verify_graph
from rammer.verify.predicates import _looked_at

F32 = DType.FLOAT32
X, BOOL = TensorType(F32, (4, 4)), TensorType(DType.BOOL, ())


class Net:
    """A graph of operators on float32[4, 4] and bools."""

    def __init__(self):
        self.builder = GraphBuilder("net")
        self.x, self.c, self.d = (self.builder.input(n, t) for n, t in (("x", X), ("c", BOOL), ("d", BOOL)))

    def add(self, kind, *inputs, **attributes):
        (result,) = self.builder.add(kind, inputs, attributes, name=f"{kind}{len(self.builder._operators)}")
        return result

    def build(self, *outputs):
        return self.builder.build(outputs)


def predicates(graph):
    """The graph after the pass, and what guards each operator, by name."""
    after = predicate.run(graph)
    verify_graph.verify(after)
    names = {value: after.values[value].name for value in after.values}
    return after, {
        op.name: None if op.predicate is None else names[op.predicate]
        for op in after.operators
        if op.kind != "Predicate"
    }


def test_sides_of_a_choice():
    net = Net()
    a, b = net.add("MatMul", net.x, net.x), net.add("Exp", net.x)
    after, found = predicates(net.build(net.add("Branch", net.c, a, b)))
    assert found == {"MatMul0": "c", "Exp1": "c.else", "Branch2": None}
    assert [op.name for op in after.operators if op.kind == "Predicate"] == ["c.else"]


def test_choices_in_choices_join_their_conditions():
    net = Net()
    a, b, e = net.add("Exp", net.x), net.add("Abs", net.x), net.add("Neg", net.x)
    inner = net.add("Branch", net.d, a, b)
    _, found = predicates(net.build(net.add("Branch", net.c, e, inner)))
    assert found == {"Exp0": "d.then", "Abs1": "d.else", "Neg2": "c", "Branch3": "c.else", "Branch4": None}


def test_conditions_that_are_joined_already_count_as_both():
    net = Net()
    false = net.builder.constant(np.array(False), "false")
    both = net.add("Branch", net.c, net.d, false)
    a, b = net.add("Exp", net.x), net.add("Abs", net.x)
    inner = net.add("Branch", net.c, net.add("Branch", net.d, a, net.x), net.x)
    outer = net.add("Branch", both, a, b)
    _, found = predicates(net.build(inner, outer))
    assert found["Exp1"] == "d.then"
    assert found["Abs2"] == "Branch0.else"


@pytest.mark.parametrize("how", ["output", "other side", "condition", "arithmetic"])
def test_what_is_needed_elsewhere_has_none(how):
    net = Net()
    a = net.add("Exp", net.x)
    b = a if how == "other side" else net.x
    condition = net.c
    if how == "condition":
        total = net.add("ReduceSum", a, axes=(0, 1), keepdims=False)
        condition = net.add("IsNaN", total)
    chosen = net.add("Branch", condition, net.add("Neg", a), net.add("Abs", b))
    outputs = [chosen, a] if how == "output" else [chosen]
    if how == "arithmetic":
        outputs = [net.add("Add", chosen, a)]
    _, found = predicates(net.build(*outputs))
    assert found["Exp0"] is None


def test_only_what_a_choice_takes_as_it_is_counts_as_chosen():
    i = Axis("i", 4)
    vector, places = TensorType(F32, (4,)), TensorType(DType.INT64, (4,))
    plain, negated, index = load(0, vector, (i,)), load(1, vector, (i,)), load(2, places, (i,))
    condition = load(3, BOOL, ())
    body = call(ScalarFn.BRANCH, condition, plain, call(ScalarFn.NEG, negated))
    by_place = select(call(ScalarFn.LT, i, 2), load(4, vector, (index,)), load(5, vector, (i,)))
    body = call(ScalarFn.ADD, body, call(ScalarFn.BRANCH, condition, by_place, plain))
    expr = TensorExpr(
        axes=(i,),
        inputs=(vector, vector, places, BOOL, vector, vector),
        outputs=(Output(type=vector, indices=(i,), body=body),),
    )
    uses = [(slot, sides) for slot, sides in _uses(expr) if slot != 3]
    c = Bool(3, ())
    chosen = {(slot, ((c, holds),)) for slot, holds in ((0, True), (0, False), (4, True), (5, True))}
    assert set(uses) == {*chosen, (1, ()), (2, ())}
    assert set(_looked_at(expr)) == {
        *((slot, ((3, holds),)) for slot, ((_, holds),) in chosen),
        *((slot, ()) for slot in (1, 2, 3)),
    }


def test_operators_of_different_branches_do_not_fuse():
    net = Net()
    product = net.add("MatMul", net.x, net.x)
    after_product = net.add("Relu", product)
    condition = net.add("IsNaN", net.add("ReduceSum", net.x, axes=(0, 1), keepdims=False))
    chosen = net.add("Branch", condition, after_product, net.add("Exp", net.x))
    graph = fuse.run(net.build(net.add("Neg", chosen)))
    assert [op.kind for op in graph.operators] == ["MatMul+Relu", "ReduceSum+IsNaN", "Exp", "Branch+Neg"]
    _, found = predicates(graph)
    assert [found[op.name] is None for op in graph.operators] == [False, True, False, True]


def test_elementwise_work_of_different_branches_stays_apart():
    net = Net()
    a, b = net.add("Exp", net.x), net.add("Abs", net.x)
    graph = fuse.run(net.build(net.add("Branch", net.c, a, b)))
    assert [op.kind for op in graph.operators] == ["Exp", "Abs", "Branch"]


@pytest.mark.parametrize("apart", [True, False])
def test_products_of_different_branches_are_not_merged(apart):
    net = Net()
    weights = [net.builder.constant(np.full((4, 4), n, np.float32), f"w{n}") for n in range(2)]
    a, b = (net.add("ReduceSum", net.add("MatMul", net.x, w), axes=(0,), keepdims=False) for w in weights)
    y = net.add("Branch", net.c, a, b) if apart else net.add("Concat", a, b, axis=0)
    merged = merge_products.run(net.build(y), describe(2))
    assert sum(op.kind == "MatMul" for op in merged.operators) == (2 if apart else 1)


@pytest.mark.parametrize("by_one", [True, False])
def test_what_a_model_chooses_by_itself_is_no_branch(by_one):
    """`Where` fuses with both of its sides, as in attention whose mask has one row."""
    net = Net()
    condition = net.c if by_one else net.add("Greater", net.x, net.x)
    graph = net.build(net.add("Where", condition, net.x, net.add("Exp", net.x)))
    scopes = find_scopes(graph)
    assert not scopes.narrow
    assert scopes.of(graph.outputs[0]) is EVERYWHERE
    assert len(fuse.run(graph).operators) == 1
