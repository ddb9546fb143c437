"""Distances between tensors and between their rows, by the norm of any order."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, expanded
from rammer.frontends.torch.converters.reduction import norm
from rammer.frontends.torch.node import Converter, Node, Result


def _distance(node: Node) -> Result:
    """That of all elements."""
    apart = node.add("Sub", node.typed("self"), node.typed("other"))
    return norm(node, apart, node.number("p"), tuple(range(apart.rank)), keepdims=False)


def _euclidean_distance(node: Node) -> Result:
    """The distance between each row of one operand and each row of the other."""
    a, b = (converted(node, node.operand(name), node.dtype) for name in ("x1", "x2"))
    return pairwise_distance(node, a, b, 2.0)


def _pairwise_distance(node: Node) -> Result:
    return pairwise_distance(node, node.typed("x1"), node.typed("x2"), node.number("p"))


def pairwise_distance(node: Node, a: Operand, b: Operand, p: float) -> Operand:
    """The p-norms of the differences of rows: `[*batch, m, k]` and `[*batch, n, k]` give `[*batch, m, n]`."""
    rows = node.add("Reshape", a, shape=(*a.shape[:-1], 1, a.shape[-1]))
    columns = node.add("Reshape", b, shape=(*b.shape[:-2], 1, *b.shape[-2:]))
    return _distance_of_rows(node, rows, columns, p)


def _distance_among_rows(node: Node) -> Result:
    """The distance between each row and each one behind it."""
    x = node.operand("self")
    pairs = (node.constant(places.astype(np.int64)) for places in np.triu_indices(x.shape[0], 1))
    first, second = (node.add("Gather", x, places, axis=0) for places in pairs)
    return _distance_of_rows(node, first, second, node.number("p"))


def _distance_of_rows(node: Node, a: Operand, b: Operand, p: float) -> Operand:
    """The p-norm of a difference along its last dimension; unlike a norm of order 0, this one keeps NaN."""
    apart = node.add("Sub", a, b)
    last = apart.rank - 1
    if math.isinf(p) and not apart.shape[last]:
        return expanded(node, node.scalar(0, apart.dtype), apart.shape[:last])
    if p == 0:
        some = node.add("Min", node.add("Ceil", node.add("Abs", apart)), node.scalar(1, apart.dtype))
        return node.add("ReduceSum", some, axes=(last,), keepdims=False)
    return norm(node, apart, p, (last,), keepdims=False)


CONVERTERS: Mapping[str, Converter] = {
    "_cdist_forward": _pairwise_distance,
    "_euclidean_dist": _euclidean_distance,
    "_pdist_forward": _distance_among_rows,
    "dist": _distance,
}
