"""inline_numbers: constants of one element become literals.

    y = op(x, c), c one number  ->  y = op(x) with the number in its expression

Operators without reductions are changed, except views that lowering knows by their kind; a changed operator has no
attributes. Gathers at a constant position become plain loads that way.

Ordering restriction: after the passes that know operators by their operands and attributes.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.expr import Const, Expr, Load, const
from rammer.ir.graph import Graph, Operator
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.helpers.simplify import simplified
from rammer.passes.helpers.slots import map_bodies, without_unused_slots


def run(graph: Graph) -> Graph:
    """Inline numbers; see the module."""
    numbers = {
        value: const(array.item(), graph.values[value].type.dtype)
        for value, array in graph.constants.items()
        if array.size == 1
    }
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        rewriter.insert(_inlined(operator, numbers))
    return rewriter.finish()


def _inlined(operator: Operator, numbers: dict[int, Const]) -> Operator:
    expr = operator.expr
    if expr is None or operator.kind in PLACED_KINDS or numbers.keys().isdisjoint(operator.inputs):
        return operator
    if expr.reductions:
        return operator

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load) and node.fill is None:
            return numbers.get(operator.inputs[node.slot])
        return simplified(node)

    expr, inputs = without_unused_slots(map_bodies(expr, visit), operator.inputs)
    return replace(operator, expr=expr, inputs=inputs, attributes={})
