"""Operators that map elements one to one; most are ours under the same name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.onnx.codes import recast
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value
from rammer.frontends.onnx.tensors import dtype_of
from rammer.ir.graph import Attribute
from rammer.ir.types import DType

_PLAIN = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp"),
    *("Floor", "HardSwish", "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
    *("Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less"),
    *("LessOrEqual", "Mul", "Or", "PRelu", "Pow", "Sub", "Where", "Xor"),
)
"""Operators without attributes that have a kind of the same name."""

_Read = Callable[[Node, str], Attribute]

_ATTRIBUTES: Mapping[str, tuple[_Read, tuple[str, ...]]] = {
    "Celu": (Node.number, ("alpha",)),
    "Elu": (Node.number, ("alpha",)),
    "Gelu": (Node.text, ("approximate",)),
    "HardSigmoid": (Node.number, ("alpha", "beta")),
    "IsInf": (Node.flag, ("detect_negative", "detect_positive")),
    "LeakyRelu": (Node.number, ("alpha",)),
    "Selu": (Node.number, ("alpha", "gamma")),
    "Shrink": (Node.number, ("lambd", "bias")),
    "Swish": (Node.number, ("alpha",)),
    "ThresholdedRelu": (Node.number, ("alpha",)),
}
"""Operators that have a kind of the same name with the same attributes: how to read them, and their names."""


def plain(node: Node) -> Sequence[Operand]:
    """The kind of the same name, without attributes."""
    return [node.add(node.op_type, *node.operands)]


def _with_attributes(node: Node) -> Sequence[Operand]:
    read, names = _ATTRIBUTES[node.op_type]
    return [node.add(node.op_type, *node.operands, **{name: read(node, name) for name in names})]


def _bit_shift(node: Node) -> Sequence[Operand]:
    return [node.add("BitShift", *node.operands, direction=node.text("direction"))]


def _mod(node: Node) -> Sequence[Operand]:
    return [node.add("Mod", *node.operands, fmod=node.flag("fmod"))]


def _variadic(node: Node) -> Sequence[Operand]:
    if len(node.operands) == 1:
        return node.operands
    return [node.add(node.op_type, *node.operands)]


def _identity(node: Node) -> Sequence[Value]:
    """The operand itself, which may be a sequence or an optional."""
    return [node.value(0)]


def _clip(node: Node) -> Sequence[Operand]:
    """Bounds of floats that are known are attributes of the operator, others are operands."""
    x, lower, upper = node.operand(0), node.optional(1), node.optional(2)
    low, high = _bound(lower, -math.inf), _bound(upper, math.inf)
    if x.dtype.is_float and low is not None and high is not None:
        return [node.add("Clip", x, lower=low, upper=high)]
    if lower is not None:
        x = node.add("Max", x, lower)
    return [x if upper is None else node.add("Min", x, upper)]


def _bound(bound: Operand | None, absent: float) -> float | None:
    """A bound of Clip as a float; None if it is not known."""
    if bound is None:
        return absent
    if bound.array is None or bound.array.size != 1:
        return None
    return float(bound.array.item())


def _cast(node: Node) -> Sequence[Operand]:
    return [_recast(node, dtype_of(node.integer("to"), str(node.location)))]


def _bit_cast(node: Node) -> Sequence[Operand]:
    """Between integers of one size, and from truth values to uint8, a conversion keeps the bits."""
    x, to = node.operand(0), dtype_of(node.integer("to"), str(node.location))
    if x.dtype.itemsize_bytes != to.itemsize_bytes or x.dtype.is_code or to.is_code:
        raise node.invalid(f"the bits of {x.type} as {to.value}, which has another size")
    if x.dtype is not to and (x.dtype.is_float or to.is_float or to is DType.BOOL):
        raise node.unsupported(f"the bits of {x.dtype.value} as {to.value}", "integers of one size are possible")
    return [recast(node, x, to)]


def _cast_like(node: Node) -> Sequence[Operand]:
    return [_recast(node, node.operand(1).dtype)]


def _recast(node: Node, dtype: DType) -> Operand:
    saturate = not node.has("saturate") or node.flag("saturate")
    rounding = node.text("round_mode") if node.has("round_mode") else "up"
    if rounding not in ("up", "down", "nearest"):
        raise node.invalid(f"round_mode '{rounding}' does not exist")
    return recast(node, node.operand(0), dtype, saturate=saturate, rounding=rounding)


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_PLAIN, plain),
    **dict.fromkeys(_ATTRIBUTES, _with_attributes),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), _variadic),
    "BitCast": _bit_cast,
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Identity": _identity,
    "Mod": _mod,
}
