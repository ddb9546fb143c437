"""Operators that models of libraries use, fewer of them each, against eager PyTorch."""

import math

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

from rammer.errors import UnsupportedFeatureError  # noqa: E402 - after the check for PyTorch
from tests.support.torch_modules import check, generator, imported, integers, normal  # noqa: E402

pytestmark = pytest.mark.torch

X = normal(2, 3, 4)
PLACES = integers(2, 3, 4, low=0, high=3)
MANY = integers(2, 40, 4, low=0, high=3)
"""More updates than each result looks at."""


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_with_a_reduction(reduce, include_self):
    def scattered(x, index, source):
        return x.scatter_reduce(1, index, source, reduce, include_self=include_self)

    check(scattered, X, PLACES, X + 1)
    check(scattered, X, MANY, normal(2, 40, 4))
    check(scattered, X, PLACES[:1, :, :2], X + 1)
    check(scattered, integers(2, 3, 4), PLACES, integers(2, 3, 4, low=-9))
    check(scattered, torch.tensor([[[1.0], [math.inf], [2.0]]]), PLACES[:1, :, :1], torch.tensor([[[math.nan]] * 3]))


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_rows_combined_by_positions(reduce):
    places = torch.tensor([0, 2, 0])
    check(lambda x, v: x.index_reduce(1, places, v, reduce), X, X + 1)
    check(lambda x, v: x.index_reduce(1, places, v, reduce, include_self=False), X, X + 1)


def test_scatter_into_a_part_of_the_other_dimensions():
    whole, order = normal(4, 5, 6), torch.tensor([2, 0, 4])[None, :, None].expand(2, 3, 4)
    check(lambda w, v: (w.scatter(1, order, v), w.scatter(1, order, 7.0), w.scatter_add(1, order % 3, v)), whole, X)
    check(lambda w, v: (w.scatter(1, order, v, reduce="add"), w.scatter(1, order, v, reduce="multiply")), whole, X)


def test_scatter_at_many_positions():
    order = torch.randperm(40, generator=generator())[None, :, None].expand(1, 40, 4)
    check(lambda w, v: w.scatter(1, order, v), normal(2, 40, 4), normal(1, 40, 4))


def test_elements_in_order_at_the_places_of_a_mask():
    mask = X > 0
    check(lambda x, m, s: x.masked_scatter(m, s), X, mask, normal(30))
    check(lambda x, m, s: x.masked_scatter(m, s), X, mask[:1, :, :1], normal(24))


def test_diagonals_and_views_that_are_written():
    check(lambda x, d: x.diagonal_scatter(d, 1, 0, 1), X, normal(4, 2))
    check(lambda x, d: x.diagonal_scatter(d, -1, 1, 2), X, normal(2, 2))
    check(lambda x: x[0].clone().fill_diagonal_(5.0), X)
    check(lambda x, v: torch.as_strided_scatter(x, v, (2, 3), (12, 2), 1), X, normal(2, 3))


def test_views_of_what_lies_in_another_order():
    def windows(x):
        turned = (x * 2).transpose(0, 2)
        return turned.as_strided((3, 4, 2), (4, 2, 1), 2), turned.as_strided((24,), (1,))

    check(windows, X)


def test_indices_of_triangles():
    check(lambda x: x[:, *torch.tril_indices(3, 4, 1)] * torch.triu_indices(3, 4).sum(), X)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(mode):
    table, positions = normal(6, 3), integers(8, low=0, high=6)
    check(lambda w, i: F.embedding_bag(i.view(2, 4), w, mode=mode), table, positions)
    check(lambda w, i, o: F.embedding_bag(i, w, o, mode=mode), table, positions, torch.tensor([0, 3, 3, 7]))
    ends = torch.tensor([0, 3, 3, 8])
    check(lambda w, i: F.embedding_bag(i, w, ends, mode=mode, include_last_offset=True), table, positions)
    check(lambda w, i: F.embedding_bag(i.view(2, 4), w, mode=mode, padding_idx=1), table, positions)


def test_weighted_bags_of_embeddings():
    weights = normal(2, 4)
    table, positions = normal(6, 3), integers(2, 4, low=0, high=6)
    check(lambda w, i, p: F.embedding_bag(i, w, mode="sum", per_sample_weights=p), table, positions, weights)


