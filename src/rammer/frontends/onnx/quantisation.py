"""Numbers as integers of few bits, `number = (integer - zero point) * scale`, and back; ONNX's QuantizeLinear says how.

Scales and zero points are one for all elements, one for each position along an axis, or one for each block along it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, part, repeated, reshaped
from rammer.frontends.node import ModelNode
from rammer.frontends.onnx.codes import recast
from rammer.ir.types import DType
from rammer.operators.quantised import BYTES

_RANGES = {
    DType.UINT2: (0, 3),
    DType.INT2: (-2, 1),
    DType.UINT4: (0, 15),
    DType.INT4: (-8, 7),
    **{
        dtype: (int(np.iinfo(dtype.value).min), int(np.iinfo(dtype.value).max))
        for dtype in (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)
    },
}
"""The least and the greatest number of each integer type that numbers are quantised to."""

_FLOATS = (DType.FLOAT8E4M3FN, DType.FLOAT8E4M3FNUZ, DType.FLOAT8E5M2, DType.FLOAT8E5M2FNUZ, DType.FLOAT4E2M1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grain:
    """Which elements share a scale: those of a position along `axis`, or of `block` positions (0: no blocks)."""

    axis: int = 0
    block: int = 0

    def spread(self, node: ModelNode, values: Operand, shape: tuple[int, ...]) -> Operand:
        """Scales or zero points in a shape that broadcasts to that of the elements.

        Raises:
            InvalidModelError: they do not fit.
        """
        if values.type.size == 1:
            return reshaped(node, values, ())
        axis = node.axis(self.axis, len(shape))
        if not self.block:
            if values.shape != (shape[axis],):
                raise node.invalid(f"{values.type} for {shape[axis]} positions along dimension {axis} of {list(shape)}")
            return reshaped(node, values, (shape[axis], *(1 for _ in shape[axis + 1 :])))
        blocks = -(-shape[axis] // self.block)
        if self.block < 0 or values.shape != (*shape[:axis], blocks, *shape[axis + 1 :]):
            raise node.invalid(f"{values.type} for blocks of {self.block} along dimension {axis} of {list(shape)}")
        return part(node, repeated(node, values, axis, self.block), axis, 0, shape[axis])


WHOLE = Grain()
"""One scale for all elements."""


def quantised(
    node: ModelNode,
    x: Operand,
    scale: Operand,
    zero: Operand | None,
    to: DType,
    *,
    grain: Grain = WHOLE,
    precision: DType | None = None,
    saturate: bool = True,
    moved_first: bool = False,
) -> Operand:
    """Numbers divided by their scale, rounded to nearest (of two to the even one), moved by the zero point, clipped.

    Args:
        node: what it is done for.
        x: the numbers.
        scale: spread as `grain` says.
        zero: of type `to`, spread likewise; None is 0.
        to: an integer type of up to 16 bits, or a float of up to 8.
        grain: which elements share a scale.
        precision: the type of the quotient; None is that of the scale.
        saturate: as for `recast`.
        moved_first: as for `nearest`.

    Raises:
        InvalidModelError: the operands do not fit.
        UnsupportedFeatureError: another type is asked for.
    """
    divisor = recast(node, grain.spread(node, scale, x.shape), precision or _number(scale.dtype))
    quotient = node.add("Div", converted(node, x, divisor.dtype), divisor)
    wide = DType.FLOAT64 if quotient.dtype is DType.FLOAT64 else DType.FLOAT32
    point = None if zero is None else grain.spread(node, zero, x.shape)
    return nearest(node, converted(node, quotient, wide), point, to, saturate=saturate, moved_first=moved_first)


def nearest(
    node: ModelNode,
    quanta: Operand,
    zero: Operand | None,
    to: DType,
    *,
    saturate: bool = True,
    moved_first: bool = False,
) -> Operand:
    """Numbers in quanta, float32 or float64, as quantised ones; the zero point broadcasts to them.

    With `moved_first` they are moved by it before they are rounded: what lies between two integers then goes to the
    other one where the zero point is odd.

    Raises:
        UnsupportedFeatureError: `to` is no type for quantised numbers.
    """
    if to not in _RANGES and to not in _FLOATS:
        raise node.unsupported(f"numbers quantised to {to.value}")
    result = node.add("Round", quanta) if to in _RANGES and not moved_first else quanta
    if zero is not None and not is_zero(zero):
        result = node.add("Add", result, recast(node, zero, quanta.dtype))
    if to in _RANGES and moved_first:
        result = node.add("Round", result)
    if to in _RANGES:
        lower, upper = _RANGES[to]
        result = node.add("Clip", result, lower=float(lower), upper=float(upper))
    return recast(node, result, to, saturate=saturate)


def dequantised(
    node: ModelNode, x: Operand, scale: Operand, zero: Operand | None, to: DType, *, grain: Grain = WHOLE
) -> Operand:
    """What quantised numbers stand for, computed in float32.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    if x.dtype in _FLOATS:
        number = recast(node, x, DType.FLOAT32)
        if zero is not None and not is_zero(zero):
            number = node.add("Sub", number, recast(node, grain.spread(node, zero, x.shape), DType.FLOAT32))
    else:
        number = converted(
            node, centred(node, x, None if zero is None else grain.spread(node, zero, x.shape)), DType.FLOAT32
        )
    factor = recast(node, grain.spread(node, scale, x.shape), DType.FLOAT32)
    return converted(node, node.add("Mul", number, factor), to)


def centred(node: ModelNode, x: Operand, zero: Operand | None) -> Operand:
    """Quantised integers less their zero point, which broadcasts to them, as int32."""
    if x.dtype in BYTES:
        zeros = () if zero is None or is_zero(zero) else (zero,)
        return node.add("Centre", x, *zeros)
    number = recast(node, x, DType.INT32)
    return number if zero is None or is_zero(zero) else node.add("Sub", number, recast(node, zero, DType.INT32))


def is_zero(zero: Operand) -> bool:
    """Whether a zero point is known to be 0."""
    return zero.array is not None and not zero.array.astype(np.float32).any()


def _number(dtype: DType) -> DType:
    """The type that is computed with for scales of a type."""
    return DType.FLOAT32 if dtype.is_code else dtype
