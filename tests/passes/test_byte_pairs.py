"""Products of two quantised values from float16: the same integers, where float32 holds every sum."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.reference.device import describe
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.kernel_form import Instruction
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts
from rammer.passes import byte_pairs
from rammer.verify.graph import verify
from tests.support.passes import Net

RNG = np.random.default_rng(6)
WITH = replace(describe(2), byte_products=ByteProducts.PLAIN, instructions=(Instruction.MMA_F16,))


def numbers(net, x, zero, scale):
    """Quantised integers: as int32, or with a scale as float32."""
    centred = net.add("Centre", x, *(() if zero is None else (zero,)))
    if scale is None:
        return centred
    return net.add("Mul", net.add("Cast", centred, to=DType.FLOAT32), net.constant(np.float32(scale).reshape(1)))


def product(left=(2, 5, 258), right=(2, 258, 7), *, zero=131, scaled=True, computed=False, constant=False):
    net = Net()
    a = net.input(*left, dtype=DType.UINT8)
    b = (
        net.constant(RNG.integers(-128, 128, right).astype(np.int8))
        if constant
        else net.input(*right, dtype=DType.INT8)
    )
    point = net.input(dtype=DType.UINT8) if computed else net.constant(np.array(zero, np.uint8))
    operands = numbers(net, a, point, 0.02 if scaled else None), numbers(net, b, None, 0.5 if scaled else None)
    return net.build(net.add("MatMul", *operands))


def kinds(graph):
    return [operator.kind for operator in graph.operators]


@pytest.mark.parametrize("options", [{}, {"zero": 0}, {"computed": True}, {"left": (4, 64), "right": (3, 64, 5)}])
@pytest.mark.parametrize("scaled", [True, False])
def test_sums_are_exact(options, scaled):
    graph = product(**options, scaled=scaled)
    after = byte_pairs.run(graph, WITH)
    verify(after)
    (made,) = [operator for operator in after.operators if operator.kind == "MatMulHalves"]
    assert made.expr is not None
    assert [type_.dtype for type_ in made.expr.inputs] == [DType.FLOAT16, DType.FLOAT16]
    inputs = []
    for type_ in (graph.values[value].type for value in graph.inputs):
        ends = np.iinfo(type_.dtype.numpy)
        inputs.append(RNG.choice([ends.min, ends.max, 3], type_.shape).astype(type_.dtype.numpy))
    (found,), (wanted,) = evaluate_graph(after, inputs), evaluate_graph(graph, inputs)
    if scaled:
        most = float(np.abs(wanted.astype(np.float64)).max())
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-5 * most)
    else:
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "options",
    [
        {"left": (2, 5, 259), "right": (2, 259, 7)},
        {"left": (2, 1, 64), "right": (2, 64, 7)},
        {"constant": True},
    ],
    ids=["long sums", "a vector", "weights"],
)
def test_others_stay(options):
    assert "MatMulHalves" not in kinds(byte_pairs.run(product(**options), WITH))


@pytest.mark.parametrize(
    "device", [describe(2), replace(WITH, byte_products=ByteProducts.QUADS), replace(WITH, instructions=())]
)
def test_devices_that_do_not_multiply_so_keep_their_graphs(device):
    graph = product()
    assert byte_pairs.run(graph, device) is graph
