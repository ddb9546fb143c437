"""Activation functions, kept whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rammer.frontends.moves import reshaped
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.graph import Attribute

_PLAIN: Mapping[str, str] = {
    "hardswish": "HardSwish",
    "mish": "Mish",
    "sigmoid": "Sigmoid",
}

_Attributes = Callable[[Node], Mapping[str, Attribute]]

_WITH_ATTRIBUTES: Mapping[str, tuple[str, _Attributes]] = {
    "celu": ("Celu", lambda node: {"alpha": float(node.number("alpha"))}),
    "gelu": ("Gelu", lambda node: {"approximate": node.text("approximate")}),
    "hardshrink": ("Shrink", lambda node: {"lambd": float(node.number("lambd")), "bias": 0.0}),
    "hardsigmoid": ("HardSigmoid", lambda _: {"alpha": 1 / 6, "beta": 0.5}),
    "leaky_relu": ("LeakyRelu", lambda node: {"alpha": float(node.number("negative_slope"))}),
    "silu": ("Swish", lambda _: {"alpha": 1.0}),
    "softshrink": ("Shrink", lambda node: dict.fromkeys(("lambd", "bias"), float(node.number("lambd")))),
}
"""Kinds of ours, and how their attributes follow from PyTorch's arguments."""


def _plain(node: Node) -> Result:
    return node.add(_PLAIN[node.operator], node.typed("self"))


def _relu(node: Node) -> Result:
    """Numbers without a sign are what they are."""
    x = node.typed("self")
    return node.add("Relu", x) if x.dtype.is_signed else x


def _with_attributes(node: Node) -> Result:
    kind, attributes = _WITH_ATTRIBUTES[node.operator]
    return node.add(kind, node.typed("self"), **attributes(node))


def _elu(node: Node) -> Result:
    """`scale * (x if x > 0 else alpha * (exp(input_scale * x) - 1))`."""
    x = node.typed("self")
    alpha, scale, input_scale = (float(node.number(name)) for name in ("alpha", "scale", "input_scale"))
    if input_scale == 1:
        y = node.add("Elu", x, alpha=alpha)
    else:
        inner = node.add("Elu", node.add("Mul", x, node.scalar(input_scale, x.dtype)), alpha=alpha)
        y = node.add("Where", node.add("Less", node.scalar(0, x.dtype), x), x, inner)
    return y if scale == 1 else node.add("Mul", y, node.scalar(scale, x.dtype))


def _selu(node: Node) -> Result:
    return node.add("Selu", node.typed("self"), alpha=1.6732632423543772, gamma=1.0507009873554805)


def _hardtanh(node: Node) -> Result:
    x = node.typed("self")
    if x.dtype.is_float:
        return node.add("Clip", x, lower=float(node.number("min_val")), upper=float(node.number("max_val")))
    return node.add("Min", node.add("Max", x, node.typed("min_val")), node.typed("max_val"))


def _relu6(node: Node) -> Result:
    return node.add("Clip", node.typed("self"), lower=0.0, upper=6.0)


def _softplus(node: Node) -> Result:
    """`log(1 + exp(beta * x)) / beta`, and x itself where `beta * x` exceeds the threshold."""
    x, beta = node.typed("self"), node.number("beta")
    scaled = x if beta == 1 else node.add("Mul", x, node.scalar(beta, x.dtype))
    y = node.add("Softplus", scaled)
    y = y if beta == 1 else node.add("Div", y, node.scalar(beta, x.dtype))
    beyond = node.add("Less", node.scalar(node.number("threshold"), x.dtype), scaled)
    return node.add("Where", beyond, x, y)


def _log_sigmoid(node: Node) -> Result:
    """Its second result, `exp(-|x|)` on processors and empty on a GPU, is there for the gradient."""
    x = node.typed("self")
    y = node.add("Neg", node.add("Softplus", node.add("Neg", x)))
    if len(node.results) == 1:
        return y
    return [y, node.add("Exp", node.add("Neg", node.add("Abs", x))) if node.used[1] else None]


def _threshold(node: Node) -> Result:
    x = node.typed("self")
    beyond = node.add("LessOrEqual", x, node.typed("threshold"))
    return node.add("Where", beyond, node.typed("value"), x)


def _prelu(node: Node) -> Result:
    """A slope for each channel, which is dimension 1, or one for all."""
    x, slope = node.operand("self"), node.operand("weight")
    if slope.rank == 1 and x.rank > 2:
        slope = reshaped(node, slope, (slope.shape[0], *(1 for _ in x.shape[2:])))
    return node.add("PRelu", x, slope)


def _rrelu(node: Node) -> Result:
    """Outside of training the slope is the mean of its bounds."""
    if node.flag("training"):
        raise node.unsupported("rrelu in training mode", "call module.eval() first")
    return node.add("LeakyRelu", node.typed("self"), alpha=(node.number("lower") + node.number("upper")) / 2)


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_PLAIN, _plain),
    **dict.fromkeys(_WITH_ATTRIBUTES, _with_attributes),
    "_prelu_kernel": _prelu,
    "elu": _elu,
    "hardtanh": _hardtanh,
    "log_sigmoid_forward": _log_sigmoid,
    "prelu": _prelu,
    "relu": _relu,
    "relu6": _relu6,
    "rrelu": _rrelu,
    "selu": _selu,
    "softplus": _softplus,
    "threshold": _threshold,
}
