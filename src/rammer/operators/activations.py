"""Scalar formulas of the activation functions, shared by the elementwise operators and the recurrent layers.

Formulas keep their accuracy where the textbook form would overflow or cancel, and let NaN and infinity through.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rammer.ir.expr import Expr, ScalarFn, call
from rammer.ir.graph import Attributes
from rammer.operators.attributes import number, text
from rammer.operators.scalars import absolute, choose, clamp, exp, less, log1p, maximum, minimum, real

Activation = Callable[[Expr, Attributes], Expr]


def softplus(x: Expr) -> Expr:
    """`log(1 + exp(x))` without overflow."""
    return maximum(x, 0.0) + log1p(exp(-absolute(x)))


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """`alpha * x + beta` between 0 and 1."""
    return clamp(x * alpha + beta, 0.0, 1.0)


def _gelu(x: Expr, attributes: Attributes) -> Expr:
    if text(attributes, "approximate") == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (call(ScalarFn.TANH, inner) + 1.0)
    return x * 0.5 * (call(ScalarFn.ERF, x * math.sqrt(0.5)) + 1.0)


def _selu(x: Expr, attributes: Attributes) -> Expr:
    alpha = number(attributes, "alpha")
    return choose(less(0.0, x), x, exp(x) * alpha - alpha) * number(attributes, "gamma")


def _celu(x: Expr, attributes: Attributes) -> Expr:
    alpha = number(attributes, "alpha")
    return maximum(x, 0.0) + minimum((exp(x / alpha) - 1.0) * alpha, 0.0)


def _shrink(x: Expr, attributes: Attributes) -> Expr:
    x = real(x)
    limit, bias = number(attributes, "lambd"), number(attributes, "bias")
    return choose(less(x, -limit), x + bias, choose(less(limit, x), x - bias, 0.0))


ACTIVATIONS: Mapping[str, Activation] = {
    "Relu": lambda x, _: call(ScalarFn.MAX, x, 0),
    "Sigmoid": lambda x, _: call(ScalarFn.SIGMOID, x),
    "Tanh": lambda x, _: call(ScalarFn.TANH, x),
    "Softplus": lambda x, _: softplus(x),
    "Softsign": lambda x, _: x / (absolute(x) + 1.0),
    "Mish": lambda x, _: x * call(ScalarFn.TANH, softplus(x)),
    "LeakyRelu": lambda x, a: choose(less(x, 0.0), x * number(a, "alpha"), x),
    "Elu": lambda x, a: choose(less(x, 0.0), (exp(x) - 1.0) * number(a, "alpha"), x),
    "Selu": _selu,
    "Celu": _celu,
    "HardSigmoid": lambda x, a: hard_sigmoid(x, number(a, "alpha"), number(a, "beta")),
    "HardSwish": lambda x, _: x * hard_sigmoid(x, 1 / 6, 0.5),
    "Gelu": _gelu,
    "ThresholdedRelu": lambda x, a: choose(less(number(a, "alpha"), x), x, 0.0),
    "Shrink": _shrink,
    "Swish": lambda x, a: x * call(ScalarFn.SIGMOID, x * number(a, "alpha")),
}
"""Formula of each activation over a floating-point operand and the operator's attributes (Relu, Shrink: any number)."""
