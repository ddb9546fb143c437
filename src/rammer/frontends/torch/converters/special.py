"""Special functions: of the error function's family, and of the gamma function's.

Each is built for the element type it is computed in, float32 or float64, and is right to a few units of its last place
but near zeros that are no whole numbers, where the error is of that size in relation to 1. Constants that are not given
by a formula here were computed for Rammer with 60 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted
from rammer.frontends.torch.converters.arithmetic import inverse_error_function, polynomial, wide_type
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

Function = Callable[[Node, Operand], Operand]


def of_numbers(function: Function) -> Converter:
    """The converter of a function of one tensor, which is rounded to 16 bits only at its end."""

    def convert(node: Node) -> Result:
        name = "self" if "self" in node.arguments else "x"
        return converted(node, function(node, node.typed(name, wide_type(node.dtype))), node.dtype)

    return convert


def plus(node: Node, x: Operand, number: float) -> Operand:
    """The sum."""
    return node.add("Add", x, node.scalar(number, x.dtype))


def times(node: Node, x: Operand, number: float) -> Operand:
    """The product."""
    return node.add("Mul", x, node.scalar(number, x.dtype))


def less(node: Node, x: Operand, number: float) -> Operand:
    """Whether it is less than a number."""
    return node.add("Less", x, node.scalar(number, x.dtype))


def _product(node: Node, *factors: Operand) -> Operand:
    first, *others = factors
    for factor in others:
        first = node.add("Mul", first, factor)
    return first


def _power(node: Node, x: Operand, exponent: int) -> Operand:
    """A whole power, 1 or more, by squares."""
    if exponent == 1:
        return x
    root = _power(node, x, exponent // 2)
    square = node.add("Mul", root, root)
    return node.add("Mul", square, x) if exponent % 2 else square


# The error function.

_SCALED_MIDDLE = 3.75
_SCALED: tuple[float, ...] = (-2.6231073471334759e-09, -1.9551358868985616e-09, 3.1979266716668042e-08)
_SCALED += (1.8790823223700481e-08, -2.4857126248016745e-07, -5.0844653786873023e-08, 1.7419821586224816e-06)
_SCALED += (-9.7926257073035231e-07, -1.1438048033346894e-05, 2.2387565714911816e-05, 5.1646529741774162e-05)
_SCALED += (-0.00029015535246077655, 0.00029371437804495801, 0.0017556261651970652, -0.0097465796832652621)
_SCALED += (0.028362277372111139, -0.05869339857664934, 0.09230432116428125, -0.10880393014244462)
_SCALED += (0.08227673848999506, 0.0035854154854790257, -0.14024059858554525, 1.2375126308378275)
"""`(1 + 2 x) exp(x * x) erfc(x)` by `(x - 3.75) / (x + 3.75)`, for all x from 0 on.

The form is that of Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x" (1981).
"""


def _scaled_complement(node: Node, x: Operand) -> Operand:
    """`exp(x * x) * erfc(x)` for numbers that are not negative."""
    whole = node.add("Reciprocal", plus(node, x, _SCALED_MIDDLE))
    place = plus(node, times(node, whole, -2 * _SCALED_MIDDLE), 1)
    return node.add("Div", polynomial(node, _SCALED, place), plus(node, times(node, x, 2), 1))


def _exponential_of_square(node: Node, x: Operand, sign: int) -> Operand:
    """`exp(sign * x * x)`; the square of a few leading bits of x is exact, what is left is small (Cody, 1969)."""
    x = node.add("Clip", node.add("Abs", x), lower=0.0, upper=30.0)
    leading = times(node, node.add("Floor", times(node, x, 16)), 1 / 16)
    rest = node.add("Mul", node.add("Sub", x, leading), node.add("Add", x, leading))
    squares = (node.add("Mul", leading, leading), rest)
    return _product(node, *(node.add("Exp", times(node, square, sign)) for square in squares))


def _complement(node: Node, x: Operand) -> Operand:
    """`1 - erf(x)`, which would cancel for x above 1/2."""
    tail = node.add("Mul", _exponential_of_square(node, x, -1), _scaled_complement(node, node.add("Abs", x)))
    near = node.add("Sub", node.scalar(1, x.dtype), node.add("Erf", x))
    return node.add("Where", less(node, x, 0.5), near, tail)


def _scaled_complement_of_all(node: Node, x: Operand) -> Operand:
    """`erfc(-x)` is `2 - erfc(x)`."""
    right = _scaled_complement(node, node.add("Abs", x))
    left = node.add("Sub", times(node, _exponential_of_square(node, x, 1), 2), right)
    return node.add("Where", less(node, x, 0), left, right)


def _normal_quantile(node: Node, p: Operand) -> Operand:
    """Where the normal distribution reaches p.

    In the middle by the inverse error function; in the tails Abramowitz & Stegun 26.2.23, and Newton's method for the
    logarithm of the tail.
    """
    other = node.add("Sub", node.scalar(1, p.dtype), p)
    lower = less(node, p, 0.5)
    log = node.add("Log", node.add("Where", lower, p, other))
    t = node.add("Sqrt", times(node, log, -2))
    over = polynomial(node, (0.010328, 0.802853, 2.515517), t)
    y = node.add("Sub", t, node.add("Div", over, polynomial(node, (0.001308, 0.189269, 1.432788, 1), t)))
    for _ in range(3 if p.dtype is DType.FLOAT64 else 2):
        scaled = _scaled_complement(node, times(node, y, math.sqrt(0.5)))
        tail = node.add("Sub", node.add("Log", times(node, scaled, 0.5)), times(node, node.add("Mul", y, y), 0.5))
        step = node.add("Mul", node.add("Sub", tail, log), times(node, scaled, math.sqrt(math.pi / 2)))
        y = node.add("Add", y, step)
    centred = plus(node, p, -0.5)
    inner = times(node, inverse_error_function(node, times(node, centred, 2)), math.sqrt(2))
    y = node.add("Where", node.add("Equal", log, node.scalar(-math.inf, p.dtype)), node.scalar(math.inf, p.dtype), y)
    outer = node.add("Where", lower, node.add("Neg", y), y)
    return node.add("Where", less(node, node.add("Abs", centred), 0.25), inner, outer)


# The gamma function.

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""The numbers of Bernoulli at 2, 4, 6 and so on, of asymptotic series in reciprocal squares."""