@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
def test_elements_between_elements(padding_mode):
    grid = torch.rand(1, 3, 5, 2, generator=generator()) * 2.6 - 1.3

    def sampled(x, grid):
        options = {"padding_mode": padding_mode}
        smooth = [F.grid_sample(x, grid, align_corners=aligned, **options) for aligned in (True, False)]
        return smooth, [F.grid_sample(x, grid, mode, align_corners=False, **options) for mode in ("nearest", "bicubic")]

    check(sampled, normal(1, 2, 6, 4), grid)
    points = torch.rand(2, 2, 2, 2, 3, generator=generator()) * 2.6 - 1.3
    check(
        lambda x, g: F.grid_sample(x, g, align_corners=False, padding_mode=padding_mode), normal(2, 1, 3, 4, 5), points
    )


def test_running_products():
    check(lambda x: (x.cumprod(1), (x * 9).long().cumprod(0), x.sum().cumprod(0)), X)


def test_running_extremes():
    check(lambda x: (*x.cummax(1), *x.cummin(0), x.cummax(-1).values, *x.sum().cummax(0)), X)
    ties = integers(4, 50, low=-2, high=3)
    check(lambda x: (*x.cummax(1), *x.cummin(1), *(x > 1).cummax(0)), ties)
    holes = ties.float()
    holes[:, 20:40:7] = math.nan
    check(lambda x: (*x.cummax(1), *x.cummin(1)), holes)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("unitriangular", [False, True])
def test_triangular_systems(upper, left, unitriangular):
    a, options = normal(3, 5, 5) / 5 + torch.eye(5), {"upper": upper, "left": left, "unitriangular": unitriangular}
    a = a.triu() if upper else a.tril()
    check(lambda a, b: torch.linalg.solve_triangular(a, b, **options), a, normal(3, 5, 5))
    check(lambda a, b: torch.linalg.solve_triangular(a, b, **options), a[:1], normal(2, 1, 5, 5))
    check(lambda a, b: torch.linalg.solve_triangular(a, b, **options), a[:, :1, :1], normal(1, 1))


def test_medians():
    check(lambda x: (*x.median(1), *x.median(-1, keepdim=True), x.median(), *x.kthvalue(2, 1), *x.kthvalue(3)), X)
    holes = torch.tensor([[3.0, math.nan, 1.0], [2.0, 5.0, math.inf]])
    check(lambda x: (*x.median(1), x.median()), holes)
    check(lambda x: (x.median(0).values, x.median()), integers(5, 3))
    check(lambda x: (*x.median(0), x.median(), *x.kthvalue(1)), torch.tensor(3.0))


def test_bits_that_are_shifted():
    for dtype in (torch.int64, torch.int32, torch.int8, torch.uint8):
        x = integers(9, low=0 if dtype is torch.uint8 else -100, high=100, dtype=dtype)
        most = torch.iinfo(dtype).bits - 1
        check(lambda x, most=most: (x << 1, x >> 2, x << 0, x >> most, torch.bitwise_right_shift(x, 3)), x)
    with pytest.raises(UnsupportedFeatureError, match="shifted"):
        imported(lambda x, n: x << n, integers(3), integers(3, low=0))


def test_lengths_and_signs():
    a = torch.tensor([0.0, -0.0, 1.0, -1.0, 3e30, 3e-30, math.inf, -math.inf, math.nan])
    check(torch.hypot, a.repeat(9), a.repeat_interleave(9))
    check(lambda x, y: (torch.copysign(x, y), torch.signbit(y)), a.repeat(8), a[:8].repeat_interleave(9))
    check(torch.signbit, integers(5))


def test_the_inverse_of_the_error_function():
    ends = torch.tensor([1.0, -1.0, 0.0, 1.5, math.nan, 0.999999, -0.9999, 1e-20])
    check(torch.erfinv, torch.cat([torch.linspace(-0.9999, 0.9999, 101), ends]), tolerance=2e-6)
    inside = torch.linspace(-0.9999, 0.9999, 101, dtype=torch.float64)
    check(torch.erfinv, torch.cat([inside, ends.double()]), tolerance=1e-11)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_projections_of_recurrent_layers(bidirectional):
    ways = 1 + bidirectional
    states = (normal(2 * ways, 2, 3), normal(2 * ways, 2, 5))
    options = {"num_layers": 2, "proj_size": 3, "bidirectional": bidirectional}
    torch.manual_seed(0)
    check(torch.nn.LSTM(4, 5, **options), normal(6, 2, 4), states)
    check(torch.nn.LSTM(4, 5, batch_first=True, bias=False, **options), normal(2, 6, 4))


def test_rectified_recurrent_layers_in_both_directions():
    torch.manual_seed(0)
    check(torch.nn.RNN(3, 4, num_layers=2, nonlinearity="relu", bidirectional=True), normal(5, 2, 3))
