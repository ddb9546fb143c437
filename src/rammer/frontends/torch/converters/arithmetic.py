"""Arithmetic and functions, element by element, in the element type of the result."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_FUNCTIONS = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log"),
    *("reciprocal", "sin", "sinh", "sqrt", "tan", "tanh"),
)
"""Functions of one operand that are a kind of ours, with a capital."""

_ROUNDINGS: Mapping[str, str] = {"ceil": "Ceil", "floor": "Floor"}
"""Roundings, which leave integers as they are."""

_BINARY: Mapping[str, str] = {"div": "Div", "maximum": "Max", "minimum": "Min"}


def _function(node: Node) -> Result:
    return node.add(node.operator.capitalize(), node.typed("self"))


def _negative(node: Node) -> Result:
    """Of numbers without a sign it wraps around."""
    x = node.typed("self")
    return node.add("Neg", x) if x.dtype.is_signed else node.add("Sub", node.scalar(0, x.dtype), x)


def _sign(node: Node) -> Result:
    """That of NaN is 0."""
    x = node.typed("self")
    zero = node.scalar(0, x.dtype)
    signs = (node.add("Less", zero, x), node.add("Less", x, zero))
    return node.add("Sub", *(node.add("Cast", sign, to=x.dtype) for sign in signs))


def _rounding(node: Node) -> Result:
    x = node.typed("self")
    return node.add(_ROUNDINGS[node.operator], x) if x.dtype.is_float else x


def _round(node: Node) -> Result:
    """To `decimals` places, ties to the even neighbour."""
    x = node.typed("self")
    if not x.dtype.is_float:
        return x
    decimals = node.integer("decimals") if node.has("decimals") else 0
    if decimals == 0:
        return node.add("Round", x)
    factor = node.scalar(10.0 ** abs(decimals), x.dtype)
    there, back = ("Mul", "Div") if decimals > 0 else ("Div", "Mul")
    return node.add(back, node.add("Round", node.add(there, x, factor)), factor)


def truncated(node: Node, x: Operand) -> Operand:
    """The integer part, towards zero."""
    if not x.dtype.is_float:
        return x
    negative = node.add("Less", x, node.scalar(0, x.dtype))
    return node.add("Where", negative, node.add("Ceil", x), node.add("Floor", x))


def _trunc(node: Node) -> Result:
    return truncated(node, node.typed("self"))


def _sum_of(kind: str) -> Converter:
    """`self + alpha * other`, or the difference."""

    def convert(node: Node) -> Result:
        a, b = node.typed("self"), node.typed("other")
        if node.dtype is DType.BOOL:
            return node.add("Or", a, b)
        alpha = node.number("alpha") if node.has("alpha") else 1
        if alpha != 1:
            b = node.add("Mul", b, node.scalar(alpha, node.dtype))
        return node.add(kind, a, b)

    return convert


def _reversed_difference(node: Node) -> Result:
    """`other - alpha * self`."""
    a, alpha = node.typed("self"), node.number("alpha")
    if alpha != 1:
        a = node.add("Mul", a, node.scalar(alpha, node.dtype))
    return node.add("Sub", node.typed("other"), a)


def _product(node: Node) -> Result:
    return node.add("And" if node.dtype is DType.BOOL else "Mul", node.typed("self"), node.typed("other"))


def _binary(node: Node) -> Result:
    if node.dtype is DType.BOOL:
        return node.add("Or" if node.operator == "maximum" else "And", node.typed("self"), node.typed("other"))
    return node.add(_BINARY[node.operator], node.typed("self"), node.typed("other"))


def _extreme_number(node: Node) -> Result:
    """The greater or the less operand; NaN only where both are."""
    a, b = node.typed("self"), node.typed("other")
    if node.dtype is DType.BOOL:
        return node.add("Or" if node.operator == "fmax" else "And", a, b)
    extreme = node.add("Max" if node.operator == "fmax" else "Min", a, b)
    if not a.dtype.is_float:
        return extreme
    return node.add("Where", node.add("IsNaN", a), b, node.add("Where", node.add("IsNaN", b), a, extreme))


def _quotient(node: Node) -> Result:
    """Exact, or rounded as `rounding_mode` says."""
    if not node.has("rounding_mode"):
        return _binary(node)
    a, b = node.typed("self"), node.typed("other")
    if node.text("rounding_mode") == "floor":
        return _floored_quotient(node, a, b)
    return truncated(node, node.add("Div", a, b))


def _floor_divide(node: Node) -> Result:
    return _floored_quotient(node, node.typed("self"), node.typed("other"))


def _floored_quotient(node: Node, a: Operand, b: Operand) -> Operand:
    """The quotient rounded down; that of floating-point numbers by way of the exact remainder, as in Python."""
    if not a.dtype.is_float:
        return node.add("Div", node.add("Sub", a, node.add("Mod", a, b, fmod=False)), b)
    rest, off = _rest_of(node, a, b)
    whole = node.add("Round", node.add("Div", node.add("Sub", a, rest), b))
    nearest = node.add("Where", off, node.add("Sub", whole, node.scalar(1, a.dtype)), whole)
    by_zero = node.add("Equal", b, node.scalar(0, b.dtype))
    return node.add("Where", by_zero, node.add("Div", a, b), nearest)


def _remainder(node: Node) -> Result:
    return _remainder_of(node, node.typed("self"), node.typed("other"))


def _remainder_of(node: Node, a: Operand, b: Operand) -> Operand:
    """What is left of `a / b` rounded down: it has the divisor's sign."""
    if not a.dtype.is_float:
        return node.add("Mod", a, b, fmod=False)
    rest, off = _rest_of(node, a, b)
    return node.add("Where", off, node.add("Add", rest, b), rest)


