"""States of layers are written for the next step, and for others that cannot take them so."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import helper

from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.evaluate import evaluate_graph
from rammer.options import CompileOptions
from rammer.passes import unroll
from rammer.pipelines.planning import rewrite_graph
from tests.support.agreement import relative_difference
from tests.support.small_models import FLOAT, small_model
from tests.support.trained_layers import random_runs, trained_layers

OPTIONS = CompileOptions(device="cuda:sm_90")
H200 = find_device("cuda:sm_90").describe(OPTIONS)


def after(graph, device=H200):
    return rewrite_graph(graph, device, OPTIONS, Dump(None))


def twice(graph):
    """How many results each cell of a graph writes again."""
    names = [[graph.values[value].name for value in operator.outputs] for operator in graph.operators]
    return [sum(name.endswith(".again") for name in own) for own in names if len(own) > 1]


@pytest.mark.parametrize("batch", [1, 4])
def test_results_stay(batch):
    graph = trained_layers(layers=2, steps=3, batch=batch)
    (inputs,) = random_runs(graph, 1)
    inputs += [state.initial for state in graph.states]
    rewritten = after(graph)
    assert sum(twice(rewritten))
    for found, wanted in zip(evaluate_graph(rewritten, inputs), evaluate_graph(unroll.run(graph), inputs), strict=True):
        assert relative_difference(found, wanted) < 1e-5


def test_steps_read_what_is_written_for_them_and_all_others_the_rest():
    graph = after(trained_layers(layers=2, steps=4))
    numbers = {entry.name: value for value, entry in graph.values.items()}
    pairs = [
        (numbers[name.removesuffix(".again")], value) for name, value in numbers.items() if name.endswith(".again")
    ]
    consumers = graph.consumers()
    for first, second in pairs:
        assert all("Cell" in reader.kind or reader.kind == "Concat" for reader in consumers[first])
        assert not any("Cell" in reader.kind for reader in consumers[second])
    # The states that another step takes; of such gradients four each, and where they lie side by side.
    assert len(pairs) == (4 + 3) + (3 + 4) * (4 + 1)


def test_without_what_keeps_weights_nothing_is_written_twice():
    assert not sum(twice(after(trained_layers(layers=2, steps=3), replace(H200, stationary_bytes=0))))


def model_of(behind, **constants):
    """An LSTM of 3 steps, and operators that make y of its states."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((1, 64, 16)), "r": rng.standard_normal((1, 64, 16)), **constants}
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["states"], hidden_size=16), *behind]
    arrays = {name: value if value.dtype.kind == "i" else value.astype(np.float32) for name, value in weights.items()}
    return small_model(nodes, {"x": (FLOAT, (3, 1, 16))}, {"y": (FLOAT, ("a", "b", "c", "d"))}, arrays)


@pytest.mark.parametrize(
    ("behind", "written_twice"),
    [
        ([helper.make_node("Identity", ["states"], ["y"])], 2),
        ([helper.make_node("Transpose", ["states"], ["y"], perm=[1, 0, 2, 3])], 2),
        ([helper.make_node("MatMul", ["states", "c"], ["y"])], 2),
        ([helper.make_node("Mul", ["states", "c"], ["y"])], 0),
    ],
)
def test_of_layers_by_constants_what_has_to_lie_plain_is_written_twice(behind, written_twice):
    """The states that a step takes are all but the last; elementwise work takes them as they are."""
    graph = load_graph(model_of(behind, c=np.eye(16)))
    rewritten = after(graph)
    assert sum(twice(rewritten)) == written_twice
    x = np.random.default_rng(1).standard_normal((3, 1, 16)).astype(np.float32)
    (found,), (wanted,) = evaluate_graph(rewritten, [x]), evaluate_graph(unroll.run(graph), [x])
    assert relative_difference(found, wanted) < 1e-5
