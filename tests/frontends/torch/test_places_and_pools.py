"""Places, moves, pools and sizes in PyTorch's rarer forms, against eager PyTorch."""

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional
aten = torch.ops.aten

from rammer import errors  # noqa: E402 - after the check for PyTorch
from tests.support.torch_modules import check, generator, imported, integers, normal  # noqa: E402

pytestmark = pytest.mark.torch

X = normal(2, 3, 4)
POINT, FIRST = torch.tensor(1.5), torch.tensor(0)


@pytest.mark.parametrize("index", [FIRST, FIRST[None]], ids=["point", "line"])
def test_a_tensor_without_dimensions_is_a_line_of_one_element(index):
    source = POINT - 4
    check(lambda x, i: (x.gather(0, i), x.index_select(0, i), x.index_fill(0, i, 3.0)), POINT, index)
    check(lambda x, i, s: (x.index_copy(0, i, s), x.index_add(0, i, s, alpha=2)), POINT, index, source)
    check(lambda x, i, s: x.index_reduce(0, i, s, "prod"), POINT, index, source)
    source = source.expand(index.shape)
    check(lambda x, i, s: (x.scatter(0, i, s), x.scatter(0, i, 4.0), x.scatter_add(0, i, s)), POINT, index, source)
    check(lambda x, i, s: x.scatter_reduce(0, i, s, "mean"), POINT, index, source)


def test_windows_of_a_tensor_without_dimensions():
    check(lambda x: (x.unfold(0, 1, 1), x.flip(0)), POINT)


def test_a_row_by_a_position_without_dimensions():
    check(lambda x, i: (x.index_fill(1, i, 3.0), x.index_select(1, i)), X, torch.tensor(2))
    check(lambda x, i, s: x.index_copy(1, i, s), X, torch.tensor(2), normal(2, 1, 4))


def test_a_mask_that_broadcasts_the_tensor():
    mask = normal(2, 3, 4) > 0
    check(lambda x, m, s: x.masked_scatter(m, s), normal(4), mask, normal(24))
    check(lambda x, m, s: x.masked_scatter(m, s), X, mask[0], normal(24))


def test_elements_put_by_their_numbers():
    order = torch.tensor([[5, 0], [-1, 7]])
    check(lambda x, v: (x.put(order, v), x.put(order % 3, v, accumulate=True)), X, normal(2, 2))
    check(lambda x, v: x.put(FIRST, v), POINT, POINT + 1)
    check(lambda x, v: x.put(order % 3, v, accumulate=True), X > 0, torch.tensor([[True, False], [False, False]]))


def test_sums_of_truth_values():
    places, given = torch.tensor([0, 2, 0]), normal(2, 3, 4) > 1
    check(lambda x, v: (x.index_add(1, places, v), x.index_add(1, places, v, alpha=False)), X > 0, given)
    index = integers(2, 3, 4, low=0, high=3)
    check(lambda x, v: (x.scatter_add(1, index, v), x.scatter_add(1, index[:1, :, :2], v)), X > 0, given)
    check(lambda x, v: x.index_put((places,), v, accumulate=True), given[0].clone(), X[0] > 0)


@pytest.mark.parametrize("include_self", [False, True])
def test_extremes_of_truth_values(include_self):
    index = integers(2, 3, 4, low=0, high=3)
    for reduce in ("amax", "amin"):
        check(lambda x, v, r=reduce: x.scatter_reduce(1, index, v, r, include_self=include_self), X > 0, X > 1)


@pytest.mark.parametrize("accumulate", [False, True])
def test_positions_of_dimensions_that_are_not_side_by_side(accumulate):
    first, last = torch.tensor([1, 0]), torch.tensor([3, -1])

    def put(x, values):
        return aten.index_put(x, [first, None, last], values, accumulate)

    check(put, X, normal(2, 3))
    check(put, X, POINT)


