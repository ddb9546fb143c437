"""Values whose size depends on the data, between the operator that makes them and the outputs of the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from rammer.errors import InvalidModelError
from rammer.frontends.builder import Count, Operand
from rammer.frontends.onnx.node import Node
from rammer.frontends.onnx.sequences import Value

_CARRYING = frozenset({"Cast", "Identity", "Transpose"})
"""What may stand behind such a value: it moves elements, or computes each by itself."""

_SUFFIX = ".count"


def check_counts(node: Node) -> None:
    """Check that no shape depends on how many elements of an operand count.

    Raises:
        UnsupportedFeatureError: one does.
    """
    counted = _counted(node)
    if counted is not None and node.op_type not in _CARRYING:
        raise node.unsupported(
            f"its input '{counted[0]}' has a size that depends on the data",
            "such values may be outputs of the model, after " + ", ".join(sorted(_CARRYING)) + " at most",
        )


def _counted(node: Node) -> tuple[str, Count] | None:
    """The name of an operand whose size depends on the data, and what counts of it. Sequences hold none."""
    tensors = [value for value in node.inputs if isinstance(value, Operand)]
    return next(((tensor.name, tensor.count) for tensor in tensors if tensor.count is not None), None)


def carried(node: Node, results: Sequence[Value | None]) -> Sequence[Value | None]:
    """The results of a node, with what counts of its operand."""
    counted = _counted(node)
    if counted is None:
        return results
    _, count = counted
    axis = count.axis
    if node.op_type == "Transpose":
        rank = node.operand(0).rank
        axis = (node.integers("perm") or tuple(reversed(range(rank)))).index(axis)
    moved = Count(axis=axis, value=count.value)
    return [replace(result, count=moved) if isinstance(result, Operand) else result for result in results]


def with_counts(outputs: Sequence[tuple[str, Operand]], where: str) -> list[tuple[str, Operand]]:
    """The outputs, and behind them, named after each whose size depends on the data, how many elements count.

    Raises:
        InvalidModelError: an output has the name that such a number, or an element of a sequence, has.
    """
    counts = [(name + _SUFFIX, operand.count.value) for name, operand in outputs if operand.count is not None]
    whole = [*outputs, *counts]
    for name, times in Counter(name for name, _ in whole).items():
        if times > 1:
            raise InvalidModelError(
                f"an output is called '{name}', which the size or an element of another is", where=where
            )
    return whole