_GAMMA: tuple[float, ...] = (-3.53647433811882e-11, 1.0818879857139573e-10, -1.6381596734648426e-10)
_GAMMA += (5.3353790691526513e-10, -2.0735267758524892e-09, 6.5750871688264312e-09, -2.0577345254471981e-08)
_GAMMA += (6.6135818224619869e-08, -2.1388452890262906e-07, 6.9488810993976576e-07, -2.2742409034140543e-06)
_GAMMA += (7.5113797207701502e-06, -2.5094329864078195e-05, 8.5100905601897652e-05, -0.00029455070139898493)
_GAMMA += (0.0010498186643088884, -0.0039135609376317691, 0.015727850268645514, -0.072979947957152971)
_GAMMA += (0.48312895054098087,)
"""`log(gamma(1 + f)) / (f * (f - 1))` by `2 f - 1`, for f from 0 to 1: a Chebyshev expansion, as a polynomial."""

_FAR_GAMMA = 8
"""From where on Stirling's series gives the logarithm of the gamma function."""

_FAR_DIGAMMA = 10
"""From where on the asymptotic series gives the digamma function; derivatives take one more for each order."""

_MOST_DERIVATIVES = 20
"""Of higher orders factorials and powers leave the range of float32."""


def _series(node: Node, reciprocal: Operand, coefficients: Sequence[float]) -> Operand:
    """A polynomial in the square of a reciprocal, coefficients of the lowest powers first."""
    return polynomial(node, coefficients[::-1], node.add("Mul", reciprocal, reciprocal))


def _log_gamma(node: Node, x: Operand) -> Operand:
    """`log(abs(gamma(x)))`; negative numbers by reflection (Abramowitz & Stegun 6.1.17), poles are infinite."""
    size = node.add("Abs", x)
    right = node.add("Where", less(node, size, _FAR_GAMMA), _near_log_gamma(node, size), _far_log_gamma(node, size))
    whole = node.add("Round", x)
    sine = node.add("Abs", node.add("Sin", times(node, node.add("Sub", x, whole), math.pi)))
    logs = node.add("Add", node.add("Log", sine), node.add("Log", size))
    left = node.add("Sub", node.add("Sub", node.scalar(math.log(math.pi), x.dtype), logs), right)
    left = node.add("Where", node.add("Equal", x, whole), node.scalar(math.inf, x.dtype), left)
    return node.add("Where", less(node, x, 0), left, right)


def _near_log_gamma(node: Node, x: Operand) -> Operand:
    """From the fraction's by the recurrence; the zeros at 1 and 2 are factors, so that errors are small beside it."""
    one = node.scalar(1, x.dtype)
    fraction = node.add("Sub", x, node.add("Floor", x))
    base = polynomial(node, _GAMMA, plus(node, times(node, fraction, 2), -1))
    base = _product(node, base, fraction, plus(node, fraction, -1))
    factors = [node.add("Where", less(node, x, step), one, plus(node, x, 1.0 - step)) for step in range(2, _FAR_GAMMA)]
    below = less(node, x, 1)
    log = node.add("Log", node.add("Where", below, x, _product(node, *factors)))
    return node.add("Add", base, node.add("Where", below, node.add("Neg", log), log))


def _far_log_gamma(node: Node, x: Operand) -> Operand:
    """Stirling's series (Abramowitz & Stegun 6.1.40)."""
    reciprocal = node.add("Reciprocal", x)
    terms = [number / (2 * k * (2 * k - 1)) for k, number in enumerate(_BERNOULLI, 1)]
    rest = node.add("Mul", reciprocal, _series(node, reciprocal, terms))
    main = node.add("Mul", plus(node, x, -0.5), plus(node, node.add("Log", x), -1))
    return node.add("Add", main, plus(node, rest, 0.5 * math.log(2 * math.pi) - 0.5))


