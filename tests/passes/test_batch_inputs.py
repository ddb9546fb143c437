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
    """Two layers on two vEUs, each of which has room for one."""
    graph = stack("forward", "forward", units=4)
    weight_bytes = 4 * (4 * 4 * 4 + 4 * 4 * 4)
    assert batched_of(graph, with_private_bytes(weight_bytes)) == [False, False]
    assert batched_of(graph, with_private_bytes(weight_bytes - 1)) == [True, True]


def test_what_is_no_wavefront_is_batched():
    """Beyond the smallest of the memories that a vEU has to itself."""
    roomy = with_private_bytes(1 << 20)
    assert batched_of(stack("forward"), roomy) == [False]
    nearest = replace(roomy.levels[0], name="nearest", capacity_bytes=4 * (4 * 16 * 4 + 4 * 16 * 16) - 1)
    roomy = replace(roomy, levels=(nearest, *roomy.levels))
    assert batched_of(stack("forward"), roomy) == [True]
    assert batched_of(stack("forward", "forward"), roomy) == [False, False]
    assert batched_of(stack("forward", "forward"), replace(roomy, veus=roomy.veus[:1])) == [True, True]
    assert batched_of(stack("forward"), replace(roomy, stationary_bytes=1 << 20)) == [False]


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


@pytest.mark.parametrize(("precision", "batched"), [("fp16", False), ("fp32", True)])
def test_weights_that_are_kept_in_16_bits_take_half(precision, batched):
    few = replace(keeping(8, 640), precision=precision)  # of 4 units, which are the least
    assert batched_of(stack("forward", batch=2), few) == [batched]


def test_weights_of_16_bits_that_nothing_keeps_take_as_much_as_others():
    few = replace(with_private_bytes(4 * 12 * (5 + 3) // 2 // 2), precision="fp16")  # on each of two units
    assert batched_of(layer("LSTM"), few) == [True]


# --- Where units keep weights: 256 bytes of states for each of 16 units, 64 of inputs for the first layer -------------


def keeping(veus, stationary_bytes=2048):
    return replace(device(veus), stationary_bytes=stationary_bytes)


def stack(*directions, units=16, steps=3, inputs=4, batch=1):
    """Layers of 16 units, each on the one before, in these directions."""
    random = np.random.default_rng(0)
    builder = GraphBuilder("stack")
    x = builder.input("x", TensorType(DType.FLOAT32, (steps, batch, inputs)))
    for number, direction in enumerate(directions):
        count = 1 + (direction == "bidirectional")
        shapes = [
            (count, 4 * units, inputs),
            (count, 4 * units, units),
            (count, 8 * units),
            *[(count, batch, units)] * 2,
        ]
        weights = [builder.constant(random.standard_normal(s).astype(np.float32), f"c{number}") for s in shapes]
        attributes: Attributes = {
            "direction": direction,
            "layout": 0,
            "activations": (),
            "activation_alpha": (),
            "activation_beta": (),
            "input_forget": False,
        }
        y = builder.add("LSTM", [x, *weights], attributes, name=f"layer{number}")[0]
        inputs = count * units
        x = builder.add("Reshape", [y], {"shape": (steps, batch, inputs)}, name=f"rows{number}")[0]
    return builder.build([x])


def batched_of(graph, vdevice):
    """Which layers multiply all inputs at once."""
    operators = batch_inputs.run(graph, vdevice).operators
    return [bool(one.attributes.get("batched_inputs")) for one in operators if one.kind == "LSTM"]


def test_layers_run_as_a_wavefront_as_far_as_there_is_room():
    """Each takes four execution units, of inputs that are multiplied at once two."""
    graph = stack(*["forward"] * 4)
    assert batched_of(graph, keeping(16)) == [False] * 4
    assert batched_of(graph, keeping(14)) == [True, False, False, False]  # which waits for nothing
    assert batched_of(graph, keeping(12)) == [False, False, False, True]
    assert batched_of(graph, keeping(10)) == [True, False, False, True]


def test_layers_that_wait_for_all_steps_anyway_begin_anew():
    assert batched_of(stack("forward", "reverse", "forward"), keeping(5, 4096)) == [False] * 3
    assert batched_of(stack(*["forward"] * 3), keeping(5, 4096)) == [True, False, False]
    assert batched_of(stack(*["bidirectional"] * 3), keeping(8, 8192)) == [False] * 3


def test_layers_that_no_room_is_enough_for_keep_their_states():
    """Parts are of four units at least."""
    assert batched_of(stack("forward"), keeping(100, 4 * 320 - 1)) == [True]
    assert batched_of(stack("forward"), keeping(100, 4 * 320)) == [False]


def test_inputs_that_take_much_room_are_multiplied_at_once():
    graph = stack("forward", inputs=24)
    assert batched_of(graph, keeping(20, 5120)) == [False]
    assert batched_of(graph, keeping(20, 2560)) == [True]
