"""Operators that map elements one to one: what counts of the operands counts of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import broadcast_count, cut
from rammer.frontends.onnx.converters import elementwise
from rammer.frontends.onnx.flow.rule import Rule, along, first_alone
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value


def _broadcast(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Operands have the same count along one dimension of the result, or one element along that."""
    count = broadcast_count(node, node.operands)
    if count is None:
        return converter(node)
    extent = min(x.shape[x.count.axis] for x in node.operands if x.count is not None)
    node.inputs = tuple(cut(node, x, extent) if isinstance(x, Operand) else x for x in node.inputs)
    return along(node, converter(node), count.axis, count.value)


def _alike(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Results have the shape of the first operand, whose elements each are computed alone."""
    _, count = first_alone(node)
    return along(node, converter(node), count.axis, count.value)


def _as_the_second(node: Node, converter: Converter) -> Sequence[Value | None]:
    """The second operand says an element type alone."""
    count = node.operand(0).count
    results = converter(node)
    return results if count is None else along(node, results, count.axis, count.value)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(elementwise.CONVERTERS, _broadcast),
    "CastLike": _as_the_second,
    "Dropout": _alike,
}