def _rest_of(node: Node, a: Operand, b: Operand) -> tuple[Operand, Operand]:
    """What is left of `a / b` rounded towards 0, and whether rounding down would have gone one further."""
    zero = node.scalar(0, a.dtype)
    rest = node.add("Mod", a, b, fmod=True)
    other_sign = node.add("Xor", node.add("Less", rest, zero), node.add("Less", b, zero))
    return rest, node.add("And", other_sign, node.add("Not", node.add("Equal", rest, zero)))


def _fmod(node: Node) -> Result:
    """The remainder with the dividend's sign."""
    return node.add("Mod", node.typed("self"), node.typed("other"), fmod=True)


def _power(node: Node) -> Result:
    """Small whole exponents and roots are products and square roots, as in PyTorch."""
    x = node.typed("self")
    exponent = node.arguments["exponent"]
    if isinstance(exponent, Operand):
        return node.add("Pow", x, node.typed("exponent"))
    match node.number("exponent"):
        case 1:
            return x
        case 2:
            return node.add("Mul", x, x)
        case 3:
            return node.add("Mul", node.add("Mul", x, x), x)
        case 0.5 if x.dtype.is_float:
            return node.add("Sqrt", x)
        case -0.5 if x.dtype.is_float:
            return node.add("Reciprocal", node.add("Sqrt", x))
        case -1 if x.dtype.is_float:
            return node.add("Reciprocal", x)
        case _:
            return node.add("Pow", x, node.typed("exponent"))


def _rsqrt(node: Node) -> Result:
    return node.add("Reciprocal", node.add("Sqrt", node.typed("self")))


def _square(node: Node) -> Result:
    x = node.typed("self")
    return node.add("Mul", x, x)


def _exp2(node: Node) -> Result:
    return node.add("Pow", node.scalar(2, node.dtype), node.typed("self"))


def wide_type(dtype: DType) -> DType:
    """The element type to compute in where several roundings to 16 bits would show."""
    return DType.FLOAT32 if dtype.itemsize_bytes == 2 else dtype


