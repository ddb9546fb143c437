"""eliminate_dead: drop what no output of the model depends on.

    y = op(x), nobody reads y               ->  nothing
    y, z = op(x, w), nobody reads z         ->  y = op(x): the result and the operands that it alone needs are gone

The last step of a recurrent layer keeps what nobody reads of it: it is then computed as the steps before are, by the
code that is there and with the constants that are there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Graph, Operator
from rammer.passes.helpers.constants import read_again
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.slots import without_unused_slots
from rammer.tiling.pattern import contraction


def run(graph: Graph) -> Graph:
    """Eliminate dead operators and results; see the module."""
    kept = _live(graph, ())
    whole = {operator.outputs: operator for operator in graph.operators}
    if any(operator.outputs not in whole for operator in kept):
        steps = _steps(graph, [operator for operator in kept if whole.get(operator.outputs) is operator])
        kept = _live(graph, steps) if steps else kept
    rewriter = Rewriter(graph)
    for operator in kept:
        rewriter.insert(operator)
    return rewriter.finish()


def _live(graph: Graph, steps: Collection[TensorExpr]) -> list[Operator]:
    """What outputs of the model depend on, without results that nobody reads but those of `steps`."""
    needed = set(graph.outputs)
    kept: list[Operator] = []
    for operator in reversed(graph.operators):
        if needed.isdisjoint(operator.outputs):
            continue
        trimmed = _trimmed(operator, needed)
        if operator.expr in steps and trimmed.inputs == operator.inputs:
            trimmed = operator
        needed.update(trimmed.inputs)
        kept.append(trimmed)
    return kept[::-1]


def _trimmed(operator: Operator, needed: set[int]) -> Operator:
    """The operator without the results nobody reads; a composite operator stays whole."""
    if operator.expr is None or needed.issuperset(operator.outputs):
        return operator
    live = [position for position, output in enumerate(operator.outputs) if output in needed]
    expr = replace(operator.expr, outputs=tuple(operator.expr.outputs[position] for position in live))
    expr, inputs = without_unused_slots(expr, operator.inputs)
    outputs = tuple(operator.outputs[position] for position in live)
    return replace(operator, expr=expr, inputs=inputs, outputs=outputs, attributes={})


def _steps(graph: Graph, operators: Collection[Operator]) -> set[TensorExpr]:
    """The expressions of operators with several results that multiply by weights which others read, too."""
    shared = read_again(graph)
    found = {
        operator.expr
        for operator in operators
        if operator.expr is not None and len(operator.outputs) > 1 and not shared.isdisjoint(operator.inputs)
    }
    return {expr for expr in found if contraction(expr) is not None}
