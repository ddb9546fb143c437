"""Convolutions by minimal filtering: what is rewritten, to what, where it pays, and how exact it is."""

import itertools
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.evaluate import evaluate, evaluate_graph
from rammer.ir.expr import Output, TensorExpr, load
from rammer.ir.graph import State
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import Figure
from rammer.options import CompileOptions
from rammer.passes import eliminate_dead, finite_weights, fuse, hoist_pointwise, inline_views
from rammer.passes import winograd as winograd_pass
from rammer.passes.helpers.minimal_filtering import filtering, filterings
from rammer.passes.pipeline import PASSES
from tests.support.kernels import AVX512
from tests.support.passes import Net, expression_of, kinds, only, random_inputs, rewritten, unchanged

FIVE = ["ConvInputTransform", "ConvProduct", "ConvPixels", "ConvOrdinary", "ConvOutputTransform"]


def with_figures(*, arithmetic: float = 1.0, moving: float = 1.0, handover: float = 1.0):
    """A processor whose arithmetic, memory and hand-overs take this many times as long as the usual one's."""

    def slower(figure, factor):
        return Figure(figure.value * factor, figure.provenance)

    return replace(
        AVX512,
        flops_per_us={dtype: slower(figure, 1 / arithmetic) for dtype, figure in AVX512.flops_per_us.items()},
        levels=tuple(
            replace(level, bandwidth_bytes_per_us=slower(level.bandwidth_bytes_per_us, 1 / moving))
            for level in AVX512.levels
        ),
        handover_us=slower(AVX512.handover_us, handover),
    )


ARITHMETIC_COUNTS = with_figures(moving=1e-3, handover=0)
"""Nothing but operations takes time."""


winograd = dict(PASSES)["winograd"]


def run_for(device=ARITHMETIC_COUNTS):
    return lambda graph: winograd(graph, device)


def convolution(channels=32, features=48, size=12, *, batch=1, group=1, pad=1, bias=True, kernel=3, stride=1):
    net = Net()
    x = net.input(batch, channels, size, size)
    weights = [net.weight(features, channels // group, kernel, kernel), *([net.weight(features)] if bias else [])]
    return net, net.conv(x, *weights, pad=pad, stride=stride, group=group)


def outputs_of(graph):
    """Outputs of a tile along one dimension, None where nothing was rewritten."""
    product = [operator for operator in graph.operators if operator.kind == "ConvProduct"]
    if not product:
        return None
    return {16: 2, 36: 4}[expression_of(product[0]).outputs[0].type.shape[-1]]


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"bias": False},
        {"batch": 3},
        {"group": 4},
        {"group": 2, "batch": 2, "size": 8},
        {"pad": 0, "size": 14},
        {"pad": 2, "size": 10},
        {"channels": 24, "features": 17},
    ],
    ids=str,
)
def test_five_operators_compute_the_same(form):
    net, y = convolution(**form)
    after = rewritten(net.build(y), run_for())
    assert kinds(after) == FIVE
    assert outputs_of(after) == 4


@pytest.mark.parametrize(("most", "outputs"), [(4, 4), (3, 2), (2, 2), (1, None)])
def test_tiles_have_no_more_results_than_are_asked_for(most, outputs):
    net, y = convolution()
    after = rewritten(net.build(y), run_for(replace(ARITHMETIC_COUNTS, most_filtered=most)))
    assert outputs_of(after) == outputs