def _times_power_of_two(node: Node) -> Result:
    """By a whole exponent rounded once, whether or not its power has a place in the type."""
    if node.operand("other").dtype.is_float:
        return node.add("Mul", node.typed("self"), node.add("Pow", node.scalar(2, node.dtype), node.typed("other")))
    wide = wide_type(node.dtype)
    return converted(node, _scaled(node, node.typed("self", wide), node.typed("other", wide)), node.dtype)


def _scaled(node: Node, x: Operand, exponent: Operand) -> Operand:
    """`x * 2 ** exponent` in three steps, of which only the last that does not give 0 can round."""
    limits = np.finfo(x.dtype.numpy.name)
    least, most = int(limits.minexp), int(limits.maxexp) - 1
    two, bound = node.scalar(2, x.dtype), node.scalar(least, x.dtype)
    careful = node.scalar(least + int(limits.nmant) + 1, x.dtype)
    for last in (False, False, True):
        step = node.add("Clip", exponent, lower=float(least), upper=float(most))
        if not last:
            step = node.add("Where", node.add("Less", exponent, bound), careful, step)
        x, exponent = node.add("Mul", x, node.add("Pow", two, step)), node.add("Sub", exponent, step)
    return x


def _mantissa_and_exponent(node: Node) -> Result:
    """The exponent by the logarithm, which is off by one at most; zeros, infinities and NaN are their own mantissas."""
    x = node.typed("self", wide_type(node.dtype))
    zero, half, one, two = (node.scalar(value, x.dtype) for value in (0, 0.5, 1, 2))
    size = node.add("Abs", x)
    regular = node.add("And", node.add("Less", zero, size), node.add("Less", size, node.scalar(math.inf, x.dtype)))
    size = node.add("Where", regular, size, one)
    power = node.add("Mul", node.add("Log", size), node.scalar(1 / math.log(2), x.dtype))
    exponent = node.add("Add", node.add("Floor", power), one)
    size = _scaled(node, size, node.add("Neg", exponent))
    great, small = node.add("LessOrEqual", one, size), node.add("Less", size, half)
    shift = node.add("Where", great, one, node.add("Where", small, node.scalar(-1, x.dtype), zero))
    size = node.add("Mul", size, node.add("Where", great, half, node.add("Where", small, two, one)))
    size = node.add("Where", node.add("Less", x, zero), node.add("Neg", size), size)
    exponent = node.add("Where", regular, node.add("Add", exponent, shift), zero)
    return [
        converted(node, node.add("Where", regular, size, x), node.dtype),
        converted(node, exponent, DType.INT32),
    ]


def _expm1(node: Node) -> Result:
    """`exp(x) - 1` as `tanh(x / 2) * (exp(x) + 1)`, which does not cancel near 0."""
    x = node.typed("self")
    half = node.add("Tanh", node.add("Mul", x, node.scalar(0.5, x.dtype)))
    return node.add("Mul", half, node.add("Add", node.add("Exp", x), node.scalar(1, x.dtype)))


def _log1p(node: Node) -> Result:
    """`log(1 + x)`, corrected for what rounding `1 + x` loses (Kahan)."""
    x = node.typed("self")
    one = node.scalar(1, x.dtype)
    u = node.add("Add", x, one)
    log = node.add("Log", u)
    corrected = node.add("Mul", log, node.add("Div", x, node.add("Sub", u, one)))
    infinite = node.add("IsInf", u, detect_negative=True, detect_positive=True)
    return node.add("Where", node.add("Equal", u, one), x, node.add("Where", infinite, log, corrected))


def _logarithm(base: float) -> Converter:
    def convert(node: Node) -> Result:
        return node.add("Mul", node.add("Log", node.typed("self")), node.scalar(1 / math.log(base), node.dtype))

    return convert


def _atan2(node: Node) -> Result:
    return angle_of(node, node.typed("self"), node.typed("other"))


