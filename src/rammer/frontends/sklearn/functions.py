"""Functions of one variable that are accurate where their textbook form is not."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rammer.frontends.sklearn.tensor import Tensor


def expit(x: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`; 0 where the exponential overflows, as SciPy has it."""
    return 1.0 / ((-x).exp() + 1.0)


def scale_of(norm: Tensor) -> Tensor:
    """What rows are divided by: their norm, or 1 where scikit-learn takes it for zero."""
    one = Tensor(norm.node, norm.node.constant(np.array(1.0)))
    return (norm < 10.0 * float(np.finfo(np.float64).eps)).choose(one, norm)


def log1p(x: Tensor) -> Tensor:
    """`log(1 + x)`, accurate near 0: what rounding `1 + x` lost is multiplied back (Kahan)."""
    rounded = x + 1.0
    kept = rounded - 1.0
    is_plain = kept.equals(0.0) | x.equals(math.inf)
    return is_plain.choose(x, rounded.log() * (x / kept))


def expm1(x: Tensor) -> Tensor:
    """`exp(x) - 1`, accurate near 0 in the same way."""
    raised = x.exp()
    less = raised - 1.0
    is_plain = raised.equals(1.0)
    is_far = less.equals(-1.0) | raised.equals(math.inf)
    return is_plain.choose(x, is_far.choose(less, less * (x / raised.log())))


def polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """A polynomial by Horner's rule, the highest power's coefficient first."""
    first, second, *rest = coefficients
    total = x * first + second
    for coefficient in rest:
        total = total * x + coefficient
    return total


def normal_quantile(p: Tensor) -> Tensor:
    """The quantiles of the normal distribution for probabilities, infinite at 0 and 1 (Wichura 1988, AS 241)."""
    center = p - 0.5
    square = 0.180625 - center * center
    middle = center * (polynomial(square, _MIDDLE[0]) / polynomial(square, _MIDDLE[1]))
    tail = p.minimum(1.0 - p)
    depth = (-tail.log()).sqrt()
    near = depth - 1.6
    far = depth - 5.0
    at_ends = (depth <= 5.0).choose(
        polynomial(near, _NEAR[0]) / polynomial(near, _NEAR[1]), polynomial(far, _FAR[0]) / polynomial(far, _FAR[1])
    )
    outside = (center < 0.0).choose(-at_ends, at_ends)
    bounded = tail.equals(0.0).choose((center < 0.0).choose(-_infinite(p), _infinite(p)), outside)
    return (center.abs() <= 0.425).choose(middle, bounded)


def _infinite(like: Tensor) -> Tensor:
    return Tensor(like.node, like.node.constant(np.array(math.inf)))


# Numerators and denominators, the highest power first.
_MIDDLE = (
    (
        *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4),
        *(1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    ),
    (
        *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4),
        *(5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
    ),
)
_NEAR = (
    (
        *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0),
        *(3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    ),
    (
        *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1),
        *(6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
    ),
)
_FAR = (
    (
        *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2),
        *(2.96560571828504891230e-1, 1.78482653991729133580e0, 5.46378491116411436990e0, 6.65790464350110377720e0),
    ),
    (
        *(2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4),
        *(1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
    ),
)
