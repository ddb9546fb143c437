"""Equal sums over parts of one value become one."""

from dataclasses import replace
from typing import Any

import pytest

from rammer.devices.registry import find_device
from rammer.inspection.dump import Dump
from rammer.options import CompileOptions
from rammer.passes import merge_sums
from rammer.pipelines.planning import rewrite_graph
from tests.support.passes import Net, kinds, only, rewritten, unchanged

H200 = find_device("cuda:sm_90").describe(CompileOptions())


def merge(before, device=H200):
    return merge_sums.run(before, device)


def sums_of(net, x, starts, size=2, dim=1, **attributes):
    """The sums over parts of a value, each read by an operator of its own."""
    found = []
    for start in starts:
        part = net.part(x, dim, start, size)
        found.append(net.add("ReduceSum", part, **{"axes": (1,), "keepdims": True, **attributes}))
    return found


def outputs_of(net, values):
    return net.build(*(net.add("Tanh", value) for value in values))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("starts", [(0, 2, 4, 6), (1, 4), (5, 3, 1)])
def test_sums_over_parts_at_even_distances_become_one(starts, batch):
    net = Net()
    x = net.input(batch, 8, 5)
    graph = rewritten(outputs_of(net, sums_of(net, x, starts)), merge)
    merged = only(graph, "ReduceSum")
    assert merged.inputs == graph.inputs
    assert graph.values[merged.outputs[0]].type.shape == (batch * len(starts), 1, 5)
    assert len(merged.sources) == len(starts)


def uneven(net, x):
    return sums_of(net, x, (0, 2, 5))


def alone(net, x):
    return sums_of(net, x, (2,))


def of_different_axes(net, x):
    return [*sums_of(net, x, (0,)), *sums_of(net, x, (2,), axes=(2,))]


def of_different_sizes(net, x):
    return [*sums_of(net, x, (0,)), *sums_of(net, x, (2,), size=3)]


def of_different_depths(net, x):
    (first,) = sums_of(net, x, (0,))
    later = net.part(net.add("Add", x, first), 1, 2, 2)
    return [first, net.add("ReduceSum", later, axes=(1,), keepdims=True)]


def of_the_same_part(net, x):
    return [*sums_of(net, x, (2,)), net.add("Neg", sums_of(net, x, (2,))[0])]


def without_sums(net, x):
    return [net.add("Relu", net.part(x, 1, start, 2)) for start in (0, 2)]


def by_weights(net, x):
    return [net.add("MatMul", net.part(x, 1, start, 2), net.weight(5, 3)) for start in (0, 2)]


def with_other_operands(net, x):
    parts = [net.part(x, 1, start, 2) for start in (0, 2)]
    return [net.add("MatMul", net.add("Transpose", part, perm=(0, 2, 1)), part) for part in parts]


def padded(net, x):
    image = net.add("Reshape", x, shape=(1, 8, 5, 1))
    windows: dict[str, Any] = {"kernel": (3, 1), "strides": (1, 1), "dilations": (1, 1), "pads": (1, 0, 1, 0)}
    windows |= {"out_shape": (5, 1), "count_include_pad": True}
    return [net.add("AveragePool", net.part(image, 1, start, 2), **windows) for start in (0, 2)]


@pytest.mark.parametrize(
    "make",
    [
        uneven,
        alone,
        of_different_axes,
        of_different_sizes,
        of_different_depths,
        of_the_same_part,
        without_sums,
        by_weights,
        with_other_operands,
        padded,
    ],
)
def test_others_stay_as_they_are(make):
    net = Net()
    x = net.input(1, 8, 5)
    assert unchanged(outputs_of(net, make(net, x)), merge)


def test_outputs_of_the_model_are_written_where_they_belong():
    net = Net()
    x = net.input(1, 8, 5)
    assert unchanged(net.build(*sums_of(net, x, (0, 2, 4))), merge)


def test_branches_stay_apart_where_units_have_caches_of_their_own():
    net = Net()
    x = net.input(1, 8, 5)
    before = outputs_of(net, sums_of(net, x, (0, 2, 4)))
    assert unchanged(before, lambda graph: merge(graph, replace(H200, own_cache_bytes=1 << 20)))


def test_branches_of_filtered_convolutions_sample_pixels_together():
    net = Net()
    x = net.input(1, 64, 32, 32)
    branches = []
    for _ in range(16):
        first = net.add("Relu", net.conv(x, net.weight(64, 64, 1, 1), net.weight(64)))
        branches.append(net.add("Relu", net.conv(first, net.weight(64, 64, 3, 3), net.weight(64), pad=1)))
    before = net.build(net.conv(net.add("Concat", *branches, axis=1), net.weight(64, 1024, 1, 1)))
    options = CompileOptions(device="cuda:sm_90")
    found = kinds(rewrite_graph(before, H200, options, Dump(None)))
    assert found.count("ConvProduct") == 16
    assert found.count("ConvPixels") == 1
