"""IOS's policies merge convolutions where their stages are quicker so; results stay the same."""

import numpy as np
import pytest

from rammer.inspection.dump import Dump
from rammer.ir.evaluate import evaluate_graph
from rammer.options import CompileOptions
from rammer.pipelines.compiler import compile_graph, find_target
from rammer.pipelines.planning import lower_graph
from tests.support.passes import Net, random_inputs


def fire(kernels, channels=8, features=16):
    """Convolutions of one input, activated and concatenated, and one behind them."""
    net = Net()
    x = net.conv(net.input(1, 3, 8, 8), net.weight(channels, 3, 1, 1))
    parts = [net.add("Relu", net.conv(x, net.weight(features, channels, k, k), pad=k // 2)) for k in kernels]
    joined = net.add("Concat", *parts, axis=1)
    return net.build(net.conv(joined, net.weight(4, features * len(kernels), 1, 1)))


def activated(graph, **options):
    chosen = CompileOptions(device="cuda:sm_90", **options)
    _, vdevice = find_target(chosen)
    kinds = [operator.kind for operator in lower_graph(graph, vdevice, chosen, Dump(None)).operators]
    return kinds.count("Conv+Relu")


@pytest.mark.parametrize("policy", ["ios", "ios-tiles"])
def test_equal_work_is_merged(policy):
    """Twice the same kernel: as one they have half the rTasks to start and one operator to wait for."""
    graph = fire((1, 1), channels=256, features=256)
    assert activated(graph, policy="wavefront") == 2
    assert activated(graph, policy=policy) == 1


def test_what_would_compute_much_more_is_not_merged():
    graph = fire((7, 1), channels=256, features=256)
    assert activated(graph, policy="ios") == 2


def test_strict_models_are_not_merged():
    graph = fire((1, 1), channels=256, features=256)
    assert activated(graph, policy="ios", numerics="strict") == 2


@pytest.mark.parametrize("kernels", [(1, 1), (3, 1), (1, 3, 1)])
def test_results_are_the_same(kernels):
    graph = fire(kernels)
    net = compile_graph(graph, CompileOptions(device="reference", policy="ios"))
    inputs = random_inputs(graph)
    (expected,) = evaluate_graph(graph, inputs)
    found = net(*inputs)
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)
