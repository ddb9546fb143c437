"""The benchmark of networks in int8: what it compares computes the same."""

import numpy as np

import rammer
from benchmarks.networks import NETWORKS, SMALL
from benchmarks.quantised import contestants, least_ms, quantised
from rammer.runtime.arrays import random_inputs


def test_contestants_agree(tmp_path):
    model = NETWORKS["resnet"](**SMALL["resnet"])
    inputs = random_inputs(rammer.compile(model, device="reference").signature)
    int8 = quantised(model, [inputs] * 2, tmp_path)
    assert "QLinearConv" not in {node.op_type for node in int8.graph.node}
    assert "QuantizeLinear" in {node.op_type for node in int8.graph.node}
    runs = contestants(int8, inputs, 1)
    outputs = {name: run()[0] for name, run in runs.items()}
    np.testing.assert_array_equal(outputs["rammer"], outputs["rammer, vectors"])
    ours, theirs = (outputs[name].astype(np.float32) for name in ("rammer", "onnxruntime"))
    np.testing.assert_allclose(ours, theirs, atol=0.05 * float(np.abs(theirs).max()))
    assert set(least_ms(runs, 0.0)) == set(runs)