def test_replicated_edges_where_the_other_end_cuts_off_all():
    x = normal(1, 2, 4, 4)
    for pads in ((-4, 5, 0, 0), (0, 0, 2, -4), (5, -4, -4, 5), (6, -5, 1, -1), (-5, 6, -1, 3), (-4, 4, 0, 0)):
        check(lambda x, pads=pads: F.pad(x, pads, mode="replicate"), x)


def test_views_that_are_copied():
    check(lambda x: (aten.permute_copy(x, [2, 0, 1]), aten.transpose_copy(x, 0, -1), aten.t_copy(x[0])), X)
    check(lambda x: (aten.narrow_copy(x, 1, 1, 2), aten.narrow_copy(x, 0, -2, 1), aten.narrow_copy(x, -1, -3, 2)), X)
    check(lambda x: (aten.select_copy(x, 1, -1), aten.slice_copy(x, 2, 1, None, 2), aten.alias_copy(x)), X)
    check(lambda x: (aten.unbind_copy(x, 1), aten.split_copy(x, 3, -1), aten.split_with_sizes_copy(x, [1, 3], 2)), X)
    check(lambda x: (aten.unsqueeze_copy(x, 1), aten.squeeze_copy(x[:1]), aten.detach_copy(x)), X)
    check(lambda x: (aten.squeeze_copy(x[:1], 0), aten.expand_copy(x[:, :1], [5, 2, 3, -1])), X)
    check(lambda x: (aten.as_strided_copy(x, [2, 2], [3, 2], 1), aten.view_copy(x, [6, 4])), X)
    check(lambda x: (aten.diagonal_copy(x, 1, 1, 2), aten.unfold_copy(x, 2, 3, 1)), X)


def test_memory_that_a_tensor_is_a_part_of():
    memory = normal(4, 5)
    part = memory.view(-1)[4:12]
    check(lambda x: (x.as_strided((2, 2), (2, 1)), x.as_strided((2, 3), (2, 1), 5)), part)
    check(lambda x: x[1].as_strided((2, 2), (2, 1), 6), memory)
    check(lambda x, v: x.as_strided_scatter(v, (2,), (3,), 4), part, normal(2))
    for size, offset in (((2,), 0), ((2,), 3), ((2,), 11), ((9,), 4)):
        with pytest.raises(errors.UnsupportedFeatureError, match="beside"):
            imported(lambda x, size=size, offset=offset: x.as_strided(size, (1,), offset), part)


@pytest.mark.parametrize(
    ("extents", "out"),
    [((7,), (3,)), ((5, 7), (3, 4)), ((5, 7), (9, 4)), ((5, 6), (None, 4)), ((4, 5, 6), (3, 5, 4))],
)
def test_greatest_of_windows_that_differ_in_size(extents, out):
    pool = getattr(F, f"adaptive_max_pool{len(extents)}d")
    size = out[0] if len(out) == 1 else out
    check(lambda x: pool(x, size, return_indices=True), normal(2, 3, *extents))
    check(lambda x: pool(x, size), normal(3, *extents))
    check(lambda x: pool(x, size, return_indices=True), torch.zeros(1, 2, *extents))


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 3, 0), (3, 3, 1), (3, None, 0)])
def test_sums_of_windows_by_a_divisor_where_the_last_reaches_beyond(rank, kernel, stride, padding):
    pool = getattr(F, f"avg_pool{rank}d")

    def sums(x):
        return [pool(x, kernel, stride, padding, ceil_mode=ceil, divisor_override=5) for ceil in (True, False)]

    check(sums, normal(2, 3, *(7, 8, 9)[:rank]))


@pytest.mark.parametrize(
    ("extents", "kernel", "out"),
    [((7, 9), (2, 3), (3, 4)), ((7, 9), 3, (1, 5)), ((6, 7, 8), (2, 3, 2), (3, 2, 4))],
)
def test_windows_that_begin_where_samples_say(extents, kernel, out):
    pool, rank = getattr(F, f"fractional_max_pool{len(extents)}d"), len(extents)
    samples = torch.rand(2, 3, rank, generator=generator())

    def pooled(x, samples, return_indices=True):
        return pool(x, kernel, output_size=out, return_indices=return_indices, _random_samples=samples)

    check(pooled, normal(2, 3, *extents), samples)
    check(lambda x, s: pooled(x, s, return_indices=False), normal(3, *extents), samples[:1])


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("scales", [(0.8, 1.0), (1.7, 0.45), (0.33, 2.2), (1.05, 1.0)])
def test_scale_factors_that_are_no_quotients_of_extents(kind, align_corners, scales):
    def resized(x):
        options = {"scale_factor": scales, "mode": kind, "align_corners": align_corners}
        return [F.interpolate(x, antialias=antialias, **options) for antialias in (True, False)]

    check(resized, normal(2, 3, 10, 20))


