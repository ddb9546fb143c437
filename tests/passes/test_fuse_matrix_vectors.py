"""Streamed products of vectors take in normalisations, elementwise work on their vectors, and gates."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.passes import eliminate_dead, fuse, fuse_matrix_vectors, inline_numbers, inline_views
from rammer.tiling.gemv_rows import matrix_vector
from tests.support.passes import Net, expression_of, kinds, only, rewritten, unchanged

H200 = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
STREAMING = replace(H200, stationary_bytes=0)
SIZE, POINTS = 256, 40


def fused(graph, device=STREAMING, tolerance=1e-5):
    steps = (inline_numbers.run, inline_views.run, eliminate_dead.run, fuse.run)
    return rewritten(
        graph, *steps, lambda g: fuse_matrix_vectors.run(g, device), eliminate_dead.run, tolerance=tolerance
    )


def number(net, value, dtype=np.float32):
    return net.constant(np.asarray(value, dtype))


def root_mean_square(net, x, dtype=np.float32, *, divides=False):
    """What x is multiplied with, or divided by, to have the mean square 1."""
    square = net.add("Pow", x, number(net, 2.0, dtype))
    mean = net.add("ReduceMean", square, axes=(1,), keepdims=True)
    root = net.add("Sqrt", net.add("Add", mean, number(net, 1e-5, dtype)))
    return root if divides else net.add("Reciprocal", root)


def normalised(net, x):
    return net.add("Mul", net.add("Mul", x, root_mean_square(net, x)), net.weight(SIZE))


def product(net, x, points=POINTS):
    return net.add("MatMul", x, net.weight(SIZE, points))


def test_a_normalisation_is_part_of_the_product_behind_it():
    net = Net()
    graph = fused(net.build(product(net, normalised(net, net.input(1, SIZE)))))
    assert kinds(graph) == ["MatMul"]
    found = matrix_vector(expression_of(graph.operators[0]))
    assert found is not None
    assert (len(found.rows), len(found.wholes)) == (1, 1)


def test_a_normalisation_that_divides():
    net = Net()
    x = net.input(1, SIZE)
    y = net.add("Div", x, root_mean_square(net, x, divides=True))
    assert kinds(fused(net.build(product(net, y)))) == ["MatMul"]


def test_a_normalisation_that_is_one_operator():
    net = Net()
    x = product(net, net.input(1, SIZE), SIZE)
    y = net.add("RMSNormalization", x, net.weight(SIZE), axis=1, epsilon=1e-5)
    graph = fused(net.build(product(net, y)))
    assert kinds(graph) == ["MatMul", "MatMul"]
    found = matrix_vector(expression_of(graph.operators[1]))
    assert found is not None
    assert (len(found.rows), len(found.wholes)) == (1, 1)


def test_all_products_behind_a_normalisation_compute_it():
    net = Net()
    y = normalised(net, net.input(1, SIZE))
    assert kinds(fused(net.build(product(net, y), product(net, y, 64)))) == ["MatMul", "MatMul"]


def test_squares_that_were_stored_beside_the_vector_are_computed_again():
    net = Net()
    x = net.add("Add", product(net, net.input(1, SIZE), SIZE), net.input(1, SIZE))
    graph = fused(net.build(x, product(net, normalised(net, x))))
    assert len(graph.operators) == 2
    assert graph.operators[1].kind == "MatMul"


def test_elementwise_work_on_a_vector():
    net = Net()
    y = product(net, net.add("Tanh", net.add("Mul", net.input(1, SIZE), net.input(1, SIZE))))
    assert kinds(fused(net.build(y))) == ["MatMul"]


def test_a_gate_and_what_it_gates_are_one_operator():
    net = Net()
    x = normalised(net, net.input(1, SIZE))
    gate = product(net, x)
    gate = net.add("Mul", gate, net.add("Sigmoid", gate))
    graph = fused(net.build(net.add("Mul", gate, product(net, x))))
    (operator,) = graph.operators
    found = matrix_vector(expression_of(operator))
    assert found is not None
    assert (len(found.rows), len(found.wholes), len(found.others)) == (2, 1, 1)
    assert {source.op_type for source in operator.sources} == {"MatMul", "Mul", "Sigmoid"}


def test_a_gate_with_another_number_of_dimensions():
    net = Net()
    x = net.input(1, SIZE)
    gate = net.add("Reshape", net.add("Sigmoid", product(net, x)), shape=(1, 1, POINTS))
    graph = fused(net.build(net.add("Mul", net.add("Reshape", product(net, x), shape=(1, 1, POINTS)), gate)))
    assert len(graph.operators) == 1


def test_a_gate_that_others_read_stays():
    net = Net()
    x = net.input(1, SIZE)
    gate = net.add("Tanh", product(net, x))
    graph = net.build(gate, net.add("Mul", gate, product(net, x)))
    assert len(fused(graph).operators) == 2


def test_products_in_a_row_stay_apart():
    net = Net()
    graph = net.build(product(net, net.add("Tanh", product(net, net.input(1, SIZE), SIZE))))
    assert len(fused(graph).operators) == 2


@pytest.mark.parametrize("axes", [(1,), (0, 1)], ids=["of another vector", "of two axes"])
def test_scales_of_other_sums_stay(axes):
    net = Net()
    x, other = net.input(1, SIZE), net.input(1, 2 * SIZE)
    scale = net.add("ReduceMean", net.add("Mul", other, other), axes=axes, keepdims=True)
    graph = fused(net.build(product(net, net.add("Mul", x, scale))))
    assert len(graph.operators) > 1


def test_rounding_to_16_bits_on_the_way_is_left_out():
    net = Net()
    x = net.input(1, SIZE, dtype=DType.FLOAT16)
    half = np.float16
    y = net.add("Mul", x, root_mean_square(net, x, half))
    weight = net.constant(np.random.default_rng(1).standard_normal((SIZE, POINTS)).astype(half))
    graph = fused(net.build(net.add("MatMul", y, weight)), tolerance=2e-3)
    assert kinds(graph) == ["MatMul"]
    assert str(expression_of(only(graph, "MatMul"))).count("float16(") == 1  # of the result


@pytest.mark.parametrize(
    "device",
    [replace(STREAMING, streams_rows=False), replace(STREAMING, stationary_bytes=1 << 30)],
    ids=["by columns", "weights stay"],
)
def test_devices_that_do_not_stream_rows(device):
    net = Net()
    graph = net.build(product(net, net.add("Tanh", net.input(1, SIZE))))
    assert unchanged(graph, lambda g: fuse_matrix_vectors.run(g, device))


def test_more_rows_are_not_streamed():
    net = Net()
    graph = net.build(product(net, net.add("Tanh", net.input(3, SIZE))))
    assert unchanged(graph, lambda g: fuse_matrix_vectors.run(g, STREAMING))