def _digamma(node: Node, x: Operand) -> Operand:
    """The derivative of `log(gamma(x))`: Abramowitz & Stegun 6.3.5, 6.3.7 and 6.3.18; poles are NaN, but that at 0."""
    negative = less(node, x, 0)
    mirrored = node.add("Where", negative, node.add("Sub", node.scalar(1, x.dtype), x), x)
    right = _positive_digamma(node, mirrored)
    left = node.add("Sub", right, times(node, _cotangent(node, x), math.pi))
    pole = node.add("Equal", x, node.add("Round", x))
    left = node.add("Where", pole, node.scalar(math.nan, x.dtype), left)
    return node.add("Where", negative, left, right)


def _cotangent(node: Node, x: Operand) -> Operand:
    """`cot(pi * x)` by the distance from the nearest pole or zero, which is exact."""
    rest = node.add("Sub", x, node.add("Round", x))
    size = node.add("Abs", rest)
    beside_pole = less(node, size, 0.25)
    distance = node.add("Where", beside_pole, size, node.add("Sub", node.scalar(0.5, x.dtype), size))
    tangent = node.add("Tan", times(node, distance, math.pi))
    value = node.add("Where", beside_pole, node.add("Reciprocal", tangent), tangent)
    return node.add("Where", less(node, rest, 0), node.add("Neg", value), value)


def _positive_digamma(node: Node, x: Operand) -> Operand:
    near = less(node, x, _FAR_DIGAMMA)
    far = node.add("Where", near, plus(node, x, _FAR_DIGAMMA), x)
    steps = (x if step == 0 else plus(node, x, step) for step in range(_FAR_DIGAMMA))
    skipped = node.add("Sum", *(node.add("Reciprocal", step) for step in steps))
    reciprocal = node.add("Reciprocal", far)
    terms = [0.0, *(number / (2 * k) for k, number in enumerate(_BERNOULLI, 1))]
    rest = node.add("Add", times(node, reciprocal, 0.5), _series(node, reciprocal, terms))
    value = node.add("Sub", node.add("Log", far), rest)
    return node.add("Where", near, node.add("Sub", value, skipped), value)


def _polygamma(node: Node) -> Result:
    """The digamma function or a derivative of it."""
    order = node.integer("n")
    if order > _MOST_DERIVATIVES:
        raise node.unsupported(f"polygamma of order {order}", f"orders up to {_MOST_DERIVATIVES} are possible")
    return of_numbers(_digamma if order == 0 else lambda node, x: _derivative(node, x, order))(node)


def _derivative(node: Node, x: Operand, order: int) -> Operand:
    """Of negative numbers by reflection (Abramowitz & Stegun 6.4.7): a cotangent's derivative is a polynomial in it."""
    negative = less(node, x, 0)
    mirrored = node.add("Where", negative, node.add("Sub", node.scalar(1, x.dtype), x), node.add("Abs", x))
    size = _derivative_size(node, mirrored, order)
    derivative = np.polynomial.Polynomial([0, -(math.pi ** (order + 1))])
    for _ in range(order):
        derivative = derivative.deriv() * np.polynomial.Polynomial([-1, 0, -1])
    coefficients = [float(value) for value in derivative.coef[::-1]]
    cotangents = polynomial(node, coefficients, _cotangent(node, x))
    right = size if order % 2 else node.add("Neg", size)
    return node.add("Where", negative, node.add("Sub", cotangents, size), right)


def _derivative_size(node: Node, x: Operand, order: int) -> Operand:
    """Of a positive number, without the sign: Abramowitz & Stegun 6.4.6 and 6.4.11."""
    start = _FAR_DIGAMMA + order
    near = less(node, x, start)
    reciprocal = node.add("Reciprocal", node.add("Where", near, plus(node, x, start), x))
    terms = [1.0]
    for k, number in enumerate(_BERNOULLI, 1):
        terms.append(number * math.factorial(2 * k + order - 1) / (math.factorial(2 * k) * math.factorial(order - 1)))
    series = node.add("Add", _series(node, reciprocal, terms), times(node, reciprocal, order / 2))
    main = _power(node, times(node, reciprocal, math.factorial(order - 1) ** (1 / order)), order)
    value = node.add("Mul", main, series)
    root = node.scalar(math.factorial(order) ** (1 / (order + 1)), x.dtype)
    steps = (node.add("Div", root, plus(node, x, step)) for step in range(start))
    skipped = node.add("Sum", *(_power(node, step, order + 1) for step in steps))
    return node.add("Where", near, node.add("Add", value, skipped), value)


CONVERTERS: Mapping[str, Converter] = {
    "digamma": of_numbers(_digamma),
    "erfc": of_numbers(_complement),
    "lgamma": of_numbers(_log_gamma),
    "polygamma": _polygamma,
    "special_erfcx": of_numbers(_scaled_complement_of_all),
    "special_ndtri": of_numbers(_normal_quantile),
}
