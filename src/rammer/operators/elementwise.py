"""Operators that map elements one to one, with NumPy broadcasting: a table of scalar formulas per signature.

Operands share one element type except where said. 16-bit floats are computed in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from rammer.ir.evaluate import identity
from rammer.ir.expr import Expr, ReduceFn, ScalarFn, TensorExpr, call, cast, const, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.activations import ACTIVATIONS, Activation
from rammer.operators.attributes import flag, number, text
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.scalars import choose, equal, less, maximum, minimum
from rammer.operators.shapes import (
    ANY,
    BOOLS,
    COMPUTED,
    FLOATS,
    INTEGERS,
    NUMBERS,
    SIGNED,
    broadcast_load,
    broadcast_shape,
    check_broadcasts_to,
    check_dtype,
    check_operands,
    plain_result,
    spatial_axes,
)

Formula = Callable[[Sequence[Expr], Attributes], Expr]

_FUNCTIONS: Mapping[str, tuple[ScalarFn, int, frozenset[DType]]] = {
    "Abs": (ScalarFn.ABS, 1, NUMBERS),
    "Neg": (ScalarFn.NEG, 1, SIGNED),
    "Sign": (ScalarFn.SIGN, 1, NUMBERS),
    "Floor": (ScalarFn.FLOOR, 1, FLOATS),
    "Ceil": (ScalarFn.CEIL, 1, FLOATS),
    "Round": (ScalarFn.ROUND, 1, FLOATS),
    "Sqrt": (ScalarFn.SQRT, 1, FLOATS),
    "Exp": (ScalarFn.EXP, 1, FLOATS),
    "Log": (ScalarFn.LOG, 1, FLOATS),
    "Sin": (ScalarFn.SIN, 1, FLOATS),
    "Cos": (ScalarFn.COS, 1, FLOATS),
    "Tan": (ScalarFn.TAN, 1, FLOATS),
    "Asin": (ScalarFn.ASIN, 1, FLOATS),
    "Acos": (ScalarFn.ACOS, 1, FLOATS),
    "Atan": (ScalarFn.ATAN, 1, FLOATS),
    "Sinh": (ScalarFn.SINH, 1, FLOATS),
    "Cosh": (ScalarFn.COSH, 1, FLOATS),
    "Asinh": (ScalarFn.ASINH, 1, FLOATS),
    "Acosh": (ScalarFn.ACOSH, 1, FLOATS),
    "Atanh": (ScalarFn.ATANH, 1, FLOATS),
    "Erf": (ScalarFn.ERF, 1, FLOATS),
    "Not": (ScalarFn.NOT, 1, BOOLS),
    "BitwiseNot": (ScalarFn.BIT_NOT, 1, INTEGERS),
    "IsNaN": (ScalarFn.ISNAN, 1, FLOATS),
    "Add": (ScalarFn.ADD, 2, NUMBERS),
    "Sub": (ScalarFn.SUB, 2, NUMBERS),
    "Mul": (ScalarFn.MUL, 2, NUMBERS),
    "Div": (ScalarFn.DIV, 2, NUMBERS),
    "And": (ScalarFn.AND, 2, BOOLS),
    "Or": (ScalarFn.OR, 2, BOOLS),
    "Xor": (ScalarFn.XOR, 2, BOOLS),
    "Equal": (ScalarFn.EQ, 2, COMPUTED),
    "Less": (ScalarFn.LT, 2, NUMBERS),
    "LessOrEqual": (ScalarFn.LE, 2, NUMBERS),
    "BitwiseAnd": (ScalarFn.BIT_AND, 2, INTEGERS),
    "BitwiseOr": (ScalarFn.BIT_OR, 2, INTEGERS),
    "BitwiseXor": (ScalarFn.BIT_XOR, 2, INTEGERS),
}
"""Kinds that are one scalar function: function, number of operands, element types."""


def _mod(args: Sequence[Expr], attributes: Attributes) -> Expr:
    a, b = args
    if flag(attributes, "fmod"):
        return call(ScalarFn.FMOD, a, b)
    if not a.dtype.is_float:
        return call(ScalarFn.MOD, a, b)
    rest = call(ScalarFn.FMOD, a, b)
    differs = call(ScalarFn.NE, less(rest, 0.0), less(b, 0.0))
    zero = choose(less(b, 0.0), const(-0.0, a.dtype), const(0.0, a.dtype))
    return choose(equal(rest, 0.0), zero, choose(differs, rest + b, rest))


def _bit_shift(args: Sequence[Expr], attributes: Attributes) -> Expr:
    """Bits that leave the type are lost; so are all by a shift that is negative or no shorter than the type."""
    left = text(attributes, "direction") == "LEFT"
    return call(ScalarFn.SHIFT_LEFT if left else ScalarFn.SHIFT_RIGHT, *args)


def _is_inf(args: Sequence[Expr], attributes: Attributes) -> Expr:
    (x,) = args
    signs = [sign for sign in ("negative", "positive") if flag(attributes, f"detect_{sign}")]
    match signs:
        case [sign]:
            return call(ScalarFn.EQ, x, math.inf if sign == "positive" else -math.inf)
        case []:
            return const(False, DType.BOOL)
    return call(ScalarFn.ISINF, x)


def _clip(args: Sequence[Expr], attributes: Attributes) -> Expr:
    (x,) = args
    least, greatest = identity(ReduceFn.MAX, x.dtype), identity(ReduceFn.MIN, x.dtype)
    lower, upper = number(attributes, "lower"), number(attributes, "upper")
    if lower > least:
        x = maximum(x, min(lower, greatest))
    if upper < greatest:
        x = minimum(x, max(upper, least))
    return x


def _mean(args: Sequence[Expr], attributes: Attributes) -> Expr:
    return _fold(ScalarFn.ADD)(args, attributes) / float(len(args))


def _fold(fn: ScalarFn) -> Formula:
    return lambda args, _: reduce(lambda a, b: call(fn, a, b), args)


_FORMULAS: Mapping[str, tuple[Formula, tuple[int, int | None], frozenset[DType]]] = {
    "Identity": (lambda args, _: args[0], (1, 1), ANY),
    "Reciprocal": (lambda args, _: 1.0 / args[0], (1, 1), FLOATS),
    "IsInf": (_is_inf, (1, 1), FLOATS),
    "Clip": (_clip, (1, 1), NUMBERS),
    "Greater": (lambda args, _: less(args[1], args[0]), (2, 2), NUMBERS),
    "GreaterOrEqual": (lambda args, _: call(ScalarFn.LE, args[1], args[0]), (2, 2), NUMBERS),
    "Mod": (_mod, (2, 2), NUMBERS),
    "BitShift": (_bit_shift, (2, 2), INTEGERS),
    "Min": (_fold(ScalarFn.MIN), (1, None), NUMBERS),
    "Max": (_fold(ScalarFn.MAX), (1, None), NUMBERS),
    "Sum": (_fold(ScalarFn.ADD), (1, None), FLOATS),
    "Mean": (_mean, (1, None), FLOATS),
}
"""Kinds with a formula over their operands: formula, least and greatest number of operands, element types."""

_ACTIVATION_DTYPES: Mapping[str, frozenset[DType]] = {"Relu": SIGNED, "Shrink": NUMBERS}
"""Element types of the activations that take more than floating-point numbers."""


def elementwise(kind: str, formula: Formula, counts: tuple[int, int | None], dtypes: frozenset[DType]) -> OperatorDef:
    """The operator that applies `formula` to its operands, which share an element type and broadcast together."""

    def build(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
        check_operands(kind, inputs, counts, dtypes)
        axes = spatial_axes(broadcast_shape(kind, *(type_.shape for type_ in inputs)))
        body = formula([broadcast_load(slot, type_, axes) for slot, type_ in enumerate(inputs)], attributes)
        return plain_result(inputs, DType.BOOL if body.dtype is DType.BOOL else inputs[0].dtype, axes, body)

    return OperatorDef(kind=kind, build=build)


def where(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slot 1 where slot 0 (bool) holds, else slot 2; all broadcast together.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    require(len(inputs) == 3, f"Where of {len(inputs)} operands")
    check_dtype("Where", inputs[0], BOOLS)
    check_operands("Where", inputs[1:], (2, 2))
    axes = spatial_axes(broadcast_shape("Where", *(type_.shape for type_ in inputs)))
    condition, *values = (broadcast_load(slot, type_, axes) for slot, type_ in enumerate(inputs))
    return plain_result(inputs, inputs[1].dtype, axes, choose(condition, *values))


def branch(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slot 1 where the one bool in slot 0 holds, else slot 2, which are of one type; the other need not be computed.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    require(len(inputs) == 3 and inputs[0].size == 1, f"Branch of {len(inputs)} operands, or by more than one bool")
    require(inputs[1] == inputs[2], f"Branch between {inputs[1]} and {inputs[2]}")
    check_dtype("Branch", inputs[0], BOOLS)
    axes = spatial_axes(inputs[1].shape)
    condition = load(0, inputs[0], (0,) * inputs[0].rank)
    values = (broadcast_load(slot, inputs[slot], axes) for slot in (1, 2))
    return plain_result(inputs, inputs[1].dtype, axes, call(ScalarFn.BRANCH, condition, *values))


def power(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slot 0 to the power of slot 1, in slot 0's element type; the two may differ in type and broadcast.

    Integers to the power of integers are exact and wrap around as products do; fractions are cut off. Integers to the
    power of floating-point numbers are raised in float64.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    require(len(inputs) == 2, f"Pow of {len(inputs)} operands")
    for type_ in inputs:
        check_dtype("Pow", type_, NUMBERS)
    types = [type_.dtype for type_ in inputs]
    axes = spatial_axes(broadcast_shape("Pow", *(type_.shape for type_ in inputs)))
    base, exponent = (broadcast_load(slot, type_, axes) for slot, type_ in enumerate(inputs))
    if not any(dtype.is_float for dtype in types):
        return plain_result(inputs, types[0], axes, _integer_power(base, exponent))
    wide = DType.FLOAT64 if DType.FLOAT64 in types or not types[0].is_float else DType.FLOAT32
    return plain_result(inputs, types[0], axes, call(ScalarFn.POW, cast(wide, base), cast(wide, exponent)))


def _integer_power(base: Expr, exponent: Expr) -> Expr:
    """An integer to the power of another, in a type whose lower bits are the result's."""
    if not base.dtype.is_signed and exponent.dtype.is_signed:
        # As a signed number the greatest base would be -1, which alone beside 1 has an inverse.
        inverse = cast(DType.INT64, equal(base, 1))
        raised = call(ScalarFn.POW, cast(DType.INT64, base), maximum(cast(DType.INT64, exponent), 0))
        return choose(less(exponent, 0), inverse, raised)
    wide = DType.UINT64 if exponent.dtype is DType.UINT64 else DType.INT64
    return call(ScalarFn.POW, cast(wide, base), cast(wide, exponent))


