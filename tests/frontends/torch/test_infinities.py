"""Infinities and NaN stay where they are written, added or read: nothing is multiplied by the zeros around them."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import rammer  # noqa: E402 - after the check for PyTorch
from tests.support.torch_modules import Module, check, check_step, integers, normal  # noqa: E402

pytestmark = pytest.mark.torch


def spoilt(*shape):
    """Normally distributed numbers, with both infinities and NaN among them."""
    x = normal(*shape)
    x.view(-1)[:: x.numel() // 3][:3] = torch.tensor([math.inf, math.nan, -math.inf])
    return x


ROWS = integers(6, low=0, high=5)
PLACES = integers(6, 4, low=0, high=5)
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")

FUNCTIONS = {
    "index_add": lambda x, v: (x.index_add(0, ROWS, v), x.T.index_add(1, ROWS, v.T, alpha=-2)),
    "index_put": lambda x, v: (x.index_put((ROWS,), v, accumulate=True), x.index_put((ROWS,), v)),
    "index_put of points": lambda x, v: x.index_put((ROWS, ROWS % 4), v[:, 0], accumulate=True),
    "index_copy": lambda x, v: x.index_copy(0, torch.tensor([3, 1]), v[:2]),
    "index_reduce": lambda x, v: [x.index_reduce(0, ROWS, v, how) for how in ("prod", "mean", "amax", "amin")],
    "put": lambda x, v: x.put(PLACES, v, accumulate=True),
    "scatter": lambda x, v: (x.scatter(0, PLACES[:1], v[:1]), x.scatter(0, PLACES % 4, v, reduce="add")),
    "scatter_add": lambda x, v: (x.scatter_add(0, PLACES, v), x.scatter_add(0, PLACES[:3, :2], v)),
    "scatter_reduce": lambda x, v: [x.scatter_reduce(0, PLACES, v, how) for how in REDUCTIONS],
    "scatter_reduce of others": lambda x, v: [
        x.scatter_reduce(0, PLACES, v, how, include_self=False) for how in REDUCTIONS
    ],
    "masked_scatter": lambda x, v: x.masked_scatter(x > 0, v),
    "gather": lambda x, v: (v.gather(0, PLACES), v.index_select(0, ROWS), v[ROWS, :2], v.take(PLACES)),
    "embedding_bag": lambda x, v: [
        F.embedding_bag(ROWS, v, torch.tensor([0, 2, 2]), mode="sum"),
        F.embedding_bag(ROWS, v, torch.tensor([0, 2, 2]), mode="mean"),
        F.embedding_bag(ROWS, v.nan_to_num(nan=2, posinf=math.inf, neginf=-math.inf), torch.tensor([0, 2]), mode="max"),
    ],
    "threshold": lambda x, v: F.threshold(v, 0.1, 5.0),
    "softmax of what may be hidden": lambda x, v: torch.ops.aten._safe_softmax(v.masked_fill(x[:1] > 0, -math.inf), 0),
    "choices by one_hot": lambda x, v: torch.where(F.one_hot(ROWS, 4).bool(), v, 0).sum(0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name):
    for x, values in ((normal(5, 4), spoilt(6, 4)), (spoilt(5, 4), normal(6, 4))):
        check(FUNCTIONS[name], x, values)


IMAGES = {
    "averages over windows that share out": lambda x: [
        F.adaptive_avg_pool2d(x, size) for size in ((7, 7), (4, 10), 13)
    ],
    "averages of lines": lambda x: [F.adaptive_avg_pool1d(x.reshape(3, 180), size) for size in (100, 50, 2, 1)],
    "averages of blocks": lambda x: F.adaptive_avg_pool3d(x, (2, 4, 7)),
    "antialiased": lambda x: [
        F.interpolate(x, size=size, mode=mode, antialias=True)
        for mode in ("bilinear", "bicubic")
        for size in ((4, 5), (3, 10), (17, 19), (9, 7))
    ],
    "bilinear": lambda x: [F.interpolate(x, size=(17, size), mode="bilinear") for size in (4, 20)],
    "bicubic, of dimensions that stay, too": lambda x: [
        F.interpolate(x, size=(9, size), mode="bicubic", align_corners=aligned)
        for size in (7, 10)
        for aligned in (False, True)
    ],
}


@pytest.mark.parametrize("name", IMAGES)
def test_images(name):
    check(IMAGES[name], spoilt(2, 3, 9, 10))


SOLUTIONS = {
    "upper": lambda a, b: torch.linalg.solve_triangular(a.triu(), b, upper=True),
    "lower": lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
    "with one factor": lambda a, b: torch.ops.aten.triangular_solve(b, a, upper=False)[0],
    "by Cholesky's factor": lambda a, b: torch.cholesky_solve(b, a.tril()),
}


@pytest.mark.parametrize("name", SOLUTIONS)
def test_rows_of_solutions(name):
    """A row that is not finite reaches those behind it alone, and its own columns."""
    b = normal(5, 3)
    b[3, 1], b[2, 2] = math.nan, math.inf
    check(SOLUTIONS[name], normal(5, 5) + 4 * torch.eye(5), b)


@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_columns_of_orthogonal_factors(mode):
    """A column reaches those behind it alone."""
    a = normal(6, 5)
    a[2, 3] = math.nan
    check(lambda a: torch.linalg.qr(a, mode=mode).R, a)
    check(lambda a: torch.linalg.qr(a, mode=mode).Q[:, :3], a)


GRADIENTS = {
    "embedding": lambda x: F.embedding(ROWS, x),
    "embedding with padding": lambda x: F.embedding(ROWS, x, padding_idx=1),
    "index_select": lambda x: x.index_select(0, ROWS),
    "index": lambda x: x[ROWS],
    "index of points": lambda x: x[ROWS[:, None], torch.arange(4)],
    "gather": lambda x: x.gather(0, PLACES),
    "take": lambda x: x.take(PLACES),
    "index_add": lambda x: torch.zeros(6, 4).index_add(0, torch.tensor([5, 5, 1, 2, 0]), x),
    "scatter_add": lambda x: torch.zeros(6, 4).scatter_add(0, PLACES[:5], x),
}


class Learnt(Module):
    """A tensor that is learnt, where a function looks at it."""

    def __init__(self, function, *shape):
        super().__init__()
        self.weight = torch.nn.Parameter(normal(*shape))
        self.function = function

    def forward(self, weights):
        return (self.function(self.weight) * weights).sum()


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    module = Learnt(GRADIENTS[name], 5, 4)
    check_step(lambda module, w: module(w), module, torch.optim.SGD(module.parameters(), lr=0.1), spoilt(6, 4))


POOLS = {
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (7, 4)),
    "adaptive of blocks": lambda x: F.adaptive_avg_pool3d(x, (2, 4, 7)),
    "side by side": lambda x: F.avg_pool2d(x, 2),
    "apart": lambda x: F.avg_pool2d(x, 2, stride=3),
    "overlapping": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1),
    "without padding": lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
    "divided": lambda x: F.avg_pool2d(x, 3, stride=1, divisor_override=4),
    "blocks": lambda x: F.avg_pool3d(x, 2, stride=1),
    "norms": lambda x: F.lp_pool2d(x, 2, 3, stride=2),
    "responses": lambda x: F.local_response_norm(x, 3),
}


@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_averages(name):
    module = Learnt(POOLS[name], 2, 3, 9, 10)
    weights = spoilt(*POOLS[name](module.weight).shape)
    check_step(lambda module, w: module(w), module, torch.optim.SGD(module.parameters(), lr=0.1), weights)


@pytest.mark.parametrize(("count", "places"), [(20, 6), (300, 6), (300, 3000)])
def test_rows_added_on_the_device(count, places):
    """Few rows, few places for many of them, and many of both, which are sorted."""

    class Added(Module):
        def forward(self, x, index, rows):
            return x.index_add(0, index, rows)

    index = integers(count, low=0, high=places)
    args = normal(places, 5), index, spoilt(count, 5)
    found = rammer.compile(Added().eval(), "cpu", args=args, veus=2)(*args)
    np.testing.assert_allclose(found, Added()(*args), rtol=1e-5, atol=1e-5)
