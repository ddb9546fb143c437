"""Bessel functions of orders 0 and 1.

Each is built for the element type it is computed in, float32 or float64, and is right to a few units of its last place
but near zeros, where the error is of that size in relation to 1. Polynomials whose coefficients are not given by a
formula are Chebyshev expansions, computed for Rammer with 60 digits, in a variable from -1 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.torch.converters.arithmetic import polynomial
from rammer.frontends.torch.converters.special import Function, less, of_numbers, plus, times
from rammer.frontends.torch.node import Converter, Node
from rammer.ir.types import DType

_FAR = 8
"""From where on functions that oscillate are given by their amplitude and phase."""

_NEAR_J0: tuple[float, ...] = (4.0037632815796753e-13, -1.243301171273326e-11, 3.3634475788173604e-10)
_NEAR_J0 += (-7.91532308295207e-09, 1.5956109104549218e-07, -2.717749223632098e-06, 3.8473197855944365e-05)
_NEAR_J0 += (-0.0004435459224311503, 0.004058078989140991, -0.028472718610882047, 0.14598884856759264)
_NEAR_J0 += (-0.5074680458471, 1.0383794611437211, -0.8080888076696872, -0.6484692830871837, 0.9303012472958572)
_NEAR_J0 += (0.04582966485981377,)
_NEAR_J1: tuple[float, ...] = (-4.0045728425886457e-13, 1.1658972367678622e-11, -2.943013798001659e-10)
_NEAR_J1 += (6.431190177265836e-09, -1.196708186787801e-07, 1.8684526037206013e-06, -2.404574865968694e-05)
_NEAR_J1 += (0.0002494945813597261, -0.0020290394945705996, 0.012456814392263375, -0.05474581821284722)
_NEAR_J1 += (0.15858376432721838, -0.2595948652859303, 0.15151665143806636, 0.08105866038589796, -0.05814382795599107)
_NEAR_J = (_NEAR_J0, _NEAR_J1)
"""J of each order, that of order 1 divided by x, up to 8, by `x * x / 32 - 1`."""

_NEAR_Y0: tuple[float, ...] = (-8.840112096073101e-13, 2.6926938054524057e-11, -7.13046146536789e-10)
_NEAR_Y0 += (1.6390875014077404e-08, -3.2185078445935923e-07, 5.3213188103997145e-06, -7.279541882454115e-05)
_NEAR_Y0 += (0.000806158605961636, -0.00702574105727097, 0.046367047681375125, -0.21895747096171628)
_NEAR_Y0 += (0.6721770783431679, -1.0775477338215995, 0.14412632369302475, 1.6470964788745466, -0.8284358903604587)
_NEAR_Y0 += (-0.382250654459425,)
_NEAR_Y1: tuple[float, ...] = (8.760001143977853e-13, -2.499531546171249e-11, 6.169688029066965e-10)
_NEAR_Y1 += (-1.3153147367094951e-08, 2.3804930420514178e-07, -3.601000022590458e-06, 4.467433012646365e-05)
_NEAR_Y1 += (-0.0004438173434420147, 0.0034224907399188495, -0.01962875683311711, 0.07854786922242532)
_NEAR_Y1 += (-0.19639839859930203, 0.23507209206669755, 0.02336757172099348, -0.24337743079193114)
_NEAR_Y1 += (0.07075985882118005,)
_NEAR_Y = (_NEAR_Y0, _NEAR_Y1)
"""The same of Y, without its terms with a logarithm and a pole at 0."""

_FAR_P0: tuple[float, ...] = (-6.657452787373511e-15, 1.8840841793227738e-14, -3.620281004629368e-14)
_FAR_P0 += (1.3840570774134486e-13, -6.001206263414665e-13, 2.7007731789024772e-12, -1.4038561722872729e-11)
_FAR_P0 += (8.745257592299864e-11, -6.838644664052454e-10, 7.223748835130291e-09, -1.1581372426605086e-07)
_FAR_P0 += (3.4626662222962802e-06, -0.0003026128544554116, 0.5638833842007489)
_FAR_P1: tuple[float, ...] = (7.046687950821993e-15, -2.0003690052913137e-14, 3.8728718727086937e-14)
_FAR_P1 += (-1.4858361846209203e-13, 6.466870687183719e-13, -2.9287972727721375e-12, 1.534825206676245e-11)
_FAR_P1 += (-9.665173987006398e-11, 7.674703655905483e-10, -8.298389819154351e-09, 1.3843387916778218e-07)
_FAR_P1 += (-4.490776837079188e-06, 0.0005070963857317774, 0.5647013183258544)
_FAR_Q0: tuple[float, ...] = (7.182904997421348e-15, -1.928008536955025e-14, 3.24765893625673e-14)
_FAR_Q0 += (-1.1836541637213822e-13, 4.90265650090177e-13, -2.0339277670235575e-12, 9.60779430933635e-12)
_FAR_Q0 += (-5.342779818278627e-11, 3.6293128309634726e-10, -3.1982310933371826e-09, 4.009252398059213e-08)
_FAR_Q0 += (-8.333863428008602e-07, 3.8551915446786644e-05, -0.008776033221720657)
_FAR_Q1: tuple[float, ...] = (-7.587796620545238e-15, 2.0424326433349865e-14, -3.466762073357498e-14)
_FAR_Q1 += (1.2672857981996408e-13, -5.264667733016365e-13, 2.1963859734229198e-12, -1.0449206413203408e-11)
_FAR_Q1 += (5.864458979669858e-11, -4.0345838101215954e-10, 3.622172456583273e-09, -4.678237854868435e-08)
_FAR_Q1 += (1.0275031139665892e-06, -5.428326845936889e-05, 0.026391025077212298)
_FAR_P, _FAR_Q = (_FAR_P0, _FAR_P1), (_FAR_Q0, _FAR_Q1)
"""Hankel's P and Q of each order, that is times `x / 8`, over the root of pi, from 8 on, by `128 / (x * x) - 1`."""

