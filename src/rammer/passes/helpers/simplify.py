"""Simplification of scalar expressions: constants are computed, casts there and back vanish, squares are products.

No value is changed, but for cubes of floats by a rounding: PyTorch and ONNX Runtime multiply, too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial, reduce

import numpy as np

from rammer.ir.evaluate import FUNCTIONS, converted
from rammer.ir.expr import Call, Cast, Const, Expr, ScalarFn, TensorExpr, call, cast, const, rebuild
from rammer.ir.types import DType

_MANTISSA_BITS = {DType.FLOAT16: 11, DType.BFLOAT16: 8, DType.TF32: 11, DType.FLOAT32: 24, DType.FLOAT64: 53}
_EXPONENT_BITS = {DType.FLOAT16: 5, DType.BFLOAT16: 8, DType.TF32: 8, DType.FLOAT32: 8, DType.FLOAT64: 11}


def simplified(node: Expr) -> Expr | None:
    """A simpler equal of a node whose operands are simple already, or None; a visitor for `rebuild`."""
    match node:
        case Cast(type_, Cast(between, arg)) if arg.dtype is type_ and holds(between, type_):
            return arg
        case Cast(type_, Cast(between, arg)) if _is_clipped(arg, between) and holds(type_, between):
            return cast(type_, arg)
        case Cast(type_, Const(value, given)) if not type_.is_code:
            with np.errstate(all="ignore"):
                return const(converted(np.asarray(value, given.numpy), type_).item(), type_)
        case Call(ScalarFn.SELECT | ScalarFn.BRANCH, (Const(condition), if_true, if_false)):
            return if_true if condition else if_false
        case Call(ScalarFn.POW, (base, Const(1 | 2 | 3 as exponent))) if not isinstance(base, Const):
            return reduce(partial(call, ScalarFn.MUL), [base] * int(exponent))
        case Call(fn, args) if all(isinstance(arg, Const) for arg in args):
            arrays = [np.asarray(arg.value, arg.type.numpy) for arg in args if isinstance(arg, Const)]
            with np.errstate(all="ignore"):
                return const(np.asarray(FUNCTIONS[fn](*arrays)).item(), node.dtype)
    return None


def _is_clipped(number: Expr, dtype: DType) -> bool:
    """Whether an integer type holds a number, because it was brought into a range."""
    match number:
        case Call(ScalarFn.MIN, (Call(ScalarFn.MAX, (_, Const(least))), Const(greatest))) if not dtype.is_float:
            if dtype is DType.BOOL or dtype.is_code:
                return False
            bits = 8 * dtype.itemsize_bytes - dtype.is_signed
            return -(dtype.is_signed << bits) <= least and greatest < 1 << bits
    return False


@lru_cache(maxsize=1024)
def simplified_expr(expr: TensorExpr) -> TensorExpr:
    """An expression with simple bodies; operators of one kind share it."""
    bodies = rebuild(expr.roots, simplified)
    outputs = tuple(replace(output, body=body) for output, body in zip(expr.outputs, bodies, strict=True))
    return replace(expr, outputs=outputs)


def holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`, so that a conversion there and back changes nothing."""
    if wide is narrow or narrow is DType.BOOL:
        return True
    if wide is DType.BOOL or (narrow.is_float and not wide.is_float):
        return False
    if narrow.is_float:
        return _MANTISSA_BITS[wide] >= _MANTISSA_BITS[narrow] and _EXPONENT_BITS[wide] >= _EXPONENT_BITS[narrow]
    magnitude_bits = 8 * narrow.itemsize_bytes - narrow.is_signed
    if wide.is_float:
        return magnitude_bits <= _MANTISSA_BITS[wide]
    return 8 * wide.itemsize_bytes - wide.is_signed >= magnitude_bits and (wide.is_signed or not narrow.is_signed)
