"""Products of bytes: those of int32 in quads, and expressions whose operands are of narrower types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rammer.ir.expr import Axis, Expr, Load, Reduce, TensorExpr, cast, const, rebuild
from rammer.ir.graph import Array
from rammer.ir.types import DType, TensorType
from rammer.tiling.pattern import QUAD


def in_quads(expr: TensorExpr, summed: str, dim: int) -> TensorExpr:
    """A product of int32 over uint8 (slot 0) and int8 (slot 1), what is summed over being cut into quads.

    Args:
        expr: sums over one set of axes; its slots are all of int32.
        summed: the name of the axis that is cut, whose extent is a multiple of `QUAD`.
        dim: the dimension of slot 1 along which it runs; its quads become the last dimension.
    """
    (whole,) = (axis for axis in expr.reduce_axes if axis.name == summed)
    outer, inner = Axis(summed, whole.extent // QUAD), Axis("q", QUAD)

    def visit(node: Expr) -> Expr | None:
        match node:
            case Axis() if node is whole:
                return outer * QUAD + inner
            case Reduce(fn, axes, body):
                return Reduce(fn, (*(outer if axis is whole else axis for axis in axes), inner), body)
            case Load(0, indices, _, fill):
                zero = None if fill is None else const(0, DType.UINT8)
                return cast(DType.INT32, Load(0, indices, DType.UINT8, zero))
            case Load(1, indices):
                places = [outer if place == dim else index for place, index in enumerate(indices)]
                return cast(DType.INT32, Load(1, (*places, inner), DType.INT8))
        return None

    bodies = rebuild(expr.roots, visit)
    x, w = expr.inputs[:2]
    shape = tuple(extent // QUAD if place == dim else extent for place, extent in enumerate(w.shape))
    return TensorExpr(
        axes=expr.axes,
        inputs=(TensorType(DType.UINT8, x.shape), TensorType(DType.INT8, (*shape, QUAD))),
        outputs=tuple(replace(output, body=body) for output, body in zip(expr.outputs, bodies, strict=True)),
    )


def cut(weights: Array, dim: int) -> Array:
    """Weights for slot 1, as int8, with the quads of a dimension behind all others."""
    shape = weights.shape
    quads = weights.reshape(*shape[:dim], shape[dim] // QUAD, QUAD, *shape[dim + 1 :])
    return np.ascontiguousarray(np.moveaxis(quads, dim + 1, -1).astype(np.int8))


def of_types(expr: TensorExpr, *dtypes: DType) -> TensorExpr:
    """An expression whose first operands are of these types instead, which its own hold; their padding is 0."""

    def visit(node: Expr) -> Expr | None:
        match node:
            case Load(slot, indices, own, fill) if slot < len(dtypes):
                zero = None if fill is None else const(0, dtypes[slot])
                return cast(own, Load(slot, indices, dtypes[slot], zero))
        return None

    bodies = rebuild(expr.roots, visit)
    inputs = [TensorType(dtype, type_.shape) for dtype, type_ in zip(dtypes, expr.inputs, strict=False)]
    return replace(
        expr,
        inputs=(*inputs, *expr.inputs[len(inputs) :]),
        outputs=tuple(replace(output, body=body) for output, body in zip(expr.outputs, bodies, strict=True)),
    )