_FAR_K0: tuple[float, ...] = (2.534820467036602e-11, 3.480480677025221e-11, -5.341859910939586e-11)
_FAR_K0 += (-1.0387596375943465e-10, 2.52923623700049e-10, -4.393277348366468e-12, 9.410401647338068e-10)
_FAR_K0 += (-2.4561787781994197e-09, 1.0106487362350611e-08, -2.70942820428314e-08, 1.0307888100235242e-07)
_FAR_K0 += (-3.100965839806837e-07, 1.1249592907716705e-06, -3.5911460765567455e-06, 1.3010580777517887e-05)
_FAR_K0 += (-4.3525610305734146e-05, 0.00016278282391422294, -0.0005746200406120817, 0.002344354038358351)
_FAR_K0 += (-0.009047854303702592, 0.051904142000699996, 1.2085585393824039)
_FAR_K1: tuple[float, ...] = (-5.114219968446545e-11, 3.314891343861267e-11, -2.8827650543846152e-11)
_FAR_K1 += (3.871398566902981e-10, -1.4323916402083036e-09, 3.5451421637647005e-09, -1.1523045628170145e-08)
_FAR_K1 += (3.509484865154411e-08, -1.1170712650407407e-07, 3.415011215266923e-07, -1.0820017355717784e-06)
_FAR_K1 += (3.3583874400312454e-06, -1.0673202221576338e-05, 3.355631079959308e-05, -0.00010771773965999391)
_FAR_K1 += (0.0003441268508157926, -0.0011269348877037742, 0.00369284692879148, -0.01263540807917401)
_FAR_K1 += (0.04365061563750178, -0.17753773382085045, 1.3970089271126294)
_FAR_K = (_FAR_K0, _FAR_K1)
"""`sqrt(x) * exp(x)` times K of each order, from 1 on, by `1 - 4 / (x + 1)`."""


