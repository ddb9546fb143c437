"""Every rule of the graph's verifier has a graph that breaks it."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.errors import VerificationError
from rammer.frontends.onnx import load_graph
from rammer.ir.expr import (
    Axis,
    Call,
    Const,
    Expr,
    Load,
    Output,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    call,
    cast,
    const,
    load,
    select,
)
from rammer.ir.graph import Graph, Operator, SourceLocation, State, Value
from rammer.ir.types import DType, Layout, Panel, TensorType
from rammer.verify import graph as verifier
from rammer.verify.graph import verify
from tests.support.passes import Net
from tests.support.random_graphs import random_model

F32, F16, I64 = DType.FLOAT32, DType.FLOAT16, DType.INT64
MATRIX = TensorType(F32, (2, 3))
P, Q = Axis("i", 2), Axis("j", 3)
PLACE = SourceLocation(model="m.onnx", node="culprit", op_type="Relu")


def valid():
    """x -> Add(x, c) -> Relu."""
    net = Net()
    return net.build(net.add("Relu", net.add("Add", net.input(2, 3), net.weight(2, 3))))


def single(expr):
    """A graph of one operator with an expression."""
    types = (*expr.inputs, *(output.type for output in expr.outputs))
    values = {i: Value(id=i, name=f"v{i}", type=type_) for i, type_ in enumerate(types)}
    inputs = tuple(range(len(expr.inputs)))
    outputs = tuple(range(len(expr.inputs), len(types)))
    operator = Operator(kind="Odd", name="odd", inputs=inputs, outputs=outputs, expr=expr, sources=(PLACE,))
    return Graph(name="g", values=values, operators=(operator,), inputs=inputs, outputs=outputs, constants={})


def expression(body, *, axes=(P, Q), indices=None, inputs=(MATRIX,), type_=MATRIX):
    output = Output(type=type_, indices=axes if indices is None else indices, body=body)
    return TensorExpr(axes=axes, inputs=inputs, outputs=(output,))


X = load(0, MATRIX, (P, Q))


def with_value(value, **changes):
    graph = valid()
    return replace(graph, values={**graph.values, value: replace(graph.values[value], **changes)})


def with_operator(position, **changes):
    graph = valid()
    operators = list(graph.operators)
    operators[position] = replace(operators[position], **changes)
    return replace(graph, operators=tuple(operators))


def with_states(*names, shape=(2, 3), dtype=np.float32):
    return replace(valid(), states=tuple(State(name=name, initial=np.zeros(shape, dtype)) for name in names))


def twin_states():
    net = Net()
    first, second = net.input(2, 3), net.input(2, 3)
    graph = net.build(net.add("Relu", first), net.add("Abs", second))
    return replace(graph, states=(State(name="a", initial=np.zeros((2, 3), np.float32)),) * 2)


def with_expression(position, expr):
    return with_operator(position, expr=expr)


def swapped():
    graph = valid()
    return replace(graph, operators=graph.operators[::-1])


def gap():
    graph = valid()
    return replace(graph, values={**graph.values, 9: Value(id=9, name="far", type=MATRIX)})


def orphan():
    graph = valid()
    return replace(graph, values={**graph.values, 4: Value(id=4, name="orphan", type=MATRIX)})


def laid_out(**layout):
    return with_value(1, layout=Layout(**layout))


def half_sum():
    half = TensorType(F16, (2, 3))
    raw = Load(0, (P, Q), F16)
    return single(expression(Call(ScalarFn.ADD, (raw, raw)), inputs=(half,), type_=half))


def nested(outer, inner):
    body = Reduce(ReduceFn.SUM, (inner,), load(0, MATRIX, (P, inner)))
    return Reduce(ReduceFn.SUM, (outer,), body * load(0, MATRIX, (P, outer)))


OWN = Axis("own", 1)


def updated(*, late=False, beside=False, read: Expr | None = OWN, turn=2):
    """past[position] = x for rows of 3, and past + 1, which is read before."""
    zero, position = const(0, I64), load(2, TensorType(I64, (1,)), (0,))
    place = call(ScalarFn.MOD, position, turn)
    row, kept = load(0, TensorType(F32, (1, 3)), (zero, Q)), place if read is OWN else read
    body = row if kept is None else select(call(ScalarFn.EQ, place, position), row, load(1, MATRIX, (kept, Q)))
    stored = Output(type=MATRIX, indices=(place, Q), body=body)
    types = (TensorType(F32, (1, 3)), MATRIX, TensorType(I64, (1,)), *(MATRIX,) * 3)
    expr = TensorExpr(axes=(Q,), inputs=types[:3], outputs=(stored,) * (1 + beside))
    update = Operator(kind="Update", name="update", inputs=(0, 1, 2), outputs=(4, 5)[: 1 + beside], expr=expr)
    more = Operator(kind="Add", name="more", inputs=(1,), outputs=(3,), expr=expression(X + 1.0))
    return Graph(
        name="g",
        values={i: Value(id=i, name=f"v{i}", type=type_) for i, type_ in enumerate(types[: 5 + beside])},
        operators=(update, more) if late else (more, update),
        inputs=(0, 2, 1),
        outputs=(*(3, 5)[: 1 + beside], 4),
        constants={},
        states=(State(name="past", initial=np.zeros((2, 3), np.float32), in_place=True),),
    )


FLAT = TensorType(F32, (6,))
EMPTY = TensorExpr(axes=(P, Q), inputs=(MATRIX,), outputs=())
R = Axis("r", 3)

BROKEN = {
    "an id that is not its number": ("G01", lambda: with_value(2, id=7)),
    "a gap in the ids": ("G01", gap),
    "an operand that is no value": ("G01", lambda: with_operator(1, inputs=(8,))),
    "an output that is no value": ("G01", lambda: replace(valid(), outputs=(8,))),
    "a value made twice": ("G02", lambda: with_operator(1, outputs=(2,))),
    "an input that is a constant": ("G02", lambda: replace(valid(), inputs=(0, 1))),
    "a value from nowhere": ("G02", orphan),
    "a value read before it is made": ("G03", swapped),
    "an output that is an input": ("G04", lambda: replace(valid(), outputs=(0,))),
    "an output listed twice": ("G04", lambda: replace(valid(), outputs=(3, 3))),
    "a constant of another shape": ("G05", lambda: replace(valid(), constants={1: np.zeros((3, 2), np.float32)})),
    "a constant of another type": ("G05", lambda: replace(valid(), constants={1: np.zeros((2, 3))})),
    "an operand of another type": (
        "G06",
        lambda: with_expression(1, expression(load(0, FLAT, (P * 3 + Q,)), inputs=(FLAT,))),
    ),
    "more slots than operands": ("G06", lambda: with_operator(0, inputs=(0,))),
    "a result of another type": (
        "G06",
        lambda: with_expression(1, expression(X, indices=(P * 3 + Q,), type_=FLAT)),
    ),
    "no result": ("G06", lambda: with_operator(1, expr=EMPTY)),
    "an axis that nothing binds": ("G07", lambda: single(expression(load(0, MATRIX, (P, R))))),
    "an axis of a reduction used outside of it": (
        "G07",
        lambda: single(expression(Reduce(ReduceFn.SUM, (R,), load(0, MATRIX, (P, R))) + load(0, MATRIX, (P, R)))),
    ),
    "an axis twice in the domain": ("G07", lambda: single(expression(X, axes=(P, Q, Q), indices=(P, Q)))),
    "a reduction over the domain": ("G07", lambda: single(expression(Reduce(ReduceFn.SUM, (Q,), X)))),
    "a reduction within one of the same name": ("G07", lambda: single(expression(nested(R, R)))),
    "a reduction over nothing": ("G07", lambda: single(expression(Reduce(ReduceFn.SUM, (), X)))),
    "operands of two types": (
        "G08",
        lambda: single(
            expression(Call(ScalarFn.ADD, (X, Const(1, DType.INT32))), type_=TensorType(DType.INT32, (2, 3)))
        ),
    ),
    "a condition that is no truth value": ("G08", lambda: single(expression(Call(ScalarFn.SELECT, (X, X, X))))),
    "arithmetic on 16-bit floats": ("G08", half_sum),
    "an index that is no int64": (
        "G08",
        lambda: single(expression(Load(0, (cast(DType.INT32, P), Q), F32))),
    ),
    "a fill of another type": ("G08", lambda: single(expression(Load(0, (P, Q), F32, const(0, I64))))),
    "a result that is stored as another type": ("G08", lambda: single(expression(cast(I64, X)))),
    "a slot that is not there": ("G09", lambda: single(expression(Load(1, (P, Q), F32)))),
    "too few indices": ("G09", lambda: single(expression(Load(0, (P,), F32)))),
    "a load of another type": ("G09", lambda: single(expression(cast(F32, Load(0, (P, Q), I64))))),
    "a load out of bounds": ("G09", lambda: single(expression(load(0, MATRIX, (P, Q + 1))))),
    "a negative position": ("G09", lambda: single(expression(load(0, MATRIX, (P - 1, Q))))),
    "a quotient out of bounds": ("G09", lambda: single(expression(load(0, MATRIX, (P, (Q + 2) // 1 % 4))))),
    "elements stored twice": ("G10", lambda: single(expression(X, indices=(P, const(0, I64))))),
    "elements never stored": ("G10", lambda: single(expression(X, type_=TensorType(F32, (2, 4))))),
    "a store out of bounds": ("G10", lambda: single(expression(X, indices=(P, Q + 1)))),
    "a store that overlaps itself": ("G10", lambda: single(expression(X, indices=(P * 2 + Q,), type_=FLAT))),
    "a store of another rank": ("G10", lambda: single(expression(X, indices=(P,)))),
    "a layout of another rank": ("G11", lambda: laid_out(strides=(1,), span=6)),
    "a layout that overlaps": ("G11", lambda: laid_out(strides=(2, 1), span=6)),
    "a layout beyond its span": ("G11", lambda: laid_out(strides=(3, 1), span=5)),
    "a panel of no dimension": (
        "G11",
        lambda: laid_out(strides=(3, 1), span=6, panel=Panel(dim=2, width=2, stride=2)),
    ),
    "more states than outputs": ("G12", lambda: with_states("a", "b")),
    "two states of one name": ("G12", twin_states),
    "a state of another shape": ("G12", lambda: with_states("a", shape=(3, 2))),
    "a state of another element type": ("G12", lambda: with_states("a", dtype=np.float16)),
    "a predicate that is no bool": ("G13", lambda: with_operator(1, predicate=0)),
    "a state in place that is read later": ("G14", lambda: updated(late=True)),
    "a state in place that is written with others": ("G14", lambda: updated(beside=True)),
    "a state in place of which other elements are read": ("G14", lambda: updated(read=const(0, I64))),
    "a state in place that is written out of bounds": ("G14", lambda: updated(turn=3)),
    "a state in place at a place that is not computed": ("G14", lambda: updated(read=None)),
    "panels that overlap": ("G11", lambda: laid_out(strides=(2, 1), span=8, panel=Panel(dim=1, width=2, stride=3))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_graph_is_rejected(name):
    code, build = BROKEN[name]
    graph = build()
    with pytest.raises(VerificationError) as caught:
        verify(graph)
    assert caught.value.code == code


def test_a_state_in_place_is_accepted():
    verify(updated())


def test_every_rule_has_a_broken_graph_and_a_line_in_the_table():
    codes = {line.split("|")[1].strip() for line in (verifier.__doc__ or "").splitlines() if line.startswith("| G")}
    assert codes == {code for code, _ in BROKEN.values()}
    assert codes == {f"G{number:02}" for number in range(1, len(codes) + 1)}


def test_the_error_names_the_operator_and_the_place_in_the_model():
    with pytest.raises(VerificationError, match=r"operator 'odd' \(Odd\) has a load") as caught:
        verify(single(expression(load(0, MATRIX, (P, Q + 1)))))
    assert caught.value.where == str(PLACE)


SOUND = {
    "a store of another order": expression(X, indices=(Q, P), type_=TensorType(F32, (3, 2))),
    "a flat store": expression(X, indices=(P * 3 + Q,), type_=FLAT),
    "a store backwards": expression(X, indices=(P, const(2, I64) - Q)),
    "a store by quotients": expression(
        load(0, FLAT, (Axis("k", 6),)),
        axes=(Axis("k", 6),),
        indices=(Axis("k", 6) // 3, Axis("k", 6) % 3),
        inputs=(FLAT,),
    ),
    "a padded load": expression(load(0, MATRIX, (P, Q - 1), fill=0)),
    "a gather": expression(
        load(1, FLAT, (load(0, TensorType(I64, (2, 3)), (P, Q)),)), inputs=(TensorType(I64, (2, 3)), FLAT)
    ),
    "an empty domain": expression(
        load(0, TensorType(F32, (0,)), (Axis("e", 0),)),
        axes=(Axis("e", 0),),
        inputs=(TensorType(F32, (0,)),),
        type_=TensorType(F32, (0,)),
    ),
    "reductions side by side over one axis": expression(
        Reduce(ReduceFn.SUM, (R,), load(0, MATRIX, (P, R))) + Reduce(ReduceFn.MAX, (R,), load(0, MATRIX, (P, R))),
        axes=(P,),
        type_=TensorType(F32, (2,)),
    ),
    "reductions within others": expression(nested(R, Axis("s", 3)), axes=(P,), type_=TensorType(F32, (2,))),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_expression_is_accepted(name):
    verify(single(SOUND[name]))


def test_states_are_accepted():
    verify(with_states("a"))


def test_composite_operators_are_accepted():
    verify(with_operator(1, expr=None))


def test_layouts_with_panels_are_accepted():
    verify(with_value(1, layout=Layout.panelled((2, 3), (0,), dim=1, width=2)))


@pytest.mark.parametrize("seed", range(5))
def test_imported_models_are_accepted(seed):
    verify(load_graph(random_model(seed)[0]))


def test_an_expression_is_proved_once_however_many_there_are(monkeypatch):
    """A graph of thousands is proved after every pass, and hardly any of them changes."""
    extents = range(1, 6000)
    exprs = [
        expression(load(0, type_, (axis,)), axes=(axis,), inputs=(type_,), type_=type_)
        for axis, type_ in ((Axis("i", extent), TensorType(F32, (extent,))) for extent in extents)
    ]
    proofs = []
    prove = verifier._axes_fault

    def counted(expr, indices):
        proofs.append(expr)
        return prove(expr, indices)

    monkeypatch.setattr(verifier, "_axes_fault", counted)
    for _ in range(3):
        for expr in exprs:
            verify(single(expr))
    assert len(proofs) == len(exprs)


def test_an_expression_with_a_fault_has_it_each_time():
    expr = expression(Const(1, I64))
    for _ in range(2):
        with pytest.raises(VerificationError, match="G08"):
            verify(single(expr))
