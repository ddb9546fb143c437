"""Weights of gates of odd sizes become constants of their own; nothing is computed otherwise."""

from functools import partial

import numpy as np
import pytest
from onnx import helper

from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.expr import Load, nodes
from rammer.options import CompileOptions
from rammer.passes import (
    eliminate_dead,
    fold_constants,
    fuse,
    inline_views,
    layout,
    part_weights,
    simplify_views,
    unroll,
)
from tests.support.passes import rewritten
from tests.support.small_models import FLOAT, small_model

GATES = {"LSTM": 4, "GRU": 3}
CPU = find_device("cpu").describe(CompileOptions(device="cpu", veus=1))
LANES = CPU.vector_bytes // 4


def recurrent(kind, units, steps=3, inputs=7):
    random = np.random.default_rng(0)
    rows = GATES[kind] * units
    weights = {
        "w": random.standard_normal((1, rows, inputs)).astype(np.float32),
        "r": random.standard_normal((1, rows, units)).astype(np.float32),
        "b": random.standard_normal((1, 2 * rows)).astype(np.float32),
    }
    node = helper.make_node(kind, ["x", "w", "r", "b"], ["y"], hidden_size=units, linear_before_reset=1)
    if kind == "LSTM":
        del node.attribute[-1]
    ports = {"y": (FLOAT, (steps, 1, 1, units))}
    return load_graph(small_model([node], {"x": (FLOAT, (steps, 1, inputs))}, ports, weights))


def cells(kind, units):
    """The steps of a layer."""
    graph = simplify_views.run(unroll.run(recurrent(kind, units)))
    return eliminate_dead.run(fuse.run(inline_views.run(fold_constants.run(graph))))


def on(device=CPU):
    return partial(part_weights.run, device=device)


def parts_of(graph):
    """The shapes of the matrices that cells multiply by, each once."""
    cells = [operator for operator in graph.operators if operator.kind.endswith("Cell")]
    found = {value for cell in cells for value in cell.inputs if value in graph.constants}
    return sorted(shape for value in found if len(shape := graph.values[value].type.shape) == 2 and min(shape) > 1)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("units", [LANES + 9, 5, 2 * LANES + 1])
def test_gates_of_odd_sizes(kind, units):
    graph = cells(kind, units)
    after = rewritten(graph, on())
    assert parts_of(after) == sorted([(units, 7), (units, units)] * GATES[kind])
    expressions = {operator.expr for operator in after.operators if operator.kind.endswith("Cell")}
    assert len(expressions) <= len({operator.expr for operator in graph.operators})
    x = np.random.default_rng(1).standard_normal((3, 1, 7)).astype(np.float32)
    np.testing.assert_array_equal(evaluate_graph(after, [x])[0], evaluate_graph(graph, [x])[0])


@pytest.mark.parametrize("kind", GATES)
def test_gates_as_wide_as_vectors_stay(kind):
    graph = cells(kind, 2 * LANES)
    assert part_weights.run(graph, CPU).operators == graph.operators


def test_parts_are_packed():
    graph = rewritten(cells("LSTM", LANES + 1), on(), partial(layout.run, device=CPU))
    matrices = [value for value, array in graph.constants.items() if array.ndim == 2 and min(array.shape) > 1]
    panels = [graph.values[value].storage.panel for value in matrices]
    assert panels
    assert all(panel is not None for panel in panels)


def test_devices_that_stage_weights_keep_them_whole():
    gpu = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
    graph = cells("LSTM", LANES + 1)
    assert part_weights.run(graph, gpu).operators == graph.operators


def test_one_part_is_read_as_it_is():
    """A product reads all of its weights, from their beginning on."""
    weights = {"w": np.ones((7, LANES + 1), np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = load_graph(small_model([node], {"x": (FLOAT, (1, 7))}, {"y": (FLOAT, (1, LANES + 1))}, weights))
    (operator,) = part_weights.run(graph, CPU).operators
    assert operator.expr is not None
    assert sum(isinstance(node, Load) for node in nodes(*operator.expr.roots)) == 2
    assert operator == graph.operators[0]