@pytest.mark.parametrize("size", [3, 5, 13, 15])
def test_what_tiles_compute_beyond_the_result_is_cut_off(size):
    net, y = convolution(size=size)
    after = rewritten(net.build(y), run_for())
    whole = -(-size // outputs_of(after)) * outputs_of(after)
    assert kinds(after) == [*FIVE, "Slice"]
    assert after.values[only(after, "ConvOutputTransform").outputs[0]].type.shape[2:] == (whole, whole)


def test_sides_may_be_padded_differently():
    net = Net()
    x = net.input(1, 32, 11, 8)
    sides = (2, 0, 1, 2)
    y = net.add(
        "Conv", x, net.weight(32, 32, 3, 3), strides=(1, 1), dilations=(1, 1), pads=sides, group=1, finite_weights=True
    )
    assert kinds(rewritten(net.build(y), run_for()))[:5] == FIVE


@pytest.mark.parametrize(
    "form",
    [
        {"kernel": 5, "pad": 2},
        {"kernel": 5, "pad": 2, "stride": 2, "size": 13},
        {"kernel": 7, "pad": 3, "stride": 2, "batch": 2},
        {"kernel": 11, "pad": 2, "stride": 4, "size": 47, "channels": 3},
        {"kernel": 11, "pad": 5, "group": 2},
        {"kernel": 10, "pad": 4},
    ],
    ids=str,
)
def test_taps_are_cut_into_groups_and_phases(form):
    net, y = convolution(**form)
    assert kinds(rewritten(net.build(y), run_for()))[:5] == FIVE


@pytest.mark.parametrize(
    ("kernel", "strides", "outputs", "points"),
    [
        ((21, 11), (2, 1), [4, 4], 49),
        ((1, 5), (1, 1), [1, 4], 8),
        ((3, 1), (1, 1), [4, 1], 6),
        ((3, 1), (1, 2), [4, 1], 6),
        ((2, 3), (3, 1), [1, 4], 6),
    ],
)
def test_dimensions_are_filtered_each_in_its_own_way(kernel, strides, outputs, points):
    net = Net()
    x, w = net.input(1, 32, 40, 24), net.weight(32, 32, *kernel)
    y = net.add("Conv", x, w, strides=strides, dilations=(1, 1), pads=(1, 0, 2, 1), group=1, finite_weights=True)
    after = rewritten(net.build(y), run_for())
    assert expression_of(only(after, "ConvProduct")).outputs[0].type.shape[-1] == points
    *_, rows, columns = expression_of(only(after, "ConvOutputTransform")).axes
    assert [rows.extent, columns.extent] == outputs


@pytest.mark.parametrize("form", [{"stride": 2}, {"kernel": 2}, {"kernel": 1, "pad": 0}], ids=str)
def test_kernels_of_few_taps_stay(form):
    net, y = convolution(**form)
    assert unchanged(net.build(y), run_for())


def test_dilated_kernels_stay():
    net = Net()
    x, w = net.input(1, 32, 12, 12), net.weight(32, 32, 3, 3)
    y = net.add("Conv", x, w, strides=(1, 1), dilations=(2, 2), pads=(2,) * 4, group=1, finite_weights=True)
    assert unchanged(net.build(y), run_for())


@pytest.mark.parametrize("form", [{}, {"size": 13}, {"batch": 3, "group": 4}, {"kernel": 5}], ids=str)
def test_weights_that_are_not_known_are_transformed_in_each_run(form):
    size, group, kernel = form.get("size", 12), form.get("group", 1), form.get("kernel", 3)
    net = Net()
    x = net.input(form.get("batch", 1), 32, size, size)
    y = net.conv(x, net.input(48, 32 // group, kernel, kernel), pad=kernel // 2, group=group)
    after = rewritten(net.build(y), run_for())
    assert kinds(after)[:6] == ["ConvInputTransform", "ConvFilterTransform", "Transpose", *FIVE[1:4]]


def test_weights_that_are_not_known_are_not_cut():
    net = Net()
    y = net.conv(net.input(1, 32, 24, 24), net.input(32, 32, 11, 11), pad=5)
    assert unchanged(net.build(y), run_for())
    y = net.conv(net.input(1, 32, 24, 24), net.input(32, 32, 5, 5), pad=2, stride=2)
    assert unchanged(net.build(y), run_for())


def test_weights_that_may_be_infinite_stay():
    net = Net()
    attributes: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (1,) * 4, "group": 1}
    y = net.add("Conv", net.input(1, 32, 12, 12), net.input(32, 32, 3, 3), **attributes)
    assert unchanged(net.build(y), finite_weights.run, run_for())


def test_weights_that_are_kept_are_taken_to_be_finite():
    net = Net()
    attributes: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (1,) * 4, "group": 1}
    w = net.input(32, 32, 3, 3)
    graph = net.build(net.add("Conv", net.input(1, 32, 12, 12), w, **attributes), net.add("Neg", w))
    inputs = (graph.inputs[1], graph.inputs[0])  # states come last
    state = State(name="w", initial=np.ones((32, 32, 3, 3), np.float32))
    kept = replace(graph, inputs=inputs, states=(state,))
    assert "ConvProduct" in kinds(rewritten(kept, finite_weights.run, run_for()))


def test_the_transform_of_weights_counts():
    """Few pixels by many weights: what is spared is less than what transforming them takes."""
    net, y = convolution(channels=256, features=256, size=8)
    assert "ConvProduct" in kinds(run_for(AVX512)(net.build(y)))
    net = Net()
    y = net.conv(net.input(1, 256, 8, 8), net.input(256, 256, 3, 3), pad=1)
    assert unchanged(net.build(y), run_for(AVX512))


def test_double_precision_stays():
    net = Net()
    w = net.constant(np.ones((32, 32, 3, 3)))
    y = net.conv(net.input(1, 32, 12, 12, dtype=DType.FLOAT64), w, pad=1)
    assert unchanged(net.build(y), run_for())


def test_a_depthwise_convolution_has_too_few_products():
    net, y = convolution(group=32, features=32)
    assert unchanged(net.build(y), run_for())


@pytest.mark.parametrize(("channels", "features", "size"), [(2, 4, 12), (3, 64, 32)])
def test_few_channels_do_not_pay_for_the_transforms(channels, features, size):
    net, y = convolution(channels, features, size)
    assert unchanged(net.build(y), run_for(with_figures(moving=0.5)))


def test_slow_memory_or_dear_handovers_forbid_it():
    net, y = convolution(64, 64, 32)
    graph = net.build(y)
    assert outputs_of(winograd(graph, AVX512)) == 4
    assert outputs_of(winograd(graph, with_figures(moving=100))) is None
    assert outputs_of(winograd(graph, with_figures(handover=1000))) is None


def test_rounded_products_forbid_it():
    net, y = convolution(64, 64, 32)
    assert unchanged(net.build(y), run_for(replace(AVX512, precision="tf32")))


def test_weights_from_far_away_want_the_smaller_filtering():
    """Weights come from memory: four times as many cost more than they save, 1.8 times as many do not."""
    net, y = convolution(256, 256, 8)
    graph = net.build(y)
    assert outputs_of(winograd(graph, AVX512)) == 2
    assert outputs_of(winograd(graph, with_figures(arithmetic=10))) == 4


def test_a_cache_that_holds_the_weights_only_before_they_grow_does_not_count():
    def cached(capacity_bytes):
        cache, memory = AVX512.levels[-2:]
        levels = (*AVX512.levels[:-2], replace(cache, capacity_bytes=capacity_bytes, shared=True), memory)
        return replace(AVX512, levels=levels)

    net, y = convolution(256, 256, 8)
    graph = net.build(y)
    weight_bytes = 256 * 256 * 9 * 4
    assert outputs_of(winograd(graph, cached(5 * weight_bytes))) == 4
    assert outputs_of(winograd(graph, cached(2 * weight_bytes))) == 2
    assert outputs_of(winograd(graph, cached(weight_bytes + 4096))) is None


def test_what_follows_joins_the_output_transform():
    net, y = convolution(size=13)
    before = net.build(net.add("Relu", y))
    after = rewritten(before, run_for(), hoist_pointwise.run, eliminate_dead.run, fuse.run)
    assert kinds(after) == [*FIVE[:4], "ConvOutputTransform+Relu", "Slice"]


@pytest.mark.parametrize(
    ("kernel", "arithmetic", "roundings"),
    [(3, 1, 16), (3, 10, 64), (5, 10, 256), (7, 10, 160)],
    ids=["F(2x2, 3x3)", "F(4x4, 3x3)", "F(4x4, 5x5)", "F(4x4, 4x4) in groups"],
)
def test_rounding_errors_stay_small(kernel, arithmetic, roundings):
    """Against float64 (norms) the error is at most so many roundings of a float32; that of plain ones is some 6.

    Found were 8, 10 to 28, 40 to 107 and 59 to 67: it depends on the order in which a BLAS adds up.
    """
    net, y = convolution(256, 256, 8, bias=False, kernel=kernel, pad=kernel // 2)
    graph = net.build(y)
    after = winograd(graph, with_figures(arithmetic=arithmetic))
    points = {(3, 1): 16, (3, 10): 36, (5, 10): 64, (7, 10): 49}[kernel, arithmetic]
    assert expression_of(only(after, "ConvProduct")).outputs[0].type.shape[-1] == points
    (x,) = random_inputs(graph)
    (w,) = graph.constants.values()
    wide = Net()
    inputs = wide.input(*x.shape, dtype=DType.FLOAT64), wide.constant(w.astype(float))
    (wanted,) = evaluate_graph(wide.build(wide.conv(*inputs, pad=kernel // 2)), [x.astype(np.float64)])
    exact = wanted.astype(np.float64)
    error = np.linalg.norm(evaluate_graph(after, [x])[0].astype(np.float64) - exact) / np.linalg.norm(exact)
    assert error <= roundings * 2.0**-24


def computed(graph, x):
    """What a graph of one input and one output gives."""
    (y,) = evaluate_graph(graph, [x])
    return y.astype(np.float64)


@pytest.mark.parametrize("value", [1e3, 1e6, 3e38, np.inf, -np.inf, np.nan])
@pytest.mark.parametrize(
    "form", [{}, {"group": 4}, {"kernel": 5, "pad": 2}, {"stride": 2, "kernel": 5, "size": 16}], ids=str
)
def test_an_outlier_stays_with_the_results_that_read_it(form, value):
    """The others, of another image too, are what they are without it."""
    net, y = convolution(**{"batch": 2, **form})
    graph = net.build(y)
    after = winograd(graph, ARITHMETIC_COUNTS)
    assert kinds(after)[:5] == FIVE
    (x,) = random_inputs(graph)
    usual = computed(after, x)
    x[1, 5, 6, 3] = np.nan
    reads = np.isnan(computed(graph, x))
    assert 0 < np.count_nonzero(reads) < reads.size / 4
    x[1, 5, 6, 3] = value
    wanted, found = computed(graph, x), computed(after, x)
    rounding = 3e-6 * np.sqrt(np.mean(usual**2))
    np.testing.assert_allclose(found[~reads], usual[~reads], rtol=0, atol=10 * rounding)
    np.testing.assert_allclose(found[reads], wanted[reads], rtol=1e-5, atol=rounding * min(abs(value), 1e30))


def moved_by(after, x, place, value):
    """How far a value moves the results that do not read it, in units of their root mean square."""
    usual = computed(after, x)
    changed = x.copy()
    changed[place] = np.nan
    far = ~np.isnan(computed(after, changed))
    changed[place] = value
    return np.abs(computed(after, changed) - usual)[far].max() / np.sqrt(np.mean(usual**2))


@pytest.mark.parametrize(
    ("kernel", "side", "bound", "rounding"), [(3, 6, 1e-4, 3e-5), (7, 14, 2e-4, 4e-5), (11, 21, 1e-3, 8e-5)]
)
def test_what_is_no_outlier_moves_others_within_the_stated_bound(kernel, side, bound, rounding):
    """Just below the limit, 8 times the mean norm of as many pixels as a tile reads; see docs/numerics.md.

    Outliers leave others as they are but for `rounding`, which is that of the fast form: more for more taps, and other
    on processors whose NumPy sums in another order.
    """
    net, y = convolution(64, 64, 28, bias=False, kernel=kernel, pad=kernel // 2)
    after = winograd(net.build(y), with_figures(arithmetic=10))
    (x,) = random_inputs(after)
    norm = np.sqrt(np.square(x).sum(1).mean())
    place = (0, 3, 14, 14)
    assert 0 < moved_by(after, x, place, 7.5 * side * norm) < bound
    assert moved_by(after, x, place, 17 * side * norm) < rounding  # a tile of groups reads some pixels twice


def ordinary_of(after):
    """What says which tiles have no outlier, as a graph of its own."""
    return eliminate_dead.run(replace(after, outputs=only(after, "ConvOrdinary").outputs))


def ordinary(flags, x):
    """Which tiles have no outlier."""
    return evaluate_graph(flags, [x])[0]


@pytest.mark.parametrize(
    ("size", "form"), [(7, {}), (20, {}), ((5, 40), {}), (15, {"kernel": 7, "pad": 3, "stride": 2})], ids=str
)
@pytest.mark.parametrize("channels", [slice(None), 5], ids=["all", "one"])
def test_an_outlier_is_found_wherever_it_is(size, form, channels):
    """Among the pixels that the mean is of, too. Tiles that read it are those that NaN reaches."""
    rows, columns = size if isinstance(size, tuple) else (size, size)
    net = Net()
    image, kernel = net.input(1, 16, rows, columns), form.get("kernel", 3)
    y = net.conv(image, net.weight(16, 16, kernel, kernel), pad=form.get("pad", 1), stride=form.get("stride", 1))
    flags = ordinary_of(winograd(net.build(y), ARITHMETIC_COUNTS))
    (x,) = random_inputs(flags)
    assert ordinary(flags, x).all()
    for place in itertools.product(range(0, rows, 2), range(columns)):
        x[0, channels, *place], usual = np.nan, x[0, channels, *place].copy()
        reads = ~ordinary(flags, x)
        assert reads.any()
        for value in (1e7, -3e38):
            x[0, channels, *place] = value
            np.testing.assert_array_equal(~ordinary(flags, x), reads)
        x[0, channels, *place] = usual


def test_dark_and_bright_images_are_ordinary():
    net, y = convolution(size=12)
    flags = ordinary_of(winograd(net.build(y), ARITHMETIC_COUNTS))
    (x,) = random_inputs(flags)
    assert all(ordinary(flags, np.multiply(x, factor, dtype=np.float32)).all() for factor in (0, 1e-15, 1, 1e12))


def test_sparse_images_are_ordinary():
    """Of each channel one pixel in fifty, as behind some rectifiers."""
    net, y = convolution(64, 64, 28)
    flags = ordinary_of(winograd(net.build(y), ARITHMETIC_COUNTS))
    (x,) = random_inputs(flags)
    rng = np.random.default_rng(0)
    assert ordinary(flags, np.maximum(x, 0) * (rng.random(x.shape) < 0.04)).all()


def test_weights_that_are_not_finite_stay():
    net = Net()
    w = np.ones((32, 32, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    x = net.input(1, 32, 12, 12)
    y = net.add("Conv", x, net.constant(w), strides=(1, 1), dilations=(1, 1), pads=(1,) * 4, group=1)
    assert kinds(winograd(finite_weights.run(net.build(y)), ARITHMETIC_COUNTS)) == ["Conv"]


ALL = {by for taps in range(1, 12) for by in filterings(taps)}


@pytest.mark.parametrize("by", ALL, ids=lambda by: f"F({by.outputs}, {by.taps})")
def test_filtering_is_exact_in_one_dimension(by):
    """Integers small enough that only the matrix G is rounded, to 53 bits."""
    size = TensorType(DType.FLOAT64, (by.size,))
    d = [load(0, size, [i]) for i in range(by.size)]
    products = [load(1, size, [p]) * value for p, value in enumerate(by.data(d))]
    scalar = TensorType(DType.FLOAT64, ())
    results = tuple(Output(type=scalar, indices=(), body=body) for body in by.result(products))

    data, taps = np.arange(1.0, by.size + 1) ** 2, np.array([3.0, -5.0, 7.0, 2.0, -1.0])[: by.taps]
    found = evaluate(TensorExpr(axes=(), inputs=(size, size), outputs=results), [data, by.filter @ taps])
    np.testing.assert_allclose(np.array(found, np.float64), np.correlate(data, taps), rtol=1e-13)


@pytest.mark.parametrize("by", ALL, ids=lambda by: f"F({by.outputs}, {by.taps})")
def test_points_differ(by):
    assert len(set(by.points)) == by.size - 1
    assert set(by.points) == {-point for point in by.points} ^ {*by.single, *(-point for point in by.single)}


def test_groups_of_taps_go_with_tiles_as_long():
    def found(taps):
        return [(by.outputs, by.taps) for by in filterings(taps)]

    assert found(3) == [(1, 1), (2, 3), (4, 3)]
    assert found(5) == [(1, 1), (4, 4), (4, 5)]
    assert found(11) == [(1, 1), (4, 4)]
    assert filtering(4, 4) is filterings(11)[1]


def test_branches_on_parts_of_one_value_stay_equal():
    """Loads at the border have to read the parts, so all loads do: parts by their place would differ."""
    net = Net()
    x = net.input(1, 64, 12, 12)
    branches = [net.conv(net.part(x, 1, start, 32), net.weight(48, 32, 3, 3), pad=1) for start in (0, 32)]
    graph = rewritten(net.build(*branches), run_for(), inline_views.run)
    first, second = (operator.expr for operator in graph.operators if operator.kind == "ConvInputTransform")
    assert first == second


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
    assert outputs_of(winograd(graph, replace(H200, products_reach_peak=True))) is None
    assert outputs_of(winograd(graph, H200)) == 4


def test_dear_handovers_forbid_it_there_too():
    dear = Figure(10.0, "nominal: a test")
    assert unchanged(between_images(192, 384, 13), run_for(replace(H200, handover_us=dear)))


def test_branches_have_their_share_of_the_units():
    """Enough work for some units is too little for all."""
    assert outputs_of(winograd(between_images(64, 64, 32), H200)) is None
    assert outputs_of(winograd(between_images(64, 64, 32, branches=16), H200)) == 4
    assert outputs_of(winograd(between_images(64, 64, 8, branches=16), H200)) is None


def filtered_before(graph, without):
    """What the pass makes of a graph where a pass that follows it is left out."""
    following = itertools.dropwhile(lambda entry: entry[0] != "winograd", PASSES)
    rest = [run for name, run in following if name not in ("winograd", without)]
    return winograd_pass.run(graph, H200, lambda part, device: reduce(lambda now, run: run(now, device), rest, part))


def test_what_the_passes_that_follow_make_of_it_counts():
    """Its long sum is split, or a convolution of few pixels would take longer than three operators."""
    graph = between_images(512, 64, 8)
    assert outputs_of(winograd(graph, H200)) is None
    assert outputs_of(filtered_before(graph, without="split_reduction")) == 2
