"""Every layer of quantised networks, given ONNX Runtime's own quantised tensors, is within one quantum of its result.

Whole networks differ by more, as ONNX Runtime does from itself: docs/numerics.md.
"""

import numpy as np
import pytest
from onnx import numpy_helper

import rammer
from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.builder import random_inputs
from tests.support.quantised_layers import apart, by_onnx_runtime, feeds_of, quantised_names
from tests.support.quantised_models import quantised_statically

MOST_THAT_DIFFER = 0.002  # of a layer's elements: those whose last bit of float32 decides how they are rounded


def check_layers(name, sizes, form, folder):
    plain = NETWORKS[name](**sizes)
    inputs = random_inputs(plain, seed=0)
    model = quantised_statically(plain, inputs, folder, form)
    names, net = quantised_names(model), None
    assert len(names) > 10
    for optimised in (False, True):
        theirs = by_onnx_runtime(model, inputs, names, optimised=optimised)
        cut = apart(model, theirs)
        net = net or rammer.compile(cut, "cpu", veus=2)
        ours = net.run(feeds_of(cut, inputs, theirs))
        beyond = {}
        for tensor in names:
            quanta = np.abs(ours[tensor].astype(np.int32) - theirs[tensor].astype(np.int32))
            if quanta.max() > 1 or np.count_nonzero(quanta) > max(1, MOST_THAT_DIFFER * quanta.size):
                beyond[tensor] = (quanta.max(), np.count_nonzero(quanta), quanta.size)
        assert not beyond, optimised


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", ["mobilenet", "resnet", "bert"])
def test_layers(name, form, tmp_path):
    check_layers(name, SMALL[name], form, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("name", ["mobilenet", "resnet", "bert"])
def test_layers_of_whole_networks(name, form, tmp_path):
    check_layers(name, {}, form, tmp_path)


def test_a_layer_that_is_off_is_found(tmp_path):
    """The tests above mean something only if a wrong scale shows."""
    plain = NETWORKS["mobilenet"](**SMALL["mobilenet"])
    inputs = random_inputs(plain, seed=0)
    model = quantised_statically(plain, inputs, tmp_path, "QOperator")
    names = quantised_names(model)
    theirs = by_onnx_runtime(model, inputs, names, optimised=True)
    cut = apart(model, theirs)
    node = next(one for one in cut.graph.node if one.op_type == "QLinearConv")
    scale = next(tensor for tensor in cut.graph.initializer if tensor.name == node.input[6])
    scale.CopyFrom(numpy_helper.from_array(np.asarray(2 * numpy_helper.to_array(scale)), scale.name))
    ours = rammer.compile(cut, "reference").run(feeds_of(cut, inputs, theirs))
    off = np.abs(ours[node.output[0]].astype(np.int32) - theirs[node.output[0]].astype(np.int32))
    assert off.max() > 1
