"""LSTM layers that are trained: what they give, and their gradients beside differences."""

import numpy as np
import pytest

from rammer.errors import InvalidModelError, UnsupportedFeatureError
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.types import DType, TensorType
from rammer.operators.builder import GraphBuilder
from rammer.passes import unroll
from tests.support.trained_layers import expected_runs, random_runs, trained_layers

STEPS, BATCH, WIDTH, UNITS = 4, 3, 5, 6
SHAPES = {
    "x": (STEPS, BATCH, WIDTH),
    "h": (BATCH, UNITS),
    "c": (BATCH, UNITS),
    "w": (4 * UNITS, WIDTH),
    "r": (4 * UNITS, UNITS),
    "wb": (4 * UNITS,),
    "rb": (4 * UNITS,),
}
OF_STATES = (STEPS, BATCH, UNITS)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, h, c, w, r, wb, rb, *, reverse):
    """States and gates of all steps, in the arrays' own precision."""
    found = {}
    for t in range(len(x))[::-1] if reverse else range(len(x)):
        i, f, g, o = np.split(x[t] @ w.T + wb + h @ r.T + rb, 4, axis=1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        c = f * c + i * g
        h = o * np.tanh(c)
        found[t] = h, c, np.hstack([i, f, g, o])
    return [np.stack([found[t][k] for t in sorted(found)]) for k in range(3)]


def operands():
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}


def built(attributes, *, has_cells):
    """A graph of forward and backward pass; behind the operands come the gradients by h, and by c."""
    builder = GraphBuilder("layer")
    values = {name: builder.input(name, TensorType(DType.FLOAT32, shape)) for name, shape in SHAPES.items()}
    h, c, gates = forward = builder.add("LSTMWithGates", list(values.values()), attributes, name="forward")
    by_states = [builder.input(name, TensorType(DType.FLOAT32, OF_STATES)) for name in ("by_h", "by_c")]
    kept = [gates, c, values["c"], values["w"], values["r"]]
    backward = builder.add(
        "LSTMGradient", [*kept, *by_states[: 1 + has_cells]], {**attributes, "has_cells": has_cells}, name="backward"
    )
    assert h == forward[0]
    return builder.build([*forward, *backward])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("has_cells", [False, True])
def test_gradients_are_differences(reverse, batched, has_cells):
    given, rng = operands(), np.random.default_rng(1)
    by_h, by_c = rng.standard_normal((2, *OF_STATES))
    graph = unroll.run(built({"reverse": reverse, "batched_inputs": batched}, has_cells=has_cells))
    inputs = [value.astype(np.float32) for value in (*given.values(), by_h, by_c)]
    *states, by_gates, by_x, by_first_h, by_first_c = evaluate_graph(graph, inputs)
    for found, wanted in zip(states, lstm(**given, reverse=reverse), strict=True):
        np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=1e-5, atol=1e-6)

    def loss(**changed):
        h, c, _ = lstm(**{**given, **changed}, reverse=reverse)
        return (h * by_h).sum() + has_cells * (c * by_c).sum()

    def differences(name):
        found = np.empty(given[name].shape)
        for place in np.ndindex(found.shape):
            nudged = [given[name].copy() for _ in range(2)]
            nudged[0][place] += 1e-6
            nudged[1][place] -= 1e-6
            found[place] = (loss(**{name: nudged[0]}) - loss(**{name: nudged[1]})) / 2e-6
        return found

    by_all_gates = np.asarray(by_gates, np.float64)
    for found, name in ((by_x, "x"), (by_first_h, "h"), (by_first_c, "c"), (by_all_gates.sum((0, 1)), "rb")):
        np.testing.assert_allclose(np.asarray(found, np.float64), differences(name), rtol=1e-3, atol=1e-4)


def test_what_is_learnt_comes_nearer_to_the_target():
    graph = trained_layers(steps=3)
    (inputs,) = random_runs(graph, 1)
    target = np.asarray(inputs[1], np.float64)
    *results, _ = expected_runs(graph, [inputs] * 20)
    errors = [float(np.square(np.asarray(result, np.float64) - target).sum()) for (result,) in results]
    assert errors[-1] < errors[0] / 2


@pytest.mark.parametrize("kind", ["LSTMWithGates", "LSTMGradient"])
def test_operands_that_do_not_fit(kind):
    builder = GraphBuilder("layer")
    values = [builder.input(name, TensorType(DType.FLOAT32, shape)) for name, shape in SHAPES.items()]
    with pytest.raises(InvalidModelError, match=kind):
        builder.add(kind, values[:6], {"reverse": False, "has_cells": False}, name="layer")
    with pytest.raises(InvalidModelError, match=kind):
        builder.add(kind, [*values[:6], values[0]], {"reverse": False, "has_cells": True}, name="layer")


def test_very_many_steps_are_refused():
    with pytest.raises(UnsupportedFeatureError, match=r"8193 steps .*\n.*\n.*parts of the sequence"):
        unroll.run(trained_layers(layers=1, steps=(1 << 13) + 1, units=1))
