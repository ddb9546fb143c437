"""The functions that expressions are made of."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping


class ScalarFn(enum.Enum):
    """A scalar function. NumPy semantics unless said; device tables give each its spelling."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"  # floats: IEEE; integers: truncation towards zero, as in C and ONNX
    FLOORDIV = "floordiv"  # integers only; index arithmetic
    MOD = "mod"  # sign of the divisor (Python, NumPy)
    FMOD = "fmod"  # sign of the dividend (C)
    POW = "pow"  # integers: wraps around as products do; of a negative exponent the fraction is cut off
    MIN = "min"  # a NaN operand gives NaN
    MAX = "max"  # a NaN operand gives NaN
    AND = "and"
    OR = "or"
    XOR = "xor"
    BIT_AND = "bit_and"
    BIT_OR = "bit_or"
    BIT_XOR = "bit_xor"
    SHIFT_LEFT = "shift_left"
    SHIFT_RIGHT = "shift_right"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    NEG = "neg"
    NOT = "not"
    BIT_NOT = "bit_not"
    ABS = "abs"
    SIGN = "sign"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"  # half to even
    SQRT = "sqrt"
    EXP = "exp"
    LOG = "log"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    SIGMOID = "sigmoid"
    ISNAN = "isnan"
    ISINF = "isinf"
    SELECT = "select"  # (condition, if true, if false)
    BRANCH = "branch"  # likewise, by one bool; what only the other side needs need not be computed

    __hash__ = object.__hash__  # by identity, as members are equal; Enum's own is a Python function over the name


CHOICES = frozenset({ScalarFn.SELECT, ScalarFn.BRANCH})
"""Functions of a bool and two operands of one type, one of which they give."""

PREDICATES = frozenset(
    {
        ScalarFn.EQ,
        ScalarFn.NE,
        ScalarFn.LT,
        ScalarFn.LE,
        ScalarFn.AND,
        ScalarFn.OR,
        ScalarFn.XOR,
        ScalarFn.NOT,
    }
    | {ScalarFn.ISNAN, ScalarFn.ISINF}
)
"""Functions whose result is a truth value."""


class ReduceFn(enum.Enum):
    """How a `Reduce` combines values; over no elements it gives the identity."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"  # a NaN element gives NaN
    MIN = "min"  # a NaN element gives NaN


FOLDS: Mapping[ScalarFn, Callable[[int, int], int]] = {
    ScalarFn.ADD: lambda a, b: a + b,
    ScalarFn.SUB: lambda a, b: a - b,
    ScalarFn.MUL: lambda a, b: a * b,
    ScalarFn.FLOORDIV: lambda a, b: a // b,
    ScalarFn.MOD: lambda a, b: a % b,
}
"""Arithmetic of indices that is done as expressions are built."""

INFIX: Mapping[ScalarFn, str] = {
    ScalarFn.ADD: "+",
    ScalarFn.SUB: "-",
    ScalarFn.MUL: "*",
    ScalarFn.DIV: "/",
    ScalarFn.FLOORDIV: "//",
    ScalarFn.MOD: "%",
    ScalarFn.LT: "<",
    ScalarFn.LE: "<=",
    ScalarFn.EQ: "==",
    ScalarFn.NE: "!=",
}
"""How dumps spell functions of two operands."""