def _first_kind(order: int) -> Function:
    """J; that of order 1 is odd."""

    def function(node: Node, x: Operand) -> Operand:
        size = node.add("Abs", x)
        near = _near(node, size, _NEAR_J[order])
        near = node.add("Mul", near, size) if order else near
        p, q, across, along = _far(node, size, order)
        far = node.add("Sub", node.add("Mul", p, across), node.add("Mul", q, along))
        value = node.add("Where", less(node, size, _FAR), near, node.add("Div", far, node.add("Sqrt", size)))
        return node.add("Where", less(node, x, 0), node.add("Neg", value), value) if order else value

    return function


def _second_kind(order: int) -> Function:
    """Y, which is minus infinity at 0 and no number below."""

    def function(node: Node, x: Operand) -> Operand:
        near = node.add("Mul", _near(node, x, _NEAR_J[order]), times(node, node.add("Log", x), 2 / math.pi))
        near = node.add("Add", near, _near(node, x, _NEAR_Y[order]))
        if order:
            pole = times(node, node.add("Reciprocal", x), 2 / math.pi)
            near = node.add("Sub", node.add("Mul", near, x), pole)
        p, q, across, along = _far(node, x, order)
        far = node.add("Add", node.add("Mul", p, along), node.add("Mul", q, across))
        value = node.add("Where", less(node, x, _FAR), near, node.add("Div", far, node.add("Sqrt", x)))
        return node.add("Where", _is_zero(node, x), node.scalar(-math.inf, x.dtype), value)

    return function


def _near(node: Node, x: Operand, coefficients: Sequence[float]) -> Operand:
    return polynomial(node, coefficients, plus(node, times(node, node.add("Mul", x, x), 2 / _FAR**2), -1))


def _far(node: Node, x: Operand, order: int) -> tuple[Operand, Operand, Operand, Operand]:
    """Hankel's P and Q, and root 2 times the cosine and sine of the phase (Abramowitz & Stegun 9.2.5 and 9.2.6).

    The phase is x less an odd number of eighths of a turn: sums of the cosine and sine of x, which is not rounded.
    """
    reciprocal = times(node, node.add("Reciprocal", x), _FAR)
    place = plus(node, times(node, node.add("Mul", reciprocal, reciprocal), 2), -1)
    p = polynomial(node, _FAR_P[order], place)
    q = node.add("Mul", polynomial(node, _FAR_Q[order], place), reciprocal)
    sine, cosine = node.add("Sin", x), node.add("Cos", x)
    both, difference = node.add("Add", sine, cosine), node.add("Sub", sine, cosine)
    return (p, q, difference, node.add("Neg", both)) if order else (p, q, both, difference)


def _is_zero(node: Node, x: Operand) -> Operand:
    return node.add("Equal", x, node.scalar(0, x.dtype))


def _modified(order: int, *, scaled: bool) -> Function:
    """The modified function of order 0 or 1, or that times `exp(-abs(x))`: Abramowitz & Stegun 9.6.10 and 9.7.1.

    PyTorch's overflows and gives NaN where `exp(abs(x))` is infinite, as this one does.
    """

    def function(node: Node, x: Operand) -> Operand:
        size = node.add("Abs", x)
        limit = 20 if x.dtype is DType.FLOAT64 else 10
        precision = float(np.finfo(x.dtype.numpy.name).eps) / 8
        half = times(node, size, 0.5)
        near = polynomial(node, _near_terms(order, limit, precision)[::-1], node.add("Mul", half, half))
        near = node.add("Mul", near, half) if order else near
        far = polynomial(node, _far_terms(order, limit, precision)[::-1], node.add("Reciprocal", size))
        far = node.add("Div", far, node.add("Sqrt", size))
        if scaled:
            near = node.add("Mul", near, node.add("Exp", node.add("Neg", size)))
        else:
            far = node.add("Mul", far, node.add("Exp", size))
        value = node.add("Where", less(node, size, limit), near, far)
        return node.add("Where", less(node, x, 0), node.add("Neg", value), value) if order else value

    return function


