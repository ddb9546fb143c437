"""Recurrent layers whose weights cannot stay near multiply all inputs at once; the results stay."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import Figure, MemoryLevel
from rammer.operators.builder import GraphBuilder
from rammer.passes import batch_inputs, unroll
from tests.support.taskgraphs import device

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
FLAGS: dict[str, Attributes] = {"LSTM": {"input_forget": False}, "GRU": {"linear_before_reset": False}, "RNN": {}}


def with_private_bytes(capacity_bytes):
    level = MemoryLevel(
        name="private",
        capacity_bytes=capacity_bytes,
        bandwidth_bytes_per_us=Figure(1e5, "made up"),
        transaction_bytes=64,
        shared=False,
    )
    return replace(device(2), levels=(level,))


def layer(kind, *, direction="forward", layout=0, steps=4, linear=False):
    """One layer of 3 units on 5 inputs, batch 2, with random weights."""
    random = np.random.default_rng(0)
    directions, gates = 1 + (direction == "bidirectional"), GATES[kind]
    builder = GraphBuilder(kind)
    x = builder.input("x", TensorType(DType.FLOAT32, (2, steps, 5) if layout else (steps, 2, 5)))
    state = (2, directions, 3) if layout else (directions, 2, 3)
    shapes = [(directions, 3 * gates, 5), (directions, 3 * gates, 3), (directions, 6 * gates), state]
    shapes += [state] * (kind == "LSTM")
    weights = [builder.constant(random.standard_normal(s).astype(np.float32), f"c{i}") for i, s in enumerate(shapes)]
    attributes: Attributes = {
        "direction": direction,
        "layout": layout,
        "activations": (),
        "activation_alpha": (),
        "activation_beta": (),
        **FLAGS[kind],
    }
    if kind == "GRU":
        attributes = {**attributes, "linear_before_reset": linear}
    return builder.build(builder.add(kind, [x, *weights], attributes, name="layer"))


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("linear", [False, True])
def test_results_stay(kind, direction, layout, linear):
    graph = layer(kind, direction=direction, layout=layout, linear=linear)
    x = np.random.default_rng(1).standard_normal(graph.values[graph.inputs[0]].type.shape).astype(np.float32)
    batched = unroll.run(batch_inputs.run(graph, with_private_bytes(8)))
    assert sum(operator.kind == "MatMul" for operator in batched.operators) == 1 + (direction == "bidirectional")
    for found, expected in zip(evaluate_graph(batched, [x]), evaluate_graph(unroll.run(graph), [x]), strict=True):
        np.testing.assert_allclose(
            np.asarray(found, np.float32), np.asarray(expected, np.float32), rtol=1e-5, atol=1e-6
        )


def test_layers_whose_weights_fit_stay_a_wavefront():
    graph = layer("LSTM")
    weight_bytes = 4 * (4 * 3 * 5 + 4 * 3 * 3)
    assert batch_inputs.run(graph, with_private_bytes(weight_bytes // 2)) is graph
    assert batch_inputs.run(graph, with_private_bytes(weight_bytes // 2 - 1)) is not graph


def test_a_single_step_has_nothing_to_batch():
    graph = batch_inputs.run(layer("GRU", steps=1), with_private_bytes(8))
    assert "batched_inputs" not in graph.operators[0].attributes


def test_only_layers_beyond_their_share_are_batched():
    random = np.random.default_rng(0)
    builder = GraphBuilder("stack")
    x = builder.input("x", TensorType(DType.FLOAT32, (4, 1, 50)))
    for inputs in (50, 3):
        shapes = [(1, 3, inputs), (1, 3, 3), (1, 6), (1, 1, 3)]
        weights = [builder.constant(random.standard_normal(s).astype(np.float32), f"c{inputs}") for s in shapes]
        attributes: Attributes = {
            "direction": "forward",
            "layout": 0,
            "activations": (),
            "activation_alpha": (),
            "activation_beta": (),
        }
        outputs = builder.add("RNN", [x, *weights], attributes, name=f"layer{inputs}")
        x = builder.add("Reshape", [outputs[0]], {"shape": (4, 1, 3)}, name=f"rows{inputs}")[0]
    graph = builder.build([x])
    # Two vEUs keep 400 bytes, 200 for each layer: 636 bytes of weights do not stay, 72 do.
    batched = batch_inputs.run(graph, with_private_bytes(200))
    found = [op.attributes.get("batched_inputs", False) for op in batched.operators if op.kind == "RNN"]
    assert found == [True, False]


@pytest.mark.parametrize(
    ("precision", "stationary_bytes", "batched"), [("fp16", 1, False), ("fp16", 0, True), ("fp32", 1, True)]
)
def test_weights_that_are_kept_in_16_bits_take_half(precision, stationary_bytes, batched):
    graph = layer("LSTM")
    weight_bytes = 4 * 12 * (5 + 3)
    few = with_private_bytes(weight_bytes // 2 // 2)  # on each of two units, one layer
    few = replace(few, precision=precision, stationary_bytes=stationary_bytes)
    (found,) = (operator for operator in batch_inputs.run(graph, few).operators if operator.kind == "LSTM")
    assert bool(found.attributes.get("batched_inputs")) == batched
