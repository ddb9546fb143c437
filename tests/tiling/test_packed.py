"""Weights of few bits in expressions: which they are, and what only looks alike."""

import pytest

from rammer.ir.expr import Axis, Call, cast, const, load
from rammer.ir.types import DType, TensorType
from rammer.tiling.packed import packed_number, packed_weight, weight_of
from tests.support.operators import expression

ROWS, DEPTH, BLOCK = 24, 128, 32
BLOCKS = DEPTH // BLOCK
F16, F32, U8 = DType.FLOAT16, DType.FLOAT32, DType.UINT8
N, K = Axis("n", ROWS), Axis("k", DEPTH)


def product(bits, *zeros, scale=F16):
    x, w = TensorType(F32, (DEPTH,)), TensorType(U8, (ROWS, DEPTH * bits // 8))
    return expression("MatMulNBits", [x, w, TensorType(scale, (ROWS, BLOCKS)), *zeros], bits=bits, block=BLOCK)


def weight(bits=4, zero=None, scale=None, position=K):
    number = packed_number(1, TensorType(U8, (ROWS, DEPTH)), N, position, bits)
    return weight_of(number, const(8, F32) if zero is None else zero, floats(2, K // BLOCK) if scale is None else scale)


def floats(slot, position, dtype=F16):
    return cast(F32, load(slot, TensorType(dtype, (ROWS, DEPTH)), (N, position)))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["none", "packed", "floats"])
def test_the_operator_s_weights(bits, zeros):
    types = {"packed": TensorType(U8, (ROWS, -(-BLOCKS * bits // 8))), "floats": TensorType(F32, (ROWS, BLOCKS))}
    expr = product(bits, *([types[zeros]] if zeros in types else []))
    (reduction,) = expr.reductions
    assert isinstance(reduction.body, Call)
    found = packed_weight(reduction.body.args[1])
    assert found is not None
    assert (found.bits, found.block, found.axis) == (bits, BLOCK, reduction.axes[0])
    assert [found.load.slot, *(one.slot for one in found.parameters)] == [1, 2, *([3] if zeros in types else [])]


@pytest.mark.parametrize(
    "other",
    [
        floats(1, K),
        weight(scale=floats(2, K // BLOCK) * 2.0),
        weight(scale=floats(2, Axis("b", BLOCKS))),
        weight(zero=floats(3, K)),
        weight(zero=floats(3, K // 16)),
        weight(zero=packed_number(3, TensorType(U8, (ROWS, BLOCKS)), N, K // 16, 4)),
        weight(zero=packed_number(3, TensorType(U8, (ROWS, BLOCKS)), N, K // BLOCK, 2)),
        weight(zero=floats(3, K // BLOCK) + 1.0),
        weight(position=K + N),
        weight_of(floats(1, K), const(8, F32), floats(2, K // BLOCK)),
    ],
    ids=[
        "a float",
        "a computed scale",
        "a scale of something else",
        "a zero point of each element",
        "zero points of other blocks",
        "packed zero points of other blocks",
        "packed zero points of other bits",
        "a computed zero point",
        "other elements",
        "an integer that is a float",
    ],
)
def test_what_is_none(other):
    assert packed_weight(other) is None
