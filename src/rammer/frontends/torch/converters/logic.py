"""Comparisons, logic, bits and choices."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_COMPARISONS: Mapping[str, str] = {
    "eq": "Equal",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "lt": "Less",
    "ne": "Equal",
}
_LOGICAL: Mapping[str, str] = {"logical_and": "And", "logical_or": "Or", "logical_xor": "Xor"}
_BITWISE: Mapping[str, tuple[str, str]] = {
    "bitwise_and": ("And", "BitwiseAnd"),
    "bitwise_or": ("Or", "BitwiseOr"),
    "bitwise_xor": ("Xor", "BitwiseXor"),
}
"""Kinds for booleans and for integers."""


def _comparison(node: Node) -> Result:
    """In the element type that both operands are promoted to; booleans are ordered as 0 and 1."""
    kind = _COMPARISONS[node.operator]
    common = node.promoted("self", "other")
    if common is DType.BOOL and kind != "Equal":
        common = DType.UINT8
    result = node.add(kind, node.typed("self", common), node.typed("other", common))
    return node.add("Not", result) if node.operator == "ne" else result


def _logical(node: Node) -> Result:
    return node.add(_LOGICAL[node.operator], node.typed("self", DType.BOOL), node.typed("other", DType.BOOL))


def _logical_not(node: Node) -> Result:
    return node.add("Not", node.typed("self", DType.BOOL))


def _bitwise(node: Node) -> Result:
    of_booleans, of_integers = _BITWISE[node.operator]
    kind = of_booleans if node.dtype is DType.BOOL else of_integers
    return node.add(kind, node.typed("self"), node.typed("other"))


def _bitwise_not(node: Node) -> Result:
    return node.add("Not" if node.dtype is DType.BOOL else "BitwiseNot", node.typed("self"))


def _shift(node: Node) -> Result:
    """By a number of places: a product with a power of two, or a quotient rounded down."""
    if node.dtype is DType.BOOL or isinstance(node.arguments["other"], Operand):
        raise node.unsupported("bits shifted by numbers of places that a tensor holds", "multiply by powers of two")
    x, places, bits = node.typed("self"), node.integer("other"), 8 * node.dtype.numpy.itemsize
    if not 0 <= places < bits:
        raise node.unsupported(f"bits of {node.dtype.value} shifted by {places} places")
    if node.operator in ("__lshift__", "bitwise_left_shift"):
        factor = np.left_shift(np.array(1, node.dtype.numpy), places).astype(node.dtype.numpy)
        return node.add("Mul", x, node.constant(factor))
    for step in [places] if places < bits - 1 else [places - 1, 1]:  # the power has to fit into the type
        power = node.constant(np.array(1 << step, node.dtype.numpy))
        x = node.add("Div", node.add("Sub", x, node.add("Mod", x, power, fmod=False)), power)
    return x


def _is_nan(node: Node) -> Result:
    x = node.operand("self")
    return node.add("IsNaN", x) if x.dtype.is_float else never(node, x)


def _is_infinite(node: Node) -> Result:
    x = node.operand("self")
    return node.add("IsInf", x, detect_negative=True, detect_positive=True) if x.dtype.is_float else never(node, x)


def never(node: Node, like: Operand) -> Operand:
    """False everywhere."""
    return node.add("Expand", node.scalar(False, DType.BOOL), shape=like.shape)


def _where(node: Node) -> Result:
    condition = converted(node, node.operand("condition"), DType.BOOL)
    return node.add("Where", condition, node.typed("self"), node.typed("other"))


def _masked_fill(node: Node) -> Result:
    return node.add("Where", node.operand("mask"), node.typed("value"), node.typed("self"))


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_BITWISE, _bitwise),
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys(_LOGICAL, _logical),
    **dict.fromkeys(("__lshift__", "__rshift__", "bitwise_left_shift", "bitwise_right_shift"), _shift),
    "bitwise_not": _bitwise_not,
    "isinf": _is_infinite,
    "isnan": _is_nan,
    "logical_not": _logical_not,
    "masked_fill": _masked_fill,
    "where": _where,
}
