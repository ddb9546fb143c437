"""Products and windows that ONNX Runtime's optimiser writes: with an activation behind them, or with channels last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.moves import channels_first, channels_last
from rammer.frontends.onnx.converters.windows import convolution, pooling
from rammer.frontends.onnx.node import Converter, Node

_ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Clip": ("lower", "upper"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""Our kinds of the same names, and their attributes in the order that a convolution lists them in."""


def _fused_gemm(node: Node) -> Sequence[Operand]:
    """A product with its bias and an activation, whose numbers are attributes of the node."""
    total = node.add(
        "Gemm",
        *node.operands,
        alpha=node.number("alpha"),
        beta=node.number("beta"),
        trans_a=node.flag("transA"),
        trans_b=node.flag("transB"),
    )
    names = _ACTIVATIONS.get(node.text("activation"), ())
    return [_activated(node, total, tuple(node.number(f"activation_{name}") for name in names))]


def _fused_conv(node: Node) -> Sequence[Operand]:
    """FusedConv, NhwcConv and NhwcFusedConv: a convolution, a sum with `Z`, an activation.

    With channels last, the weights are as in any other convolution.
    """
    is_last = node.op_type.startswith("Nhwc")
    x, w, bias, z = node.operand(0), node.operand(1), node.optional(2), node.optional(3)
    result = convolution(node, channels_first(node, x) if is_last else x, w, *(() if bias is None else (bias,)))
    result = channels_last(node, result) if is_last else result
    if z is not None:
        result = node.add("Add", result, z)
    if node.op_type == "NhwcConv" or not node.has("activation"):
        return [result]
    return [_activated(node, result, node.numbers("activation_params"))]


def _activated(node: Node, x: Operand, numbers: Sequence[float]) -> Operand:
    kind = node.text("activation")
    if kind not in _ACTIVATIONS:
        raise node.unsupported(f"{node.op_type} with the activation '{kind}'", "optimise the model without fusing it")
    names = _ACTIVATIONS[kind]
    if len(numbers) != len(names):
        raise node.invalid(f"the activation {kind} takes {len(names)} number(s), not {len(numbers)}")
    return node.add(kind, x, **dict(zip(names, numbers, strict=True)))


def _max_pool(node: Node) -> Sequence[Operand]:
    """NhwcMaxPool."""
    image = channels_first(node, node.operand(0))
    return [channels_last(node, node.add("MaxPool", image, **pooling(node, image)))]


CONVERTERS: Mapping[str, Converter] = {
    "com.microsoft.FusedConv": _fused_conv,
    "com.microsoft.FusedGemm": _fused_gemm,
    "com.microsoft.NhwcConv": _fused_conv,
    "com.microsoft.NhwcFusedConv": _fused_conv,
    "com.microsoft.NhwcMaxPool": _max_pool,
}
