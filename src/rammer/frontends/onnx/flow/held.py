"""Operators of sequences and optionals, which hold tensors whose size depends on the data as any others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.counts.moves import joined
from rammer.frontends.onnx.flow.rule import Rule
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value

_HOLDING = (
    *("Identity", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceConstruct", "SequenceErase"),
    *("SequenceInsert", "SequenceLength"),
)


def _as_they_are(node: Node, converter: Converter) -> Sequence[Value | None]:
    return converter(node)


def _at(node: Node, converter: Converter) -> Sequence[Value | None]:
    if node.operand(1).array is None:
        raise node.refusal("it is taken at a position that the model computes")
    return converter(node)


def _concat(node: Node, converter: Converter) -> Sequence[Value | None]:
    elements = node.sequence(0).elements
    if node.flag("new_axis"):
        raise node.refusal("it is put along a new dimension")
    return [joined(node, elements, node.axis(node.integer("axis"), elements[0].rank))]


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_HOLDING, _as_they_are),
    "ConcatFromSequence": _concat,
    "SequenceAt": _at,
}
