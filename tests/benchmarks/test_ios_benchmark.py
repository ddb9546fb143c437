"""RandWire as IOS measures it, and the table of IOS's networks."""

import numpy as np
import pytest

import rammer
from benchmarks import ios
from benchmarks.networks import randwire
from benchmarks.networks.builder import random_inputs
from rammer.frontends.onnx import load_graph
from tests.support.agreement import run_onnx_runtime

SMALL = {"nodes": 8, "channels": 8, "image": 32, "classes": 10}


@pytest.mark.parametrize("nodes", [8, 32])
def test_random_wiring_has_as_many_edges_as_the_ring_and_no_cycle(nodes):
    found = randwire.edges(np.random.default_rng(0), nodes)
    assert len(found) == nodes * randwire.NEIGHBOURS // 2
    assert all(0 <= source < target < nodes for source, target in found)
    ring = randwire.edges(np.random.default_rng(0), nodes, rewired=0.0)
    assert {abs(a - b) for a, b in ring} == {1, 2, nodes - 1, nodes - 2}
    assert found != ring


def test_randwire_agrees_with_onnx_runtime():
    model = randwire.build(**SMALL)
    inputs = random_inputs(model, 0)
    (expected,) = run_onnx_runtime(model, inputs)
    np.testing.assert_allclose(rammer.compile(model, "cpu", veus=2)(**inputs), expected, rtol=1e-3, atol=1e-4)


def test_the_table_has_a_row_for_each_network(monkeypatch, capsys):
    monkeypatch.setitem(ios.BUILT, "randwire", lambda: load_graph(randwire.build(**SMALL)))
    assert ios.main(["--networks", "randwire"]) == 0
    assert "randwire" in capsys.readouterr().out
