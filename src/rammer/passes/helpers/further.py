"""Further results of operators: what others than products read whole is written for products in fewer bits, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rammer.ir.expr import cast
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import TensorType
from rammer.passes.helpers.constants import read_again
from rammer.passes.helpers.rewrite import PLACED_KINDS
from rammer.tiling.attention import attention


def can_be_written_again(graph: Graph) -> Callable[[int], bool]:
    """What tells whether the operator that makes a value can have it as a further result.

    Steps of recurrent layers cannot, whose results travel as flagged words, nor attention, whose skeleton has one
    result. What a run leaves in a state is written once: most of it may already be where it belongs.
    """
    kept, producers = read_again(graph), graph.producers()
    states = graph.outputs[len(graph.outputs) - len(graph.states) :]

    def can_be(value: int) -> bool:
        maker = producers.get(value)
        return (
            maker is not None
            and maker.expr is not None
            and maker.kind not in PLACED_KINDS
            and kept.isdisjoint(maker.inputs)
            and value not in states
            and attention(maker.expr) is None
        )

    return can_be


def written_again(operator: Operator, value: int, fresh: int, type_: TensorType) -> Operator:
    """An operator that writes one of its results a second time, as another value, perhaps in other bits."""
    assert operator.expr is not None
    first = operator.expr.outputs[operator.outputs.index(value)]
    again = replace(first, type=type_, body=cast(type_.dtype, first.body))
    expr = replace(operator.expr, outputs=(*operator.expr.outputs, again))
    return replace(operator, expr=expr, outputs=(*operator.outputs, fresh))
