"""Where operands are staged, predictions decide whether convolutions are computed by minimal filtering."""

import itertools
from dataclasses import replace
from functools import reduce

from rammer.devices.registry import find_device
from rammer.ir.vdevice import Figure
from rammer.options import CompileOptions
from rammer.passes import winograd as winograd_pass
from rammer.passes.pipeline import PASSES
from tests.support.passes import Net, filtered_outputs

winograd = dict(PASSES)["winograd"]


def between_images(channels, features, size, branches=1):
    """Convolutions of one image, none of which is the model's input or output."""
    net = Net()
    x = net.add("Abs", net.input(1, channels, size, size))
    return net.build(
        *(
            net.add("Neg", net.conv(x, net.weight(features, channels, 3, 3), net.weight(features), pad=1))
            for _ in range(branches)
        )
    )


H200 = find_device("cuda:sm_90").describe(CompileOptions())


def test_where_operands_are_staged_predictions_decide():
    """By its peaks, which such products are far from, a GPU would gain nothing."""
    graph = between_images(192, 384, 13)
    assert filtered_outputs(winograd(graph, replace(H200, products_reach_peak=True))) is None
    assert filtered_outputs(winograd(graph, H200)) == 4


def test_dear_handovers_forbid_it_there_too():
    dear = Figure(10.0, "nominal: a test")
    assert filtered_outputs(winograd(between_images(192, 384, 13), replace(H200, handover_us=dear))) is None


def test_branches_have_their_share_of_the_units():
    """Enough work for some units is too little for all."""
    assert filtered_outputs(winograd(between_images(64, 64, 32), H200)) is None
    assert filtered_outputs(winograd(between_images(64, 64, 32, branches=16), H200)) == 4
    assert filtered_outputs(winograd(between_images(64, 64, 8, branches=16), H200)) is None


def with_code_from_memory(instruction_us, l2_bytes):
    """The GPU with so much L2, where each instruction that comes from memory takes so long."""
    private, shared, memory = H200.levels
    levels = (private, replace(shared, capacity_bytes=l2_bytes), memory)
    near, far = (Figure(value, "nominal: a test") for value in (0.0, instruction_us))
    return replace(H200, levels=levels, instruction_fetch_us=(near, far))


def test_code_that_constants_leave_no_room_for_forbids_it_there():
    """2.6 MB of weights: three rKernels have more code than one."""
    graph = between_images(192, 384, 13)
    assert filtered_outputs(winograd(graph, with_code_from_memory(0.0, 1 << 20))) == 4
    assert filtered_outputs(winograd(graph, with_code_from_memory(0.01, 1 << 20))) is None
    assert filtered_outputs(winograd(graph, with_code_from_memory(0.01, 3 << 20))) == 4


def test_equal_convolutions_share_their_code():
    graph = between_images(64, 64, 32, branches=16)
    assert filtered_outputs(winograd(graph, with_code_from_memory(0.01, 1 << 20))) == 4


def filtered_before(graph, without):
    """What the pass makes of a graph where a pass that follows it is left out."""
    following = itertools.dropwhile(lambda entry: entry[0] != "winograd", PASSES)
    rest = [run for name, run in following if name not in ("winograd", without)]
    return winograd_pass.run(graph, H200, lambda part, device: reduce(lambda now, run: run(now, device), rest, part))


def test_what_the_passes_that_follow_make_of_it_counts():
    """Its long sum is split, or a convolution of few pixels would take longer than three operators."""
    graph = between_images(512, 64, 8)
    assert filtered_outputs(winograd(graph, H200)) is None
    assert filtered_outputs(filtered_before(graph, without="split_reduction")) == 2