def angle_of(node: Node, y: Operand, x: Operand) -> Operand:
    """The angle of the point (x, y); signs of zeros count."""
    zero, pi = node.scalar(0, y.dtype), node.scalar(math.pi, y.dtype)
    steep = node.add("Less", node.add("Abs", x), node.add("Abs", y))
    ratio = node.add("Where", steep, node.add("Div", x, y), _ratio(node, y, x))
    angle = node.add("Atan", ratio)
    upright = node.add("Sub", _signed_like(node, node.scalar(math.pi / 2, y.dtype), y), angle)
    left = node.add("Less", _signed_like(node, node.scalar(1, x.dtype), x), zero)
    flat = node.add("Where", left, node.add("Add", angle, _signed_like(node, pi, y)), angle)
    return node.add("Where", steep, upright, flat)


def _ratio(node: Node, y: Operand, x: Operand) -> Operand:
    """`y / x`; of two zeros, and of two infinities, what the angle's case wants."""
    zero, one = node.scalar(0, y.dtype), node.scalar(1, y.dtype)
    both_zero = node.add("And", node.add("Equal", y, zero), node.add("Equal", x, zero))
    signs = node.add("Mul", _signed_like(node, one, y), _signed_like(node, one, x))
    both_infinite = node.add("And", _infinite(node, y), _infinite(node, x))
    plain = node.add("Where", both_infinite, signs, node.add("Div", y, x))
    return node.add("Where", both_zero, node.add("Mul", signs, zero), plain)


def _infinite(node: Node, x: Operand) -> Operand:
    return node.add("IsInf", x, detect_negative=True, detect_positive=True)


def _signed_like(node: Node, magnitude: Operand, sign: Operand) -> Operand:
    """A positive number with another's sign; that of a zero is its reciprocal's."""
    zero = node.scalar(0, sign.dtype)
    negative = node.add("Or", node.add("Less", sign, zero), node.add("Less", node.add("Reciprocal", sign), zero))
    return node.add("Where", negative, node.add("Neg", magnitude), magnitude)


def _length(node: Node) -> Result:
    """The hypotenuse."""
    return length_of(node, node.typed("self"), node.typed("other"))


def length_of(node: Node, a: Operand, b: Operand) -> Operand:
    """`sqrt(a * a + b * b)` by a quotient that neither overflows nor vanishes; infinity counts more than NaN."""
    a, b = node.add("Abs", a), node.add("Abs", b)
    longer, shorter = node.add("Max", a, b), node.add("Min", a, b)
    zero, endless = node.scalar(0, a.dtype), node.scalar(math.inf, a.dtype)
    ratio = node.add("Where", node.add("Equal", longer, zero), zero, node.add("Div", shorter, longer))
    square = node.add("Add", node.add("Mul", ratio, ratio), node.scalar(1, a.dtype))
    infinite = node.add("Or", node.add("Equal", a, endless), node.add("Equal", b, endless))
    return node.add("Where", infinite, endless, node.add("Mul", longer, node.add("Sqrt", square)))


def _sign_bit(node: Node) -> Result:
    x = node.operand("self")
    one, zero = node.scalar(1, x.dtype), node.scalar(0, x.dtype)
    return node.add("Less", _signed_like(node, one, x) if x.dtype.is_float else x, zero)


def _copied_sign(node: Node) -> Result:
    return _signed_like(node, node.add("Abs", node.typed("self")), node.typed("other"))


_NEAR: tuple[float, ...] = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087)
_NEAR += (-0.00125372503, -0.00417768164, 0.246640727, 1.50140941)
_FAR: tuple[float, ...] = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773)
_FAR += (-0.0076224613, 0.00943887047, 1.00167406, 2.83297682)
"""Giles, "Approximating the erfinv function" (2011): polynomials in the logarithm of `1 - x * x`, for float32."""


def _inverse_error_function(node: Node) -> Result:
    return inverse_error_function(node, node.typed("self"))


