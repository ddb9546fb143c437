"""Values whose size depends on the data, between the operator that makes them and the outputs of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rammer.errors import InvalidModelError
from rammer.frontends.builder import Count, Operand
from rammer.frontends.onnx.node import Node

_CARRYING = frozenset({"Cast", "Identity", "Transpose"})
"""What may stand behind such a value: it moves elements, or computes each by itself."""

_SUFFIX = ".count"


def check_counts(node: Node) -> None:
    """Check that no shape depends on how many elements of an operand count.

    Raises:
        UnsupportedFeatureError: one does.
    """
    counted = next((operand for operand in node.operands if operand.count is not None), None)
    if counted is not None and node.op_type not in _CARRYING:
        raise node.unsupported(
            f"its input '{counted.name}' has a size that depends on the data",
            "such values may be outputs of the model, after " + ", ".join(sorted(_CARRYING)) + " at most",
        )


def carried(node: Node, results: Sequence[Operand | None]) -> Sequence[Operand | None]:
    """The results of a node, with what counts of its operand."""
    count = next((operand.count for operand in node.operands if operand.count is not None), None)
    if count is None:
        return results
    axis = count.axis
    if node.op_type == "Transpose":
        rank = node.operand(0).rank
        axis = (node.integers("perm") or tuple(reversed(range(rank)))).index(axis)
    return [result and replace(result, count=Count(axis=axis, value=count.value)) for result in results]


def with_counts(outputs: Sequence[tuple[str, Operand]], where: str) -> list[tuple[str, Operand]]:
    """The outputs, and behind them, named after each whose size depends on the data, how many elements count.

    Raises:
        InvalidModelError: an output has such a name already.
    """
    counts = [(name + _SUFFIX, operand.count.value) for name, operand in outputs if operand.count is not None]
    taken = {name for name, _ in outputs}
    for name, _ in counts:
        if name in taken:
            raise InvalidModelError(f"an output is called '{name}', which the size of another is", where=where)
    return [*outputs, *counts]
