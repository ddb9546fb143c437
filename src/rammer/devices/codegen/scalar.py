"""How scalars are spelled in C: types, literals, conversions and the table of scalar functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.ir.evaluate import converted
from rammer.ir.expr import Const, Expr, ReduceFn, Scalar, ScalarFn
from rammer.ir.functions import CHOICES
from rammer.ir.types import CODES, DType

C_TYPES: Mapping[DType, str] = {
    DType.BOOL: "bool",
    DType.UINT8: "uint8_t",
    DType.INT8: "int8_t",
    DType.UINT16: "uint16_t",
    DType.INT16: "int16_t",
    DType.UINT32: "uint32_t",
    DType.INT32: "int32_t",
    DType.UINT64: "uint64_t",
    DType.INT64: "int64_t",
    DType.FLOAT16: "uint16_t",
    DType.BFLOAT16: "uint16_t",
    DType.TF32: "uint32_t",
    DType.FLOAT32: "float",
    DType.FLOAT64: "double",
    **dict.fromkeys(CODES, "uint8_t"),
}
"""The type of a value. Floats of fewer bits than float are their bits: arithmetic is in float. Codes are numbers."""


def storage_type(dtype: DType) -> str:
    """The type in memory: a bool is a byte that may hold any value but 0 for true."""
    return "uint8_t" if dtype is DType.BOOL else C_TYPES[dtype]


_SUFFIXES: Mapping[DType, str] = {
    DType.UINT8: "u8",
    DType.INT8: "i8",
    DType.UINT16: "u16",
    DType.INT16: "i16",
    DType.UINT32: "u32",
    DType.INT32: "i32",
    DType.UINT64: "u64",
    DType.INT64: "i64",
    DType.FLOAT16: "f16",
    DType.BFLOAT16: "bf16",
    DType.TF32: "tf32",
    DType.FLOAT32: "f32",
    DType.FLOAT64: "f64",
}

_COMPARISONS: Mapping[ScalarFn, str] = {
    ScalarFn.EQ: "{} == {}",
    ScalarFn.NE: "{} != {}",
    ScalarFn.LT: "{} < {}",
    ScalarFn.LE: "{} <= {}",
    ScalarFn.AND: "({} != 0) & ({} != 0)",
    ScalarFn.OR: "({} != 0) | ({} != 0)",
    ScalarFn.XOR: "({} != 0) != ({} != 0)",
    ScalarFn.NOT: "{} == 0",
    ScalarFn.SELECT: "{} ? {} : {}",
    ScalarFn.BRANCH: "{} ? {} : {}",
}
_BOOL: Mapping[ScalarFn, str] = {
    **dict.fromkeys((ScalarFn.ADD, ScalarFn.MAX, ScalarFn.BIT_OR), "{} | {}"),
    **dict.fromkeys((ScalarFn.MUL, ScalarFn.MIN, ScalarFn.BIT_AND), "{} & {}"),
    ScalarFn.BIT_XOR: "{} != {}",
    ScalarFn.BIT_NOT: "!{}",
}
_INTEGER: Mapping[ScalarFn, str] = {
    ScalarFn.BIT_AND: "{} & {}",
    ScalarFn.BIT_OR: "{} | {}",
    ScalarFn.BIT_XOR: "{} ^ {}",
    ScalarFn.BIT_NOT: "~{}",
}
_FLOAT: Mapping[ScalarFn, str] = {
    ScalarFn.ADD: "{} + {}",
    ScalarFn.SUB: "{} - {}",
    ScalarFn.MUL: "{} * {}",
    ScalarFn.DIV: "{} / {}",
    ScalarFn.NEG: "-{}",
}
# Functions of rammer_scalars.h, by the class of their type.
_INTEGER_FUNCTIONS = frozenset(
    {ScalarFn.ADD, ScalarFn.SUB, ScalarFn.MUL, ScalarFn.DIV, ScalarFn.FLOORDIV, ScalarFn.MOD, ScalarFn.FMOD}
    | {ScalarFn.POW, ScalarFn.MIN, ScalarFn.MAX, ScalarFn.NEG, ScalarFn.ABS, ScalarFn.SIGN}
    | {ScalarFn.SHIFT_LEFT, ScalarFn.SHIFT_RIGHT}
)
_FLOAT_FUNCTIONS = frozenset(ScalarFn) - frozenset(
    {*_COMPARISONS, *_FLOAT, *_INTEGER, ScalarFn.FLOORDIV, ScalarFn.SHIFT_LEFT, ScalarFn.SHIFT_RIGHT}
)

_LEAST_DIVISOR, _GREATEST_DIVISOR = 2.0**-30, 2.0**30

COMBINE: Mapping[ReduceFn, ScalarFn] = {
    ReduceFn.SUM: ScalarFn.ADD,
    ReduceFn.PROD: ScalarFn.MUL,
    ReduceFn.MAX: ScalarFn.MAX,
    ReduceFn.MIN: ScalarFn.MIN,
}
"""The function that a reduction folds with."""


def literal(value: Scalar, dtype: DType) -> str:
    """A number as C; negative ones in parentheses."""
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_half:
        return f"0x{int(np.asarray(value, dtype.numpy).view(np.uint16)):04x}"
    if dtype is DType.TF32:
        return f"0x{int(converted(np.asarray(value, dtype.numpy), dtype).view(np.uint32)):08x}u"
    if dtype.is_float:
        return _float_literal(float(np.asarray(value, dtype.numpy)), "f" if dtype is DType.FLOAT32 else "")
    if dtype is DType.INT64 and value == np.iinfo(np.int64).min:
        return "INT64_MIN"
    unsigned = "" if dtype.is_signed else "u"
    long = "ll" if dtype in (DType.INT64, DType.UINT64) and abs(value) > np.iinfo(np.int32).max else ""
    text = f"{int(value)}{unsigned}{long}"
    return text if value >= 0 else f"({text})"


def _float_literal(value: float, suffix: str) -> str:
    if math.isnan(value):
        return "NAN"
    text = "INFINITY" if math.isinf(value) else f"{abs(value)!r}{suffix}"
    return f"(-{text})" if math.copysign(1.0, value) < 0 else text


def convert(text: str, source: DType, target: DType) -> str:
    """A value of type `source` as `target`."""
    if source is target:
        return text
    if source.is_rounded:
        return convert(f"rammer_widen_{_SUFFIXES[source]}({text})", DType.FLOAT32, target)
    if target.is_rounded:
        return f"rammer_narrow_{_SUFFIXES[target]}({convert(text, source, DType.FLOAT32)})"
    if target is DType.BOOL:
        return f"({text} != 0)"
    return f"({C_TYPES[target]}){text}"


def call_text(fn: ScalarFn, dtype: DType, args: Sequence[str]) -> str:
    """A scalar function of operands of type `dtype` (that of the last one).

    Raises:
        TypeError: the function is not defined for the type.
    """
    if fn in CHOICES:
        return _COMPARISONS[fn].format(*args)
    if dtype.is_rounded:
        return _half_call(fn, dtype, args)
    if fn in _COMPARISONS:
        return _COMPARISONS[fn].format(*args)
    infix = _BOOL if dtype is DType.BOOL else _FLOAT if dtype.is_float else _INTEGER
    if fn in infix:
        return infix[fn].format(*args)
    functions = (
        frozenset[ScalarFn]() if dtype is DType.BOOL else _FLOAT_FUNCTIONS if dtype.is_float else _INTEGER_FUNCTIONS
    )
    if fn not in functions:
        raise TypeError(f"{fn.value} of {dtype.value}")
    return f"rammer_{fn.value}_{_SUFFIXES[dtype]}({', '.join(args)})"


def _half_call(fn: ScalarFn, dtype: DType, args: Sequence[str]) -> str:
    """Operands widened, the function in float, and its result narrowed unless it is a truth value."""
    text = call_text(fn, DType.FLOAT32, [convert(arg, dtype, DType.FLOAT32) for arg in args])
    predicate = fn in _COMPARISONS or fn in (ScalarFn.ISNAN, ScalarFn.ISINF)
    return text if predicate else convert(f"({text})", DType.FLOAT32, dtype)


def clamp_text(fn: ScalarFn, args: Sequence[Expr], texts: Sequence[str]) -> str | None:
    """MIN or MAX with a bound that is a number (a ReLU, a clip), which needs no test for NaN: one instruction."""
    for (value, bound), (value_text, bound_text) in ((args, texts), (args[::-1], texts[::-1])):
        if isinstance(bound, Const) and bound.dtype in (DType.FLOAT32, DType.FLOAT64) and not math.isnan(bound.value):
            outside = f"{value_text} < {bound_text}" if fn is ScalarFn.MAX else f"{bound_text} < {value_text}"
            return None if isinstance(value, Const) else f"{outside} ? {bound_text} : {value_text}"
    return None


def quotient_text(texts: Sequence[str], divisor: Scalar) -> str:
    """A float32 by a number, by the function for divisors of ordinary size."""
    text, divisor_text = texts
    is_ordinary = _LEAST_DIVISOR <= abs(divisor) <= _GREATEST_DIVISOR
    return f"rammer_quotient_f32({text}, {divisor_text})" if is_ordinary else f"{text} / {divisor_text}"


def sum_text(terms: Mapping[str, int], offset: int) -> str:
    """`sum(coefficient * text) + offset` in C, the constant last so that neighbours share the rest."""
    text = ""
    for name, coefficient in terms.items():
        if coefficient:
            factor = "" if abs(coefficient) == 1 else f" * {abs(coefficient)}"
            sign = ("-" if not text else " - ") if coefficient < 0 else ("" if not text else " + ")
            text += f"{sign}{name}{factor}"
    if not text:
        return str(offset)
    return text if offset == 0 else f"{text} {'-' if offset < 0 else '+'} {abs(offset)}"
