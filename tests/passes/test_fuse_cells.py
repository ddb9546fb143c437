"""Products by weights that several operators share join the elementwise work that alone reads them."""

from dataclasses import replace
from functools import partial

import pytest

from rammer.devices.registry import find_device
from rammer.options import CompileOptions
from rammer.passes import eliminate_dead, fuse, fuse_cells, inline_views
from rammer.tiling.pattern import contraction
from tests.support.passes import Net, expression_of, rewritten, unchanged

H200 = find_device("cuda:sm_90").describe(CompileOptions())
UNITS, WIDTH = 32, 24
PASSES = (inline_views.run, eliminate_dead.run, fuse.run, eliminate_dead.run)


def on(device=H200):
    return partial(fuse_cells.run, device=device)


def gemm(net, x, w, b):
    return net.add("Gemm", x, w, b, alpha=1.0, beta=1.0, trans_a=False, trans_b=True)


def part(net, x, batch, number):
    attributes = {"starts": (0, number * UNITS), "steps": (1, 1), "sizes": (batch, UNITS)}
    return net.add("Slice", x, **attributes)


def cells(batch=1, steps=2, *, shared=True, keep=False):
    """Steps of h' = sigmoid(s[:UNITS]) * tanh(s[UNITS:]) with s = x w + b + h r + c."""
    net = Net()
    h, outputs, weights = net.input(batch, UNITS), [], None
    for _ in range(steps):
        if weights is None or not shared:
            shapes = ((2 * UNITS, WIDTH), (2 * UNITS,), (2 * UNITS, UNITS), (2 * UNITS,))
            weights = [net.weight(*shape) for shape in shapes]
        w, b, r, c = weights
        sums = net.add("Add", gemm(net, net.input(batch, WIDTH), w, b), gemm(net, h, r, c))
        gate = net.add("Sigmoid", part(net, sums, batch, 0))
        h = net.add("Mul", gate, net.add("Tanh", part(net, sums, batch, 1)))
        outputs += [sums] if keep else []
    return net.build(h, *outputs)


@pytest.mark.parametrize("batch", [1, 3])
def test_a_cell_is_one_expression(batch):
    after = rewritten(cells(batch), *PASSES, on())
    assert len(after.operators) == 2
    for operator in after.operators:
        found = contraction(expression_of(operator))
        assert found is not None
        assert len(found.terms) == 4
        assert operator.kind.startswith("Gemm+Gemm+Add")
        assert {source.op_type for source in operator.sources} >= {"Gemm", "Add", "Sigmoid", "Tanh", "Mul"}


@pytest.mark.parametrize(
    ("graph", "device"),
    [
        pytest.param(cells(shared=False), H200, id="weights of one step"),
        pytest.param(cells(), replace(H200, stationary_bytes=0), id="nothing is kept"),
        pytest.param(cells(), replace(H200, stationary_bytes=64), id="too little is kept"),
        pytest.param(cells(100), H200, id="many rows"),
    ],
)
def test_other_products_stay(graph, device):
    assert unchanged(rewritten(graph, *PASSES), on(device))


def test_sums_that_others_read_stay():
    after = rewritten(cells(keep=True), *PASSES, on())
    assert [operator.kind.startswith("Gemm+Gemm+Add") for operator in after.operators] == [True, False] * 2


def test_sums_that_are_read_twice_stay():
    """Each would be computed for every row of what is added."""
    net = Net()
    w, b = net.weight(UNITS, WIDTH), net.weight(UNITS)
    rows = [net.add("Add", gemm(net, net.input(1, WIDTH), w, b), net.input(4, UNITS)) for _ in range(2)]
    assert unchanged(rewritten(net.build(*rows), *PASSES), on())