def prelu(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Slot 0, multiplied by slot 1 (which broadcasts to it) where it is negative.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    check_operands("PRelu", inputs, (2, 2), NUMBERS)
    x_type, slope_type = inputs
    check_broadcasts_to("PRelu", slope_type, x_type.shape)
    axes = spatial_axes(x_type.shape)
    x, slope = broadcast_load(0, x_type, axes), broadcast_load(1, slope_type, axes)
    return plain_result(inputs, x_type.dtype, axes, choose(less(x, 0), x * slope, x))


def convert(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The operand as element type `to`: fractions are cut off, anything but 0 is true.

    Raises:
        InvalidModelError: there is not exactly one operand.
    """
    check_operands("Cast", inputs, (1, 1))
    to = attributes["to"]
    if not isinstance(to, DType):
        raise TypeError(f"attribute to is {to!r}, not an element type")
    axes = spatial_axes(inputs[0].shape)
    return plain_result(inputs, to, axes, broadcast_load(0, inputs[0], axes))


def _of_call(fn: ScalarFn) -> Formula:
    return lambda args, _: call(fn, *args)


def _of_activation(activation: Activation) -> Formula:
    return lambda args, attributes: activation(args[0], attributes)


for _kind, (_fn, _count, _dtypes) in _FUNCTIONS.items():
    register(elementwise(_kind, _of_call(_fn), (_count, _count), _dtypes))
for _kind, (_formula, _counts, _dtypes) in _FORMULAS.items():
    register(elementwise(_kind, _formula, _counts, _dtypes))
for _kind, _activation in ACTIVATIONS.items():
    register(elementwise(_kind, _of_activation(_activation), (1, 1), _ACTIVATION_DTYPES.get(_kind, FLOATS)))
register(OperatorDef(kind="Where", build=where))
register(OperatorDef(kind="Branch", build=branch))
register(OperatorDef(kind="Pow", build=power))
register(OperatorDef(kind="PRelu", build=prelu))
register(OperatorDef(kind="Cast", build=convert))
