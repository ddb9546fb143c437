"""What the rules have in common by which values whose size depends on the data flow through operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rammer.frontends.builder import Count, Operand
from rammer.frontends.counts.count import counted, number
from rammer.frontends.moves import converted
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value
from rammer.ir.types import DType

Rule = Callable[[Node, Converter], Sequence[Value | None]]
"""The results of a node by its ordinary converter, with what of them counts."""


def first_alone(node: Node) -> tuple[Operand, Count]:
    """The first operand, which is the only one whose size depends on the data, and what counts of it.

    Raises:
        UnsupportedFeatureError: others do, or another one.
    """
    x = node.operand(0)
    if x.count is None or len(node.counted_operands()) > 1:
        raise node.refusal("only that of its first input may")
    return x, x.count


def along(node: Node, results: Sequence[Value | None], axis: int, count: Operand) -> list[Value | None]:
    """Results that all are counted along an axis."""
    return [counted(node, one, axis, count) if isinstance(one, Operand) else one for one in results]


def scalars(node: Node, position: int) -> tuple[Operand, ...] | None:
    """The elements of an operand of integers, as far as these are known one by one; none of an operand left out."""
    operand = node.optional(position)
    if operand is None:
        return ()
    return node.builder.elements(operand, name=node.location.node, source=node.location)


def ordinary(node: Node, converter: Converter, *operands: Operand | None) -> Sequence[Value | None]:
    """The results of a node for other operands in the first places; None leaves one as it is."""
    given = list(node.inputs)
    for position, operand in enumerate(operands):
        if operand is not None:
            given[position] = operand
    node.inputs = tuple(given)
    return converter(node)


def sized(node: Node, results: Sequence[Value | None], axis: int, size: Operand) -> list[Value | None]:
    """Results of which as many elements count along an axis as a number says that the model computes.

    It is brought to the nearest possible one: in a branch that is not taken, it may be any.
    """
    whole = converted(node, size, DType.INT64)
    extent = next(one.shape[axis] for one in results if isinstance(one, Operand))
    count = node.add("Min", node.add("Max", whole, number(node, 0)), number(node, extent))
    return along(node, results, axis, count)
