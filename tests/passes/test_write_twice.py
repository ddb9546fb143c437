"""States of layers that are trained are written for the next step and for all others."""

from dataclasses import replace

import pytest

from rammer.devices.registry import find_device
from rammer.inspection.dump import Dump
from rammer.ir.evaluate import evaluate_graph
from rammer.options import CompileOptions
from rammer.passes import unroll
from rammer.pipelines.planning import rewrite_graph
from tests.support.agreement import relative_difference
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


def test_without_states_or_what_keeps_them_nothing_is_written_twice():
    graph = trained_layers(layers=2, steps=3)
    assert not sum(twice(after(graph, replace(H200, stationary_bytes=0))))
    count = len(graph.states)
    constants = dict(zip(graph.inputs[-count:], (state.initial for state in graph.states), strict=True))
    by_constants = replace(
        graph, inputs=graph.inputs[:-count], outputs=graph.outputs[:-count], states=(), constants=constants
    )
    assert not sum(twice(after(replace(by_constants, constants={**graph.constants, **constants}))))
