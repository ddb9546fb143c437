"""eliminate_dead: drop what no output of the model depends on.

y = op(x), nobody reads y               ->  nothing
y, z = op(x, w), nobody reads z         ->  y = op(x): the result and the operands that it alone needs are gone
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.graph import Graph, Operator
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.slots import without_unused_slots


def run(graph: Graph) -> Graph:
    """Eliminate dead operators and results; see the module."""
    needed = set(graph.outputs)
    kept: list[Operator] = []
    for operator in reversed(graph.operators):
        if needed.isdisjoint(operator.outputs):
            continue
        trimmed = _trimmed(operator, needed)
        needed.update(trimmed.inputs)
        kept.append(trimmed)
    rewriter = Rewriter(graph)
    for operator in reversed(kept):
        rewriter.insert(operator)
    return rewriter.finish()


def _trimmed(operator: Operator, needed: set[int]) -> Operator:
    """The operator without the results nobody reads; a composite operator stays whole."""
    if operator.expr is None or needed.issuperset(operator.outputs):
        return operator
    live = [position for position, output in enumerate(operator.outputs) if output in needed]
    expr = replace(operator.expr, outputs=tuple(operator.expr.outputs[position] for position in live))
    expr, inputs = without_unused_slots(expr, operator.inputs)
    outputs = tuple(operator.outputs[position] for position in live)
    return replace(operator, expr=expr, inputs=inputs, outputs=outputs, attributes={})
