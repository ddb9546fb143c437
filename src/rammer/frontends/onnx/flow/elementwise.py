"""Operators that map elements one to one: what counts of the operands counts of the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import cut, one_count
from rammer.frontends.onnx.converters import elementwise
from rammer.frontends.onnx.flow.rule import Rule, along, first_alone
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value


def _broadcast(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Operands have the same count along one dimension of the result, or one element along that."""
    operands = node.operands
    rank = max(x.rank for x in operands)
    sized = [(x, x.count.axis) for x in operands if x.count is not None]
    axes = {own + rank - x.rank for x, own in sized}
    if len(axes) > 1:
        raise node.refusal("so does that of another input, along another dimension")
    (axis,) = axes
    count = one_count(node, [x for x, _ in sized])
    for x in operands:
        own = axis - rank + x.rank
        if x.count is None and own >= 0 and x.shape[own] != 1:
            raise node.refusal(f"another input has {x.shape[own]} elements along that dimension")
    extent = min(x.shape[own] for x, own in sized)
    node.inputs = tuple(cut(node, x, extent) if isinstance(x, Operand) else x for x in node.inputs)
    return along(node, converter(node), axis, count)


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
