"""Integers of 8 bits that stand for numbers, `number = (integer - zero point) * scale`."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import TensorExpr, cast, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.shapes import (
    broadcast_load,
    check_broadcasts_to,
    check_dtype,
    check_operands,
    plain_result,
    spatial_axes,
)

BYTES = frozenset({DType.UINT8, DType.INT8})


def centre(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slot 0 less its zero point, as int32: what products of quantised numbers are recognised by (`byte_products`).

    Slots: x, int8 or uint8; optionally the zero point, of x's type, which broadcasts to x. Output: int32, as x.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    check_operands("Centre", inputs, (1, 2))
    check_dtype("Centre", inputs[0], BYTES)
    x = inputs[0]
    axes = spatial_axes(x.shape)
    body = cast(DType.INT32, load(0, x, axes))
    for zero in inputs[1:]:
        check_broadcasts_to("Centre", zero, x.shape)
        require(zero.rank <= x.rank, f"Centre of {x} by {zero}")
        body = body - cast(DType.INT32, broadcast_load(1, zero, axes))
    return plain_result(inputs, DType.INT32, axes, body)


register(OperatorDef(kind="Centre", build=centre))
