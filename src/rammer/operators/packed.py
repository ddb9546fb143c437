"""Products by weights of few bits, which stay as they lie in a model: integers, side by side in bytes."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import Axis, Expr, Reduce, ReduceFn, TensorExpr, cast, const, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import integer
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.shapes import FLOATS, check_dtype, plain_result
from rammer.tiling.packed import PACKED_BITS, packed_number, row_bytes, weight_of


def matmul_n_bits(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`x @ w'`, w being integers of `bits` bits in blocks of `block` elements, which share a scale and a zero point.

    Slots: x `[*batch, k]`; w uint8 `[n, bytes]`, the first number in the lowest bits of a byte; scales `[n, blocks]`;
    optionally zero points, uint8 `[n, bytes]` packed as w, or floats `[n, blocks]`; without them, `2 ** (bits - 1)`.
    Attributes: bits (2, 4 or 8), block: int. Output: `[*batch, n]`, of x's type. Sums are float32.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    x, packed, scales = inputs[:3]
    bits, block = integer(attributes, "bits"), integer(attributes, "block")
    require(x.rank > 0 and x.dtype.compute is DType.FLOAT32, f"MatMulNBits of {x}")
    require(bits in PACKED_BITS and block > 0, f"MatMulNBits of {bits} bits in blocks of {block}")
    *outer, depth = x.shape
    blocks = -(-depth // block)
    require(packed.rank == 2 and packed.dtype is DType.UINT8, f"MatMulNBits by {packed}")
    rows, width = packed.shape
    require(width >= row_bytes(depth, bits), f"MatMulNBits of {x} by {packed} of {bits} bits")
    n, k = Axis("n", rows), Axis("k", depth)
    check_dtype("MatMulNBits", scales, FLOATS)
    require(scales.shape == (rows, blocks), f"MatMulNBits by {packed} with scales {scales}, not {[rows, blocks]}")
    zero = _zero(inputs[3], rows, blocks, n, k // block, bits) if len(inputs) > 3 else const(1 << (bits - 1), _F32)
    weight = weight_of(packed_number(1, packed, n, k, bits), zero, cast(_F32, load(2, scales, (n, k // block))))
    axes = tuple(Axis(f"b{dim}", extent) for dim, extent in enumerate(outer))
    product = Reduce(ReduceFn.SUM, (k,), load(0, x, (*axes, k)) * weight)
    return plain_result(inputs, x.dtype, (*axes, n), product)


_F32 = DType.FLOAT32


def _zero(type_: TensorType, rows: int, blocks: int, row: Expr, block: Expr, bits: int) -> Expr:
    """The zero point of a block, in float32."""
    is_packed = type_.dtype is DType.UINT8
    if not is_packed:
        check_dtype("MatMulNBits", type_, FLOATS)
    shape = (rows, row_bytes(blocks, bits) if is_packed else blocks)
    require(type_.shape == shape, f"MatMulNBits with zero points {type_}, not {list(shape)}")
    return packed_number(3, type_, row, block, bits) if is_packed else cast(_F32, load(3, type_, (row, block)))


register(OperatorDef(kind="MatMulNBits", build=matmul_n_bits))
