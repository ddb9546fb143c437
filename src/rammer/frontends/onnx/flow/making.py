"""Operators whose results have a size that depends on the data, of operands for which that holds already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rammer.frontends.builder import Count
from rammer.frontends.counts.count import bare, counted, cut, filled, one_count
from rammer.frontends.onnx.converters.counted import non_max_suppression, unique_slices
from rammer.frontends.onnx.flow.rule import Rule, first_alone, ordinary
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value


def _nonzero(node: Node, converter: Converter) -> Sequence[Value | None]:
    """What does not count is 0."""
    x, _ = first_alone(node)
    return ordinary(node, converter, filled(node, x))


def _compress(node: Node, converter: Converter) -> Sequence[Value | None]:
    """What does not count of the condition, or of the operand, is not taken."""
    x, condition = node.operand(0), node.operand(1)
    if x.count is not None:
        axis = node.axis(node.integer("axis"), x.rank) if node.has("axis") else 0
        if x.count.axis != axis or (x.rank > 1 and not node.has("axis")):
            raise node.refusal("elements are taken along another dimension")
        if condition.count is None and condition.rank == 1:
            condition = replace(condition, count=Count(axis=0, value=x.count.value))
    return ordinary(node, converter, bare(x), filled(node, condition))


def _non_max_suppression(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Boxes that do not count are not selected."""
    boxes, scores = node.operand(0), node.operand(1)
    places = [None if x.count is None else x.count.axis for x in (boxes, scores)]
    if places != [1, 2]:
        raise node.refusal("its boxes and scores are not counted along the boxes alone")
    count = one_count(node, [boxes, scores])
    extent = min(boxes.shape[1], scores.shape[2])
    boxes, scores = (bare(cut(node, x, extent)) for x in (boxes, scores))
    return non_max_suppression(node, boxes, scores, count)


def _unique(node: Node, converter: Converter) -> Sequence[Value | None]:
    """What does not count is sorted behind all that does."""
    x, count = first_alone(node)
    axis = node.axis(node.integer("axis"), x.rank) if node.has("axis") else 0
    if count.axis != axis or (x.rank > 1 and not node.has("axis")):
        raise node.refusal("slices are compared along another dimension")
    values, firsts, inverse, sizes = unique_slices(node, bare(x), count.value)
    return [values, firsts, counted(node, inverse, 0, count.value), sizes]


RULES: Mapping[str, Rule] = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _nonzero,
    "Unique": _unique,
}
