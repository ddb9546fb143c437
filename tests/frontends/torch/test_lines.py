"""Operators along lines against eager PyTorch: running sums of exponentials, order, distances, counts and products."""

import math

import pytest

torch = pytest.importorskip("torch")

from tests.support.torch_modules import check, integers, normal  # noqa: E402 - after the check for PyTorch

pytestmark = pytest.mark.torch

X = normal(2, 3, 4)
ENDLESS, NAN = math.inf, math.nan
LEVELS = torch.tensor([[3.0, 1.0, NAN, 1.0, 3.0, 2.0], [NAN, 5.0, NAN, NAN, -ENDLESS, ENDLESS], [NAN] * 6])


def test_running_sums_of_exponentials():
    check(lambda x: (x.logcumsumexp(1), x.double().logcumsumexp(-1), x.sum().logcumsumexp(0)), X)
    check(lambda x: x.logcumsumexp(0), normal(37, 2))
    check(lambda x: x.half().logcumsumexp(0).float(), normal(37, 2), tolerance=1e-3)
    check(lambda x: x.logcumsumexp(0), normal(0, 2))


def test_running_sums_of_exponentials_that_are_far_apart():
    steep = torch.linspace(-3000, 3000, 41)
    check(lambda x: (x.logcumsumexp(0), x.flip(0).logcumsumexp(0)), steep)
    # Relative to the result, which a sum beside the line's maximum would lose.
    check(lambda x: x.logcumsumexp(0)[:-1], torch.tensor([-500.0, -501.0, -500.5, 400.0]))
    check(lambda x: x.logcumsumexp(0), torch.tensor([0.0, -12.0, -14.0]).double(), tolerance=1e-12)


def test_running_sums_of_exponentials_of_infinities():
    check(lambda x: x.logcumsumexp(0), torch.tensor([-ENDLESS, -ENDLESS, 0.0, ENDLESS, 1.0, -ENDLESS, ENDLESS]))
    check(lambda x: x.logcumsumexp(0), torch.tensor([1.0, -ENDLESS, ENDLESS, NAN, 1.0, ENDLESS]))


def test_median_of_what_is_a_number():
    check(lambda x: (x.nanmedian(), *x[:2].nanmedian(1), x.nanmedian(0, keepdim=True).values), LEVELS)
    check(lambda x: x.nanmedian(1).values, LEVELS)
    check(lambda x: (x.nanmedian(), *x.nanmedian(1), *x.sum().nanmedian(0)), integers(3, 5))
    check(lambda x: (x.half().nanmedian(), *X[0].nanmedian(-1)), X)
    check(lambda x: (x.nanmedian(), x.median()), normal(0))


def test_most_frequent_elements():
    check(lambda x: (*x.mode(), *x.mode(0), *x.mode(1, keepdim=True)), integers(4, 6, 5, low=0, high=3))
    check(lambda x: (*x.mode(), *(x > 0).mode(0), *x.sum().mode()), X)
    check(lambda x: x.mode(0).values, integers(200, 3, low=-20, high=20))
    check(lambda x: (*x[:, :1].mode(), *x[2:].mode()), LEVELS)


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, math.inf, -math.inf])
def test_distance(p):
    check(lambda x, y: (torch.dist(x, y, p), torch.dist(x, y[0, 0], p), torch.dist(x, x.round(), p)), X, X.flip(0))


@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, math.inf])
def test_distances_of_rows(p):
    def distances(x, y):
        return torch.cdist(x, y, p), torch.cdist(x, y[:1], p), torch.pdist(y[0], p), torch.pdist(x[0, :1], p)

    check(distances, X, integers(2, 5, 4, low=-1, high=2).float())
    check(distances, X[..., :0], X[..., :0])


@pytest.mark.parametrize("p", [0, 1, 2, 3])
def test_distances_of_rows_that_are_no_numbers(p):
    rows = torch.tensor([[1.0, NAN], [1.0, 2.0], [1.0, 3.0]])
    check(lambda x: (torch.cdist(x, x[1:], p), torch.pdist(x, p)), rows)


def test_sum_of_products():
    a, b, c = normal(3, 2, 4), normal(3, 4, 5), normal(2, 5)
    check(lambda c, a, b: (c.addbmm(a, b), c[0].addbmm(a, b, alpha=0.5), c.addbmm(a, b, beta=2, alpha=-1)), c, a, b)
    check(lambda c, a, b: (c.addbmm(a, b, beta=0), c.addbmm(a[..., :0], b[:, :0], beta=3)), c * NAN, a, b)
    check(lambda c, a, b: c.addbmm(a, b, beta=3, alpha=2), integers(2, 5), integers(3, 2, 4), integers(3, 4, 5))


def test_what_is_added_to_a_product_does_not_count_times_0():
    check(
        lambda c, a, b: (c[0].addmv(a, b, beta=0), c.addmm(a, a, beta=0)), X[0, :3, :3] * NAN, X[0, :3, :3], X[1, 0, :3]
    )


@pytest.mark.parametrize("bins", [1, 3, 10])
def test_counts_over_the_range_of_elements(bins):
    check(lambda x: (x.histc(bins), x.histc(bins, 1, 1), x[0, 0, 0].histc(bins), x.double().histc(bins, -1, 1)), X)
    check(lambda x: (x.histc(bins), x.histc(bins, 0, 3)), torch.ones(4))
    check(lambda x: (x.histc(bins), x.histc(bins, -1, 1)), normal(0, 3))


@pytest.mark.parametrize("density", [False, True])
def test_histograms(density):
    bins = torch.tensor([-1.0, -0.5, 0.25, 0.25, 2.0])

    def histograms(x, bins, weight):
        options = {"density": density}
        return (
            *torch.histogram(x, 4, **options),
            *torch.histogram(x, 7, range=(-1.0, 1.5), weight=weight, **options),
            *torch.histogram(x, bins, weight=weight, **options),
            *torch.histogram(x.double(), bins.double(), **options),
        )

    check(histograms, X, bins, normal(2, 3, 4).abs())


def test_histograms_at_edges():
    on_edges = torch.tensor([0.0, 1.0, 1.0, 2.0, 3.0, -1.0, NAN, 4.0])
    check(lambda x: (*torch.histogram(x, 3, range=(0.0, 3.0)), *torch.histogram(x, torch.arange(4.0))), on_edges)
    check(lambda x: torch.histogram(x, torch.tensor([0.0, 1.0, 1.0, 3.0, 3.0])), on_edges)
    check(lambda x: (*torch.histogram(x, 4), *torch.histogram(x, 4, range=(1.0, 1.0))), torch.ones(3))
    check(lambda x: (*torch.histogram(x, 4), *torch.histogram(x, torch.arange(4.0))), normal(0))
