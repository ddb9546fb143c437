"""What tensor expressions are made of, for operators of your own (`rammer.operator`).

An expression says what an operator computes at each point of its domain: `spatial_axes` are the domain, `load` gives an
element of an operand, `reduced` sums and the like, `plain_result` puts it together. Arithmetic is that of Python.
"""

from __future__ import annotations

from rammer.ir.expr import Axis, Expr, ReduceFn, ScalarFn, TensorExpr, call, cast, const, load
from rammer.ir.types import DType, TensorType
from rammer.operators.scalars import (
    absolute,
    choose,
    clamp,
    equal,
    exp,
    less,
    log,
    maximum,
    minimum,
    power,
    sqrt,
    square,
)
from rammer.operators.shapes import padded_load, plain_result, reduced, reduction_axes, spatial_axes

__all__ = [
    "Axis",
    "DType",
    "Expr",
    "ReduceFn",
    "ScalarFn",
    "TensorExpr",
    "TensorType",
    "absolute",
    "call",
    "cast",
    "choose",
    "clamp",
    "const",
    "equal",
    "exp",
    "less",
    "load",
    "log",
    "maximum",
    "minimum",
    "padded_load",
    "plain_result",
    "power",
    "reduced",
    "reduction_axes",
    "spatial_axes",
    "sqrt",
    "square",
]
