"""Transposed convolutions as convolutions of their phases."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rammer.passes import eliminate_dead, finite_weights, fold_constants, inline_views, split_phases
from tests.support.passes import Net, kinds, rewritten, unchanged


def transposed(
    image=(5, 6),
    kernel=(3, 3),
    *,
    channels=4,
    features=6,
    group=1,
    strides=(1, 1),
    dilations=None,
    pads=None,
    extra=None,
    bias=False,
    is_known=False,
    is_finite=True,
):
    """A network of one transposed convolution, whose weights are an input if they are not known."""
    count = len(image)
    net = Net()
    x = net.input(2, channels, *image)
    shape = (channels, features // group, *kernel)
    weight = net.weight(*shape) if is_known else net.input(*shape)
    attributes = {
        "strides": strides,
        "dilations": dilations or (1,) * count,
        "pads": pads or (0,) * (2 * count),
        "group": group,
        "output_padding": extra or (0,) * count,
    }
    attributes |= {"finite_weights": True} if is_finite else {}
    return net, net.add("ConvTranspose", x, weight, *([net.weight(features)] if bias else []), **attributes)


def phases_of(net, y):
    return rewritten(net.build(y), split_phases.run)


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("group", [1, 2, 4])
def test_without_strides_it_is_a_convolution(group, is_known):
    net, y = transposed(group=group, features=8, pads=(1, 1, 1, 1), bias=True, is_known=is_known)
    graph = phases_of(net, y)
    assert kinds(graph).count("Conv") == 1
    assert set(kinds(graph)) - {"Conv"} <= (set() if is_known else {"Slice", "Reshape", "Transpose"})


def test_strides_make_a_convolution_for_each_phase():
    graph = phases_of(*transposed(strides=(2, 2), pads=(1, 1, 1, 1), extra=(1, 1)))
    convolutions = [operator for operator in graph.operators if operator.kind == "Conv"]
    taps = [graph.values[operator.inputs[1]].type.shape[2:] for operator in convolutions]
    assert sorted(taps) == [(1, 1), (1, 2), (2, 1), (2, 2)]  # nine taps together: no product by a zero


def test_what_no_tap_reaches_is_zero():
    graph = phases_of(*transposed(kernel=(1, 1), strides=(2, 2), extra=(1, 1)))
    assert kinds(graph).count("Conv") == 1
    assert kinds(graph).count("Expand") == 3


def test_gradients_of_a_block_and_its_shortcut_are_added_in_phases():
    net, y = transposed(strides=(2, 2), pads=(1, 1, 1, 1), extra=(1, 1))
    shortcut = net.add(
        "ConvTranspose",
        net.input(2, 4, 5, 6),
        net.input(4, 6, 1, 1),
        strides=(2, 2),
        dilations=(1, 1),
        pads=(0, 0, 0, 0),
        group=1,
        output_padding=(1, 1),
        finite_weights=True,
    )
    graph = phases_of(net, net.add("Add", y, shortcut))
    assert kinds(graph).count("Conv") == 5
    assert kinds(graph).count("Add") == 1  # to the one phase that the shortcut has
    assert "Expand" not in kinds(graph)


def test_what_others_read_too_is_interleaved():
    net, y = transposed(strides=(2, 2), pads=(1, 1, 1, 1))
    graph = rewritten(net.build(net.add("Add", y, y), net.add("Relu", y)), split_phases.run)
    assert kinds(graph).count("Conv") == 4


def test_one_that_reads_another():
    net, y = transposed(strides=(2, 2), pads=(1, 1, 1, 1))
    z = net.add(
        "ConvTranspose",
        y,
        net.weight(6, 3, 2, 2),
        strides=(1, 2),
        dilations=(1, 1),
        pads=(0, 0, 0, 0),
        group=1,
        output_padding=(0, 0),
        finite_weights=True,
    )
    assert kinds(phases_of(net, z)).count("Conv") == 6


@pytest.mark.parametrize(
    "form",
    [
        {"is_finite": False},
        {"strides": (2, 2), "dilations": (2, 2)},  # every other result is zero
        {"strides": (2, 2), "kernel": (1, 1), "bias": True},  # results that are the bias alone
    ],
    ids=str,
)
def test_what_stays(form):
    net, y = transposed(**form)
    assert unchanged(net.build(y), split_phases.run)


def test_known_weights_are_swapped_once():
    net, y = transposed(strides=(2, 2), pads=(1, 1, 1, 1), extra=(1, 1), is_known=True, is_finite=False)
    passes = (fold_constants, finite_weights, split_phases, inline_views, eliminate_dead)
    graph = rewritten(net.build(y), *(module.run for module in passes))
    assert set(kinds(graph)) == {"Conv", "Reshape", "Concat"}


@st.composite
def forms(draw):
    """Transposed convolutions over one to three dimensions, whose results are not empty."""
    count = draw(st.integers(1, 3))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(count))

    group = draw(st.sampled_from([1, 2, 4]))
    strides, dilations = each(1, 3), each(1, 3)
    image, kernel = each(1, 5), each(1, 4)
    extra = tuple(draw(st.integers(0, stride - 1)) for stride in strides)
    whole = [
        (size - 1) * stride + more + (taps - 1) * dilation + 1
        for size, stride, more, taps, dilation in zip(image, strides, extra, kernel, dilations, strict=True)
    ]
    begins = tuple(draw(st.integers(0, min(4, extent - 1))) for extent in whole)
    ends = tuple(draw(st.integers(0, min(4, extent - begin - 1))) for extent, begin in zip(whole, begins, strict=True))
    return {
        "image": image,
        "kernel": kernel,
        "group": group,
        "features": group * draw(st.integers(1, 2)),
        "strides": strides,
        "dilations": dilations,
        "pads": (*begins, *ends),
        "extra": extra,
        "bias": draw(st.booleans()),
        "is_known": draw(st.booleans()),
    }


@settings(max_examples=150, deadline=None)
@given(forms())
def test_any_form_computes_the_same(form):
    phases_of(*transposed(**form))
