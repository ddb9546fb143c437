"""Tensors that follow from numbers and shapes alone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.torch.node import Converter, Node, Number, Result

_ZEROS = (
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "new_zeros",
    "zeros",
    "zeros_like",
)
"""What PyTorch leaves open in tensors that are not initialised is 0 here."""
_ONES = ("new_ones", "ones", "ones_like")
_FULL: Mapping[str, str] = {
    "fill": "value",
    "full": "fill_value",
    "full_like": "fill_value",
    "new_full": "fill_value",
    "scalar_tensor": "s",
}
"""Operators that spread a number, and the argument's name."""

_SAME = ("alias", "alias_copy", "clone", "contiguous", "detach", "detach_copy", "lift_fresh_copy")
"""Operators that give what they are given."""


def filled(node: Node, value: Number) -> Operand:
    """A tensor of the result's type, all of whose elements are a number."""
    return node.add("Expand", node.scalar(value, node.dtype), shape=node.shape)


def _zeros(node: Node) -> Result:
    return filled(node, 0)


def _ones(node: Node) -> Result:
    return filled(node, 1)


def _full(node: Node) -> Result:
    value = node.typed(_FULL[node.operator])
    return node.add("Expand", value, shape=node.shape)


def _arange(node: Node) -> Result:
    """`start + i * step`, computed in float64 or int64."""
    (count,) = node.shape
    start = node.number("start") if node.has("start") else 0
    step = node.number("step") if node.has("step") else 1
    wide = np.dtype(np.float64 if node.dtype.is_float else np.int64)
    positions = np.arange(count).astype(wide) * np.asarray(step, wide) + np.asarray(start, wide)
    return node.constant(positions.astype(node.dtype.numpy))


def _eye(node: Node) -> Result:
    rows, columns = node.shape
    return node.constant(np.eye(rows, columns, dtype=node.dtype.numpy))


def _triangle_indices(node: Node) -> Result:
    row, column, offset = (node.integer(name) for name in ("row", "col", "offset"))
    corner = np.tril if node.operator == "tril_indices" else np.triu
    places = np.stack(np.nonzero(corner(np.ones((row, column), bool), offset)))
    return node.constant(places.astype(node.dtype.numpy))


def _passed_through(node: Node) -> Result:
    """The tensor itself: memory, and who shares it, is the compiler's affair."""
    return node.operand("self")


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_FULL, _full),
    **dict.fromkeys(_ONES, _ones),
    **dict.fromkeys(_ZEROS, _zeros),
    **dict.fromkeys(_SAME, _passed_through),
    "arange": _arange,
    "eye": _eye,
    "tril_indices": _triangle_indices,
    "triu_indices": _triangle_indices,
}
