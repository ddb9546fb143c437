"""LSTM layers that are trained, whose weights stay in both passes: runs one after another in several orders."""

from typing import Any

import numpy as np
import pytest

from rammer.ir.kernel_form import PersistentRnnForm
from rammer.pipelines.compiler import compile_graph
from rammer.pipelines.planning import plan_graph
from tests.support.agreement import relative_difference
from tests.support.host_cuda import ORDERS
from tests.support.trained_layers import expected_runs, random_runs, trained_layers

CASES: dict[str, dict[str, Any]] = {
    "batch 1": {"steps": 4, "units": 64},
    "batch 1, in reverse": {"layers": 1, "steps": 5, "units": 128, "reverse": True},
    "batch 4": {"steps": 4, "units": 32, "batch": 4},
}


@pytest.mark.parametrize("case", CASES)
def test_runs(case, gpu):
    graph, options = trained_layers(**CASES[case]), gpu.options(veus=6, policy="wavefront")
    plan = plan_graph(graph, gpu.vdevice(options), options)
    chosen = zip(plan.graph.operators, plan.schedule.choice, strict=True)
    assert sum(isinstance(operator.kernels[pick].form, PersistentRnnForm) for operator, pick in chosen) > 2
    runs = random_runs(graph, len(ORDERS))
    *results, states = expected_runs(graph, runs)
    net = compile_graph(graph, options)
    for gpu.api.order, inputs, (wanted,) in zip(ORDERS, runs, results, strict=True):
        assert relative_difference(np.asarray(net(*inputs)), wanted) < 1e-5
    for state, wanted in zip(graph.states, states, strict=True):
        assert relative_difference(np.asarray(net.state[state.name]), wanted) < 1e-5
        assert not np.array_equal(wanted, state.initial)