def inverse_error_function(node: Node, x: Operand) -> Operand:
    """Polynomials for float32; for float64 two steps of Newton's method follow."""
    one = node.scalar(1, x.dtype)
    inside = node.add("Mul", node.add("Sub", one, x), node.add("Add", one, x))
    w = node.add("Neg", node.add("Log", inside))
    near = polynomial(node, _NEAR, node.add("Sub", w, node.scalar(2.5, x.dtype)))
    far = polynomial(node, _FAR, node.add("Sub", node.add("Sqrt", w), node.scalar(3, x.dtype)))
    y = node.add("Mul", node.add("Where", node.add("Less", w, node.scalar(5, x.dtype)), near, far), x)
    for _ in range(2 if x.dtype is DType.FLOAT64 else 0):
        slope = node.add("Exp", node.add("Neg", node.add("Mul", y, y)))
        off = node.add("Div", node.add("Sub", node.add("Erf", y), x), slope)
        y = node.add("Sub", y, node.add("Mul", off, node.scalar(math.sqrt(math.pi) / 2, x.dtype)))
    endless = node.add("Mul", x, node.scalar(math.inf, x.dtype))
    return node.add("Where", node.add("Equal", node.add("Abs", x), one), endless, y)


def polynomial(node: Node, coefficients: Sequence[float], x: Operand) -> Operand:
    """Coefficients of the highest powers first."""
    first, *others = coefficients
    total = node.scalar(first, x.dtype)
    for coefficient in others:
        total = node.add("Add", node.add("Mul", total, x), node.scalar(coefficient, x.dtype))
    return total


def _clamp(node: Node) -> Result:
    """Between bounds that are numbers or tensors."""
    x = node.typed("self")
    bounds = [node.arguments.get(name) for name in ("min", "max")]
    if x.dtype.is_float and not any(isinstance(bound, Operand) for bound in bounds):
        lower = node.number("min") if node.has("min") else -math.inf
        upper = node.number("max") if node.has("max") else math.inf
        return node.add("Clip", x, lower=float(min(lower, upper)), upper=float(upper))
    least, most = ("Or", "And") if x.dtype is DType.BOOL else ("Max", "Min")
    for kind, name in ((least, "min"), (most, "max")):
        if node.has(name):
            x = node.add(kind, x, node.typed(name))
    return x


def _cast(node: Node) -> Result:
    """A copy in another element type or memory; memory is the whole program's affair."""
    return node.typed("self")


def _fused_multiply_add(node: Node) -> Result:
    return node.add("Add", node.add("Mul", node.typed("a"), node.typed("b")), node.typed("c"))


_OWN: Mapping[str, Callable[[Node], Result]] = {
    "_to_copy": _cast,
    "add": _sum_of("Add"),
    "atan2": _atan2,
    "clamp": _clamp,
    "clamp_max": _clamp,
    "clamp_min": _clamp,
    "copysign": _copied_sign,
    "div": _quotient,
    "erfinv": _inverse_error_function,
    "exp2": _exp2,
    "expm1": _expm1,
    **dict.fromkeys(("fmax", "fmin"), _extreme_number),
    "floor_divide": _floor_divide,
    "fma": _fused_multiply_add,
    "fmod": _fmod,
    "frexp": _mantissa_and_exponent,
    "hypot": _length,
    "ldexp": _times_power_of_two,
    "log10": _logarithm(10),
    "log1p": _log1p,
    "log2": _logarithm(2),
    "maximum": _binary,
    "minimum": _binary,
    "mul": _product,
    "neg": _negative,
    "pow": _power,
    "remainder": _remainder,
    "round": _round,
    "rsqrt": _rsqrt,
    "sgn": _sign,
    "sign": _sign,
    "signbit": _sign_bit,
    "rsub": _reversed_difference,
    "square": _square,
    "sub": _sum_of("Sub"),
    "trunc": _trunc,
}

CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_FUNCTIONS, _function),
    **dict.fromkeys(_ROUNDINGS, _rounding),
    **_OWN,
}
