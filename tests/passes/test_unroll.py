"""Composite operators give way to their expansion."""

import numpy as np
import pytest

from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import Attributes, Graph, Operator, SourceLocation, Value
from rammer.ir.types import DType, TensorType
from rammer.operators.builder import GraphBuilder
from rammer.passes import unroll
from tests.support.onnx_node import run_node

PLACE = SourceLocation(model="m.onnx", node="rnn", op_type="RNN")
ATTRIBUTES: Attributes = {
    "direction": "forward",
    "layout": 0,
    "activations": (),
    "activation_alpha": (),
    "activation_beta": (),
}


def normal(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).standard_normal(shape), dtype=np.float32)


def layers(count, steps=4, batch=2, width=5):
    """A stack of RNN layers with constant weights between two Relus; outputs the last state and the sequence."""
    builder = GraphBuilder("stack")
    x = builder.input("x", TensorType(DType.FLOAT32, (steps, batch, width)))
    (value,) = builder.add("Relu", [x], name="first")
    state = value
    for layer in range(count):
        shapes = [(1, width, width), (1, width, width), (1, 2 * width), (1, batch, width)]
        weights = [
            builder.constant(normal(*shape, seed=10 * layer + i), f"c{layer}.{i}") for i, shape in enumerate(shapes)
        ]
        y, state = builder.add("RNN", [value, *weights], ATTRIBUTES, name=f"rnn{layer}", sources=[PLACE])
        (value,) = builder.add("Reshape", [y], {"shape": (steps, batch, width)}, name=f"squeeze{layer}")
    (value,) = builder.add("Relu", [value], name="last")
    builder.rename(state, "final")
    return builder.build([state, value])


def test_a_stack_of_layers_computes_what_it_did():
    graph, x = layers(2), normal(4, 2, 5, seed=99)
    state, result = evaluate_graph(unroll.run(graph), [x])

    sequence = np.maximum(x, 0)
    final = sequence
    for layer in range(2):
        w, r, b, initial = (graph.constants[i] for i in graph.operators[1 + 2 * layer].inputs[1:])
        y, final = run_node("RNN", [sequence, w, r, b, None, initial], 2, {"hidden_size": 5})
        sequence = y[:, 0]
    np.testing.assert_allclose(np.asarray(state, np.float32), final, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(result, np.float32), np.maximum(sequence, 0), rtol=1e-5, atol=1e-6)


def test_every_operator_has_an_expression_afterwards():
    graph = unroll.run(layers(2))
    assert all(operator.expr is not None for operator in graph.operators)
    assert [operator.kind for operator in graph.operators].count("RNNCell") == 2 * 4


def test_the_interface_and_the_other_operators_stay():
    before = layers(1)
    after = unroll.run(before)
    for side in ("inputs", "outputs"):
        old, new = getattr(before, side), getattr(after, side)
        assert [before.values[i].type for i in old] == [after.values[i].type for i in new]
    assert after.values[after.inputs[0]].name == "x"
    assert after.values[after.outputs[0]].name == "final"
    relus = [(operator.kind, operator.name) for operator in after.operators if operator.kind == "Relu"]
    assert relus == [("Relu", "first"), ("Relu", "last")]


def test_what_a_layer_was_made_of_has_its_place_in_the_model():
    graph = unroll.run(layers(1))
    placed = {operator.name for operator in graph.operators if operator.sources == (PLACE,)}
    assert {"rnn0.d0.t0", "rnn0.d0.t3", "rnn0.y"} <= placed
    assert not placed & {"first", "last", "squeeze0"}


def test_values_are_made_before_they_are_read_and_ids_are_dense():
    graph = unroll.run(layers(3))
    assert sorted(graph.values) == list(range(len(graph.values)))
    known = {*graph.inputs, *graph.constants}
    for operator in graph.operators:
        assert set(operator.inputs) <= known
        assert not set(operator.outputs) & known
        known.update(operator.outputs)
    assert set(graph.outputs) <= known


def test_a_graph_without_composites_stays_as_it_is():
    graph = unroll.run(layers(1))
    assert str(unroll.run(graph)) == str(graph)


def test_an_empty_sequence_leaves_a_constant():
    state, result = evaluate_graph(unroll.run(layers(1, steps=0)), [normal(0, 2, 5)])
    assert state.shape == (1, 2, 5)
    assert result.shape == (0, 2, 5)


def test_an_operator_without_expression_or_expansion_is_a_defect():
    type_ = TensorType(DType.FLOAT32, (2,))
    values = {i: Value(id=i, name=f"v{i}", type=type_) for i in range(2)}
    operator = Operator(kind="Relu", name="odd", inputs=(0,), outputs=(1,), expr=None)
    graph = Graph(name="g", values=values, operators=(operator,), inputs=(0,), outputs=(1,), constants={})
    with pytest.raises(ValueError, match="'odd'"):
        unroll.run(graph)
