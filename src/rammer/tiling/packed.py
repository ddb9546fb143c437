"""Weights of few bits: integers that lie side by side in bytes, in blocks that share a scale and a zero point.

    weight[n, k] = (number(packed[n, k // p], k % p) - zero[n, k // block]) * scale[n, k // block]

`p` numbers of `bits` bits are a byte, the first in its lowest bits. Zero points are packed likewise, or floats, or one
number for all blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

from rammer.ir.expr import Axis, Call, Cast, Const, Expr, Load, ScalarFn, call, cast, load, nodes
from rammer.ir.types import DType, TensorType
from rammer.tiling.pattern import plain_load

BYTE_BITS = 8
PACKED_BITS = (2, 4, 8)
"""How many bits a number may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """A weight of few bits.

    Attributes:
        load: the byte that it lies in.
        bits: of a number.
        block: how many elements along `axis` have a scale in common.
        axis: what is summed over.
        zero: the zero point, in float32.
        scale: the scale, in float32.
        parameters: what zero point and scale load.
    """

    load: Load
    bits: int
    block: int
    axis: Axis
    zero: Expr
    scale: Expr
    parameters: tuple[Load, ...]


def row_bytes(numbers: int, bits: int) -> int:
    """The bytes that so many numbers take."""
    return -(-numbers * bits // BYTE_BITS)


def packed_number(slot: int, type_: TensorType, row: Expr, position: Expr, bits: int) -> Expr:
    """A number of a row of packed ones, in float32."""
    return _number(load(slot, type_, (row, _byte_of(position, bits))), position, bits)


def weight_of(number: Expr, zero: Expr, scale: Expr) -> Expr:
    """What a number stands for."""
    return (number - zero) * scale


def packed_weight(weight: Expr) -> PackedWeight | None:
    """A factor of a product as a weight of few bits that lies along one axis; None for any other."""
    match weight:
        case Call(ScalarFn.MUL, (Call(ScalarFn.SUB, (number, zero)), scale)):
            pass
        case _:
            return None
    bytes_read = [node for node in nodes(number) if isinstance(node, Load)]
    scale_load, zero_loads = plain_load(scale), [node for node in nodes(zero) if isinstance(node, Load)]
    if len(bytes_read) != 1 or scale_load is None:
        return None
    (byte,) = bytes_read
    found, (axis, block) = _divided(byte), _divided(scale_load)
    bits = BYTE_BITS // found[1]
    if axis is None or found[0] is not axis or bits not in PACKED_BITS or byte.dtype is not DType.UINT8:
        return None
    if _number(byte, axis, bits) is not number:
        return None
    if not (isinstance(zero, Const) or (len(zero_loads) == 1 and _is_zero(zero, zero_loads[0], axis // block, bits))):
        return None
    parameters = (scale_load, *zero_loads)
    if any(one.fill is not None or axis in nodes(*one.indices[:-1]) for one in (byte, *parameters)):
        return None
    return PackedWeight(load=byte, bits=bits, block=block, axis=axis, zero=zero, scale=scale, parameters=parameters)


def _is_zero(zero: Expr, read: Load, block: Expr, bits: int) -> bool:
    """Whether a zero point is that of a block, as a float or packed."""
    if plain_load(zero) is read:
        return read.indices[-1] is block
    return read.indices[-1] is _byte_of(block, bits) and _number(read, block, bits) is zero


def _divided(read: Load) -> tuple[Axis | None, int]:
    """The axis that the last index of a load is, and what that is divided by."""
    match read.indices:
        case (*_, Axis() as axis):
            return axis, 1
        case (*_, Call(ScalarFn.FLOORDIV, (Axis() as axis, Const(divisor, _)))):
            return axis, int(divisor)
    return None, 1


def _byte_of(position: Expr, bits: int) -> Expr:
    return position // (BYTE_BITS // bits)


def _number(byte: Expr, position: Expr, bits: int) -> Expr:
    """The number at a position of a row whose byte was loaded."""
    if bits == BYTE_BITS:
        return cast(DType.FLOAT32, byte)
    shift = Cast(DType.UINT8, position % (BYTE_BITS // bits) * bits)
    return cast(DType.FLOAT32, call(ScalarFn.BIT_AND, call(ScalarFn.SHIFT_RIGHT, byte, shift), (1 << bits) - 1))
