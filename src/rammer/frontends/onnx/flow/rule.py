"""What the rules have in common by which values whose size depends on the data flow through operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rammer.frontends.builder import Count, Operand
from rammer.frontends.moves import converted, part
from rammer.frontends.onnx.counts import counted, counted_operands, number, refusal
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
    if x.count is None or len(counted_operands(node)) > 1:
        raise refusal(node, "only that of its first input may")
    return x, x.count


def one_count(node: Node, operands: Sequence[Operand]) -> Operand:
    """How many elements count of operands, where that is the same number of all of them.

    Raises:
        UnsupportedFeatureError: it is not known to be.
    """
    counts = [x.count.value for x in operands if x.count is not None]
    if any(not node.builder.are_equal(counts[0], other) for other in counts[1:]):
        raise refusal(node, "it is not known to be that of its other inputs")
    return counts[0]


def cut(node: Node, x: Operand, extent: int) -> Operand:
    """An operand with no more elements than so many along the dimension that is counted, where there are others."""
    if x.count is None or x.shape[x.count.axis] == extent:
        return x
    return replace(part(node, replace(x, count=None), x.count.axis, 0, extent), count=x.count)


def along(node: Node, results: Sequence[Value | None], axis: int, count: Operand) -> list[Value | None]:
    """Results that all are counted along an axis."""
    return [counted(node, one, axis, count) if isinstance(one, Operand) else one for one in results]


def bare(x: Operand) -> Operand:
    """An operand with all of its elements, whether they count or not."""
    return x if x.count is None else replace(x, count=None)


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


def known(operand: Operand) -> int | None:
    """An integer, where it is known."""
    return None if operand.array is None else int(operand.array.item())
