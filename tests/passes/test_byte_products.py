"""Products of quantised numbers in integers: what becomes of them, and that nothing but rounding changes."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.reference.device import describe
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import Graph
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts
from rammer.passes import byte_products, inline_views
from rammer.verify.graph import verify
from tests.support.passes import Net

RNG = np.random.default_rng(3)
WITH = replace(describe(2), byte_products=ByteProducts.QUADS)
PLAIN = replace(WITH, byte_products=ByteProducts.PLAIN)
PRODUCTS = {"ConvBytes", "GemmBytes", "MatMulBytes"}


def run(graph, device=WITH):
    after = byte_products.run(graph, device)
    verify(after)
    return after


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def numbers(net, x, zero, scale):
    """Quantised integers as float32."""
    centred = net.add("Centre", x, *(() if zero is None else (net.constant(zero),)))
    return net.add("Mul", net.add("Cast", centred, to=DType.FLOAT32), net.constant(np.asarray(scale, np.float32)))


def convolution(dtype=np.uint8, zero=0, channels=8, features=12, kernel=3, pad=1, group=1, weights=None, scales=None):
    net = Net()
    x = net.input(2, channels, 9, 10, dtype=DType.of(np.zeros(0, dtype)))
    if weights is None:
        weights = integers(np.int8, features, channels // group, kernel, kernel)
    if scales is None:
        scales = RNG.uniform(0.01, 0.1, (features, 1, 1, 1))
    w = numbers(net, net.constant(weights), None, scales)
    y = net.conv(numbers(net, x, np.array(zero, dtype), 0.02), w, net.weight(features), pad=pad, group=group)
    return net.build(net.add("Relu", y))


def matrix_product(x_shape=(3, 5, 20), columns=6, zero=7, dtype=np.uint8, kind="MatMul", wide=False, **attributes):
    net = Net()
    x = net.input(*x_shape, dtype=DType.of(np.zeros(0, dtype)))
    transposed = attributes.get("trans_b", False)
    shape = (columns, x_shape[-1]) if transposed else (x_shape[-1], columns)
    scales = RNG.uniform(0.01, 0.1, (columns, 1) if transposed else (columns,))
    point = integers(np.int8, *shape) if wide else None
    w = numbers(net, net.constant(integers(np.int8, *shape)), point, scales)
    return net.build(net.add(kind, numbers(net, x, np.array(zero, dtype), 0.02), w, **attributes))


def check(graph: Graph, after: Graph) -> None:
    """The same numbers but for the rounding of sums, for integers of all values."""
    assert {operator.kind for operator in after.operators} & PRODUCTS
    inputs = [integers(graph.values[value].type.dtype.numpy, *graph.values[value].type.shape) for value in graph.inputs]
    for found, wanted in zip(evaluate_graph(after, inputs), evaluate_graph(graph, inputs), strict=True):
        scale = float(np.abs(wanted.astype(np.float64)).max())
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-4 * scale)


@pytest.mark.parametrize(("zero", "channels"), [(5, 8), (0, 3)])
def test_padding_of_bytes_stays_in_memory(zero, channels):
    """Around an image, and where channels are filled up to whole quads: four bytes are one load."""
    graph = convolution(zero=zero, channels=channels)
    after = inline_views.run(run(graph))
    (product,) = [operator for operator in after.operators if operator.kind == "ConvBytes"]
    assert product.expr is not None
    image = product.expr.inputs[0]
    assert image.shape == ((2, 8, 11, 12) if zero else (2, 4, 9, 10))
    assert {load.fill is None for load in product.expr.loads if load.slot == 0} == {zero != 0}
    check(graph, after)


@pytest.mark.parametrize("device", [WITH, PLAIN], ids=["quads", "plain"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 5])
@pytest.mark.parametrize(("channels", "pad"), [(8, 1), (6, 0), (3, 2)])
def test_convolutions(dtype, zero, channels, pad, device):
    graph = convolution(dtype, zero, channels=channels, pad=pad)
    check(graph, run(graph, device))


def test_bytes_that_are_multiplied_as_they_lie():
    """int8 is not made unsigned, weights are not cut, and a vector is left to what streams matrices."""
    graph = matrix_product((4, 18), dtype=np.int8, zero=-3)
    after = run(graph, PLAIN)
    check(graph, after)
    (product,) = [operator for operator in after.operators if operator.kind == "MatMulBytes"]
    assert product.expr is not None
    assert [(type_.dtype, type_.shape) for type_ in product.expr.inputs] == [
        (DType.INT8, (4, 20)),
        (DType.INT8, (20, 6)),
    ]
    vector = matrix_product((1, 18))
    assert [operator.kind for operator in run(vector, PLAIN).operators] == [one.kind for one in vector.operators]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"x_shape": (4, 18), "dtype": np.int8, "zero": -3},
        {"x_shape": (4, 18), "kind": "Gemm", "alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": True},
        {"x_shape": (1, 64), "kind": "Gemm", "alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": False},
    ],
    ids=["matmul", "int8", "transposed", "vector"],
)
def test_matrix_products(options):
    graph = matrix_product(**options)
    check(graph, run(graph))


def test_the_padding_is_in_memory_where_it_does_not_stand_for_0():
    assert "Pad" not in {operator.kind for operator in run(convolution(zero=0)).operators}
    assert "Pad" in {operator.kind for operator in run(convolution(zero=9)).operators}


@pytest.mark.parametrize("computed", [False, True])
def test_integers_stay_exact(computed):
    """Sums of int32, with a zero point that is known or computed as the model runs."""
    net = Net()
    x, w = net.input(5, 300, dtype=DType.UINT8), net.constant(integers(np.int8, 300, 7))
    zero = net.input(dtype=DType.UINT8) if computed else net.constant(np.array(131, np.uint8))
    graph = net.build(net.add("MatMul", net.add("Centre", x, zero), net.add("Centre", w)))
    after = run(graph)
    assert "MatMulBytes" in {operator.kind for operator in after.operators}
    inputs = [integers(np.uint8, *graph.values[value].type.shape) for value in graph.inputs]
    np.testing.assert_array_equal(evaluate_graph(after, inputs)[0], evaluate_graph(graph, inputs)[0])


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("point", [0, 117, 128, 140, 255])
def test_weights_that_int8_does_not_hold(point, computed):
    """They stay exact: with padding, channels that are filled up, and a zero point of x or none."""
    for kind, shape, pad in (("MatMul", (5, 302), 0), ("Conv", (1, 6, 7, 5), 1)):
        net = Net()
        x = net.input(*shape, dtype=DType.UINT8)
        zero = net.input(dtype=DType.UINT8) if computed else net.constant(np.array(131, np.uint8))
        weights = integers(np.uint8, *((302, 7) if kind == "MatMul" else (12, 6, 3, 3)))
        operands = (
            net.add("Centre", x, zero),
            net.add("Centre", net.constant(weights), net.constant(np.array(point, np.uint8))),
        )
        graph = net.build(net.conv(*operands, pad=pad) if kind == "Conv" else net.add(kind, *operands))
        after = run(graph)
        products = sum(operator.kind == f"{kind}Bytes" for operator in after.operators)
        assert products == (1 if point == 128 else 2)
        inputs = [integers(np.uint8, *graph.values[value].type.shape) for value in graph.inputs]
        np.testing.assert_array_equal(evaluate_graph(after, inputs)[0], evaluate_graph(graph, inputs)[0])


def test_padding_stands_for_a_zero_point_that_is_computed():
    net = Net()
    x, zero = net.input(1, 8, 6, 7, dtype=DType.UINT8), net.input(dtype=DType.UINT8)
    weights = net.add("Centre", net.constant(integers(np.int8, 12, 8, 3, 3)))
    graph = net.build(net.conv(net.add("Centre", x, zero), weights, pad=1))
    after = run(graph)
    assert {"ConvBytes", "Where"} <= {operator.kind for operator in after.operators}
    given = [integers(np.uint8, 1, 8, 6, 7), np.array(200, np.uint8)]
    np.testing.assert_array_equal(evaluate_graph(after, given)[0], evaluate_graph(graph, given)[0])


@pytest.mark.parametrize(
    "graph",
    [
        convolution(group=4),
        convolution(features=2),
        matrix_product(wide=True),
        convolution(scales=RNG.uniform(0.01, 0.1, (1, 8, 1, 1))),
        matrix_product(x_shape=(20,)),
        matrix_product(x_shape=(2, 65_796)),
        matrix_product(x_shape=(4, 18), kind="Gemm", alpha=2.0, beta=1.0, trans_a=False, trans_b=False),
    ],
    ids=["groups", "few features", "more than 8 bits", "scales by channel", "vector", "sums beyond int32", "factor"],
)
def test_what_stays_as_it_is(graph):
    assert run(graph) is graph


def test_a_device_without_the_instruction_keeps_numbers():
    graph = convolution()
    assert run(graph, describe(2)) is graph
