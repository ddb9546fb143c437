"""What stays inside an operator is not rounded to 16 bits."""

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.expr import Cast, nodes
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.passes import fuse, unround
from rammer.passes.pipeline import passes_of
from tests.support.kernels import AVX512
from tests.support.passes import Net, expression_of, rewritten

H200 = find_device("cuda:sm_90").describe(CompileOptions())


def run(graph):
    return unround.run(graph, H200)


def roundings(graph):
    """How often results are rounded to 16 bits inside of operators."""
    bodies = nodes(*(root for operator in graph.operators for root in expression_of(operator).roots))
    return sum(isinstance(node, Cast) and node.type.is_half for node in bodies)


def chain(dtype):
    net = Net()
    x = net.input(4, 8, dtype=dtype)
    y = net.add("MatMul", x, net.constant(np.eye(8, dtype=dtype.numpy)))
    y = net.add("Add", y, net.constant(np.full(8, 0.3, dtype.numpy)))
    return net.build(net.add("Tanh", net.add("Mul", y, y)))


def test_only_what_is_stored_is_rounded():
    before = fuse.run(chain(DType.FLOAT16))
    after = rewritten(before, run, tolerance=2e-3)
    assert (roundings(before), roundings(after)) == (4, 1)


def test_results_that_others_read_are_rounded_for_them():
    net = Net()
    x = net.add("Exp", net.input(4, 8, dtype=DType.FLOAT16))
    graph = fuse.run(net.build(net.add("Sqrt", x), x))
    after = rewritten(graph, run, tolerance=2e-3)
    assert roundings(after) == 2
    assert [after.values[value].type.dtype for value in after.outputs] == [DType.FLOAT16] * 2


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.FLOAT64])
def test_others_stay(dtype):
    graph = fuse.run(chain(dtype))
    assert run(graph) is graph


def test_roundings_between_others_stay():
    """A conversion to an integer and back is meant."""
    net = Net()
    x = net.add("Exp", net.input(4, 8, dtype=DType.FLOAT16))
    x = net.add("Cast", x, to=DType.INT32)
    graph = fuse.run(net.build(net.add("Cast", x, to=DType.FLOAT16)))
    rewritten(graph, run, tolerance=0)


def test_where_values_are_wide_a_models_own_casts_round():
    net = Net()
    x = net.add("Cast", net.add("Exp", net.input(4, 8)), to=DType.FLOAT16)
    graph = fuse.run(net.build(net.add("Neg", net.add("Cast", x, to=DType.FLOAT32))))
    assert roundings(graph) == 1
    assert unround.run(graph, AVX512) is graph
    assert roundings(run(graph)) == 0


def test_strict_numerics_round():
    assert "unround" in dict(passes_of("default"))
    assert "unround" not in dict(passes_of("strict"))