@pytest.mark.parametrize("align_corners", [True, False])
def test_windows_that_widen_between_aligned_corners(align_corners):
    def resized(x):
        options = {"align_corners": align_corners, "antialias": True}
        sizes = ((5, 8), (13, 3), (1, 3), (10, 9))
        return [F.interpolate(x, size, mode=mode, **options) for size in sizes for mode in ("bilinear", "bicubic")]

    check(resized, normal(1, 2, 10, 7))
    check(lambda x: aten._upsample_bilinear2d_aa(x, [6, 3], align_corners, 0.7, 0.4), normal(1, 2, 10, 7))


def test_a_window_beyond_all_elements_is_empty():
    check(lambda x: aten._upsample_bilinear2d_aa(x, [2, 3], False, 0.3, None), normal(1, 2, 1, 3))


@pytest.mark.parametrize("scale", [1.05, 2.05, 0.6])
def test_scale_factors_of_lines_and_volumes(scale):
    for kind, shape in (("linear", (1, 2, 9)), ("trilinear", (1, 1, 4, 5, 6))):
        check(lambda x, kind=kind: F.interpolate(x, scale_factor=scale, mode=kind), normal(*shape))


@pytest.mark.parametrize("scale", [1.05, 2.05, 1.6, 0.6])
@pytest.mark.parametrize("kind", ["nearest", "nearest-exact"])
def test_scale_factors_of_nearest_elements(kind, scale):
    """PyTorch asks no scale factor for an equal or doubled extent, of planes alone."""
    for shape in ((1, 2, 17), (1, 2, 17, 12), (1, 1, 4, 5, 17)):
        check(lambda x: F.interpolate(x, scale_factor=scale, mode=kind), normal(*shape))


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align_corners", [True, False])
def test_bytes_between_bytes(kind, align_corners):
    def resized(x):
        options = {"mode": kind, "align_corners": align_corners}
        sizes = ({"size": (5, 8)}, {"size": (11, 30)}, {"scale_factor": (1.7, 0.45)})
        return [F.interpolate(x, antialias=wide, **size, **options) for wide in (True, False) for size in sizes]

    check(resized, integers(2, 5, 11, 17, low=0, high=256, dtype=torch.uint8))


def test_bounds_that_are_truth_values():
    given = torch.tensor([True, False, True, False])
    check(lambda x, y: (x.clamp(min=y), torch.clamp_max(x, y), x.clamp(0, 1)), given, given.flip(0) & given)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_averages_of_integers_are_cut_off(rank):
    pool = getattr(F, f"avg_pool{rank}d")
    x = integers(2, 3, *(7, 8, 9)[:rank], low=-50, high=50)
    check(lambda x: (pool(x, 3, 2, 1), pool(x, 3, 2, 1, count_include_pad=False, ceil_mode=True)), x)
    with pytest.raises(errors.UnsupportedFeatureError, match="divisor_override"):
        imported(lambda x: F.avg_pool2d(x, 2, divisor_override=3), integers(1, 4, 4))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32])
def test_sums_of_small_integers(dtype):
    x = integers(3, 4, low=-100, high=100).to(dtype)
    check(lambda x: (torch.einsum("ij->i", x), torch.einsum("ij->", x), torch.outer(x[0], x[1])), x)
    if dtype is not torch.bool:
        check(lambda x: (torch.einsum("ij,kj->ik", x, x), torch.einsum("ij,ij->", x, x)), x)