def _near_terms(order: int, limit: int, precision: float) -> list[float]:
    """Coefficients of the power series in `x * x / 4`, until they do not count at the limit."""
    terms = [1.0]
    while terms[-1] * (limit / 2) ** (2 * len(terms)) > precision:
        terms.append(terms[-1] / (len(terms) * (len(terms) + order)))
    return terms


def _far_terms(order: int, limit: int, precision: float) -> list[float]:
    """Coefficients of the asymptotic series in `1 / x`, until they do not count at the limit."""
    terms = [1 / math.sqrt(2 * math.pi)]
    while abs(terms[-1]) > precision * float(limit) ** (len(terms) - 1):
        terms.append(terms[-1] * ((2 * len(terms) - 1) ** 2 - 4 * order * order) / (8 * len(terms)))
    return terms


def _modified_second_kind(order: int, *, scaled: bool) -> Function:
    """K, or that times `exp(x)`: Abramowitz & Stegun 9.6.11 up to 1; infinite at 0, no number below."""

    def function(node: Node, x: Operand) -> Operand:
        precision = float(np.finfo(x.dtype.numpy.name).eps) / 8
        terms = _near_terms(order, 1, precision)
        half = times(node, x, 0.5)
        square = node.add("Mul", half, half)
        log = plus(node, node.add("Log", half), np.euler_gamma)
        means = [(_harmonic(k) + _harmonic(k + order)) / 2 * term for k, term in enumerate(terms)]
        near = node.add("Mul", log, polynomial(node, terms[::-1], square))
        near = node.add("Sub", near, polynomial(node, means[::-1], square))
        if order:
            near = node.add("Add", node.add("Mul", near, half), node.add("Reciprocal", x))
        else:
            near = node.add("Neg", near)
        place = plus(node, times(node, node.add("Reciprocal", plus(node, x, 1)), -4), 1)
        far = node.add("Div", polynomial(node, _FAR_K[order], place), node.add("Sqrt", x))
        if scaled:
            near = node.add("Mul", near, node.add("Exp", x))
        else:
            far = node.add("Mul", far, node.add("Exp", node.add("Neg", x)))
        value = node.add("Where", less(node, x, 1), near, far)
        return node.add("Where", _is_zero(node, x), node.scalar(math.inf, x.dtype), value)

    return function


def _harmonic(count: int) -> float:
    return sum(1 / k for k in range(1, count + 1))


def _spherical(node: Node, x: Operand) -> Operand:
    """`sin(x) / x`."""
    value = node.add("Div", node.add("Sin", x), x)
    value = node.add("Where", _is_zero(node, x), node.scalar(1, x.dtype), value)
    endless = node.add("Equal", node.add("Abs", x), node.scalar(math.inf, x.dtype))
    return node.add("Where", endless, node.scalar(0, x.dtype), value)


CONVERTERS: Mapping[str, Converter] = {
    "i0": of_numbers(_modified(0, scaled=False)),
    "special_bessel_j0": of_numbers(_first_kind(0)),
    "special_bessel_j1": of_numbers(_first_kind(1)),
    "special_bessel_y0": of_numbers(_second_kind(0)),
    "special_bessel_y1": of_numbers(_second_kind(1)),
    "special_i0e": of_numbers(_modified(0, scaled=True)),
    "special_i1": of_numbers(_modified(1, scaled=False)),
    "special_i1e": of_numbers(_modified(1, scaled=True)),
    "special_modified_bessel_i0": of_numbers(_modified(0, scaled=False)),
    "special_modified_bessel_i1": of_numbers(_modified(1, scaled=False)),
    "special_modified_bessel_k0": of_numbers(_modified_second_kind(0, scaled=False)),
    "special_modified_bessel_k1": of_numbers(_modified_second_kind(1, scaled=False)),
    "special_scaled_modified_bessel_k0": of_numbers(_modified_second_kind(0, scaled=True)),
    "special_scaled_modified_bessel_k1": of_numbers(_modified_second_kind(1, scaled=True)),
    "special_spherical_bessel_j0": of_numbers(_spherical),
}
