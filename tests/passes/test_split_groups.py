"""Wide groups become branches, where vEUs have caches of their own."""

from dataclasses import replace

import pytest

import rammer
from benchmarks.networks import NETWORKS
from benchmarks.networks.builder import random_inputs
from rammer.passes import eliminate_dead, fuse, hoist_pointwise, inline_views, split_groups
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.kernels import AVX512
from tests.support.passes import Net, kinds, rewritten, unchanged

OWN_CACHES = replace(AVX512, own_cache_bytes=1 << 20)


def split(before, device=OWN_CACHES):
    return split_groups.run(before, device)


def grouped(channels=64, features=64, group=2, *, batch=1, bias=True, stride=1, weight_is_known=True):
    net = Net()
    x = net.input(batch, channels, 6, 7)
    shape = (features, channels // group, 3, 3)
    weight = net.weight(*shape) if weight_is_known else net.input(*shape)
    biases = [net.weight(features)] if bias else []
    return net, net.conv(x, weight, *biases, pad=1, stride=stride, group=group)


@pytest.mark.parametrize(
    "form",
    [{}, {"bias": False}, {"batch": 2}, {"stride": 2}, {"group": 3, "channels": 96, "features": 192}],
    ids=str,
)
def test_each_group_is_a_convolution_of_its_own(form):
    net, y = grouped(**form)
    graph = rewritten(net.build(y), split)
    count = form.get("group", 2)
    assert kinds(graph) == ["Slice", "Conv"] * count + ["Concat"]
    assert all(operator.attributes["group"] == 1 for operator in graph.operators if operator.kind == "Conv")


def test_activations_are_led_to_each_group():
    net, y = grouped()
    passes = (split, *(module.run for module in (hoist_pointwise, inline_views, eliminate_dead, fuse)))
    found = kinds(rewritten(net.build(net.add("Relu", y)), *passes))
    assert [kind for kind in found if kind != "Slice"] == ["Conv+Relu", "Conv+Relu", "Concat"]


@pytest.mark.parametrize(
    "form",
    [
        {"group": 1},
        {"group": 4},  # narrower than two vectors
        {"group": 64},  # depthwise
        {"group": 2, "features": 32},
        {"group": 20, "channels": 640, "features": 640},
        {"weight_is_known": False},
    ],
    ids=str,
)
def test_what_shares_vectors_or_has_many_groups_stays(form):
    net, y = grouped(**form)
    assert unchanged(net.build(y), split)


def test_units_without_caches_of_their_own_gain_nothing():
    net, y = grouped()
    assert unchanged(net.build(y), lambda graph: split(graph, replace(OWN_CACHES, own_cache_bytes=0)))


@pytest.mark.parametrize("veus", [1, 2, 3])
def test_a_network_with_wide_groups_agrees_with_onnx_runtime(veus):
    model = NETWORKS["resnext"](blocks=1, cardinality=4, width=64, grouped=True)
    inputs = random_inputs(model, seed=1)
    net = rammer.compile(model, "cpu", veus=veus)
    assert sum(operator["kind"] == "ConvInputTransform" for operator in net.report["operators"]) >= 8
    (expected,) = run_onnx_runtime(model, inputs)
    assert relative_difference(net(**inputs), expected) < 1e-5
