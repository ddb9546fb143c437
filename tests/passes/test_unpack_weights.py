"""Weights of few bits become floats, or stay as they are where a device streams them."""

from dataclasses import replace

import numpy as np
import pytest

from rammer.devices.registry import find_device
from rammer.ir.evaluate import evaluate
from rammer.ir.types import DType
from rammer.options import CompileOptions
from rammer.passes import unpack_weights
from tests.support.kernels import AVX512
from tests.support.passes import Net, expression_of, kinds, only, rewritten, unchanged

H200 = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
STREAMING = replace(H200, stationary_bytes=0)
BLOCK, RNG = 32, np.random.default_rng(0)


def product(net, x, *, points=12, depth=1024, bits=4, zeros=False, scales=None, known=True):
    """A product by random integers; scales are random float32."""
    packed = RNG.integers(256, size=(points, depth * bits // 8)).astype(np.uint8)
    found = RNG.uniform(0.01, 0.1, (points, depth // BLOCK)).astype(np.float32) if scales is None else scales
    weights = net.constant(packed) if known else net.input(*packed.shape, dtype=DType.UINT8)
    operands = [weights, net.constant(found)]
    if zeros:
        operands.append(net.constant(RNG.integers(256, size=(points, depth // BLOCK * bits // 8)).astype(np.uint8)))
    return net.add("MatMulNBits", x, *operands, bits=bits, block=BLOCK)


def unpacked(graph, device, tolerance=1e-5):
    return rewritten(graph, lambda g: unpack_weights.run(g, device), tolerance=tolerance)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_processor_multiplies_by_floats(bits, zeros, monkeypatch):
    monkeypatch.setattr(unpack_weights, "_CHUNK_ELEMENTS", 5 * 128)  # several chunks, the last one smaller
    net = Net()
    before = net.build(product(net, net.input(2, 3, 128), depth=128, bits=bits, zeros=zeros))
    graph = unpacked(before, AVX512)
    assert kinds(graph) == ["MatMul"]
    assert [value.shape for value in graph.constants.values()] == [(128, 12)]
    # As the operator computes it of a row of zeros and a 1, that is each weight, bit for bit.
    expr, operator = expression_of(before.operators[0]), before.operators[0]
    ones = np.zeros(expr.inputs[0].shape, np.float32)
    ones[0, 0, 5] = 1
    (row,) = evaluate(expr, [ones, *(before.constants[value] for value in operator.inputs[1:])])
    (matrix,) = graph.constants.values()
    np.testing.assert_array_equal(row[0, 0], matrix[5])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_stay_where_they_are_streamed(precision):
    net, device = Net(), replace(STREAMING, precision=precision)
    graph = unpacked(net.build(product(net, net.input(1, 1, 1024), scales=np.full((12, 32), 0.25, np.float32))), device)
    (operator,) = graph.operators
    assert operator.kind == "MatMulNBits"
    assert [type_.dtype for type_ in expression_of(operator).inputs] == [DType.FLOAT32, DType.UINT8, DType.FLOAT16]


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("fp32", DType.FLOAT32), ("tf32", DType.FLOAT32), ("fp16", DType.FLOAT16), ("bf16", DType.BFLOAT16)],
)
def test_scales_are_rounded_where_that_was_asked_for(precision, dtype):
    net = Net()
    graph = net.build(product(net, net.input(1, 1024)))
    found = unpacked(graph, replace(STREAMING, precision=precision), tolerance=1e-2)
    assert expression_of(only(found, "MatMulNBits")).inputs[2].dtype is dtype


@pytest.mark.parametrize(
    ("rows", "depth", "device"),
    [(2, 1024, STREAMING), (1, 96, STREAMING), (1, 1024, H200)],
    ids=["two rows", "short rows", "less than is worth it"],
)
def test_weights_that_are_not_streamed(rows, depth, device):
    net = Net()
    assert kinds(unpacked(net.build(product(net, net.input(rows, depth), depth=depth)), device)) == ["MatMul"]


def test_weights_that_are_no_constants_stay():
    net = Net()
    graph = net.build(product(net, net.input(1, 64), depth=64, known=False))
    assert unchanged(graph, lambda g: unpack_weights.run(g, AVX512))
