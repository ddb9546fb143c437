"""Operators whose results have a size that depends on the data, of operands for which that holds already."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from rammer.frontends.counts.count import bare, broadcast_count, filled
from rammer.frontends.counts.lines import elements_counted
from rammer.frontends.moves import reshaped
from rammer.frontends.torch.converters.finding import boxes_by_rank, found_once
from rammer.frontends.torch.flow.elementwise import broadcast
from rammer.frontends.torch.flow.rule import Rule, counted_axis, ordinary
from rammer.frontends.torch.node import Converter, Node, Result


def _nonzero(node: Node, converter: Converter) -> Result:
    """What does not count is 0."""
    return ordinary(node, converter, self=filled(node, node.operand("self")))


def _where(node: Node, converter: Converter) -> Result:
    """A choice, or the places that a condition has."""
    if "self" in node.arguments:
        return broadcast(node, converter)
    return ordinary(node, converter, condition=filled(node, node.operand("condition")))


def _unique(node: Node, converter: Converter) -> Result:
    """What does not count is sorted behind all that does."""
    x, axis = node.operand("self"), counted_axis(node, "self")
    if x.count is None:
        return converter(node)
    if axis != (node.dimension("dim", x.rank) if node.has("dim") else 0):
        raise node.refusal("slices are compared along another dimension")
    if node.has("dim"):
        return found_once(node, bare(x), x.count.axis, x.count.value)
    length = elements_counted(node, x, range(x.rank))
    return found_once(node, reshaped(node, bare(x), (x.type.size,)), 0, length)


def _boxes(node: Node, converter: Converter) -> Result:
    """Boxes that do not count come last, and are not selected."""
    boxes, scores = node.operand("dets"), node.operand("scores")
    count = broadcast_count(node, [replace(boxes, type=scores.type), scores])
    if count is None or count.axis:
        return converter(node)
    return boxes_by_rank(node, bare(boxes), filled(node, scores, -math.inf), count.value)


RULES: Mapping[str, Rule] = {
    "_local_scalar_dense": ordinary,
    "_unique2": _unique,
    "nms": _boxes,
    "nonzero": _nonzero,
    "nonzero_static": _nonzero,
    "unique_dim": _unique,
    "where": _where,
}
