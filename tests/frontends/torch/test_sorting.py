"""Elements in order, places in an order and histograms, against eager PyTorch: ties, NaN, negative dimensions."""

import math

import pytest

torch = pytest.importorskip("torch")

import rammer  # noqa: E402 - after the check for PyTorch
from tests.support.torch_modules import Function, check  # noqa: E402

pytestmark = pytest.mark.torch

X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(7))

TIES = torch.tensor(
    [[2.0, -1.0, math.nan, 2.0, math.inf, -0.0, 0.0], [1.0, 1.0, math.nan, -math.inf, math.nan, 3.0, 1.0]]
)
LINE = torch.tensor([-1.0, 0.0, 0.0, 0.5, 2.0, 2.0, 7.0])


def stable(descending, dim):
    return lambda x: torch.sort(x, stable=True, dim=dim, descending=descending)


CASES = {
    "sort": (lambda x: (*stable(False, -1)(x), *stable(True, 0)(x), *stable(True, -2)(x)), (TIES,)),
    "sort_values": (lambda x: (x.sort().values, x.sort(0, descending=True).values, x.msort()), (TIES,)),
    "sort_integers": (
        lambda x: (*stable(False, 1)(x), *stable(True, -1)(x > 0)),
        (torch.tensor([[3, -5, 3, 0], [0, 7, -5, 0]]),),
    ),
    "argsort": (lambda x: (x.argsort(dim=-1, stable=True), x.argsort(dim=0, descending=True, stable=True)), (TIES,)),
    "argsort_distinct": (lambda x: (x.argsort(), x.argsort(-2, descending=True)), (X,)),
    "topk": (lambda x: (*x.topk(3), *x.topk(2, dim=-2, largest=False), *x.topk(0)), (X,)),
    "topk_ties": (lambda x: (x.topk(5).values, x.topk(4, -1, largest=False).values), (TIES,)),
    "topk_places": (lambda x: x.gather(1, x.topk(5).indices), (TIES,)),
    "of_a_number": (lambda x: (*x.sort(), *x.topk(1), x.argsort()), (torch.tensor(3.0),)),
    "one_element": (lambda x: (*x.sort(1), *x.topk(1)), (X[:, :1, :1],)),
    "search": (lambda s, v: (torch.searchsorted(s, v), torch.searchsorted(s, v, right=True)), (LINE, TIES)),
    "search_lines": (lambda s, v: torch.searchsorted(s, v, side="right", out_int32=True), (TIES.sort().values, TIES)),
    "search_sorter": (lambda s, v: torch.searchsorted(s, v, sorter=s.argsort(stable=True)), (TIES, X[0, :2])),
    "search_number": (lambda s: (torch.searchsorted(s, 0.0), torch.searchsorted(s.int(), 2.5)), (LINE,)),
    "search_nothing": (torch.searchsorted, (LINE[:0], TIES)),
    "bucketize": (lambda v, s: (torch.bucketize(v, s), torch.bucketize(v, s, right=True)), (TIES, LINE)),
    "histc": (
        lambda x: (x.histc(10, 0, 1), x.histc(3, -1, 1)),
        (torch.cat([torch.linspace(0, 1, 11), TIES.flatten()]),),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_order(name):
    function, args = CASES[name]
    check(function, *args)


def test_order_on_a_processor():
    def ordered(x, edges):
        return x.sort(stable=True), x.topk(2, 0), torch.searchsorted(edges, x), x.histc(10, 0, 1)

    x = torch.cat([TIES, torch.linspace(0, 1, 21).reshape(3, 7)])
    with torch.no_grad():
        net = rammer.compile(Function(ordered).eval(), "cpu", args=(x, LINE), veus=1)
        found, expected = net(x, LINE), ordered(x, LINE)
    torch.testing.assert_close(found[0], tuple(expected[0]), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(found[1][0], expected[1].values, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(found[2:], expected[2:], rtol=0, atol=0)
