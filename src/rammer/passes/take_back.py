"""take_back: operators that were set apart have their expressions again.

    y = extern:Swish(x)  ->  y = Swish(x)

Ordering restriction: after all passes that rewrite expressions or look at operators by their kinds.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.graph import Graph, Operator
from rammer.operators.registry import OperatorDef, definition_of
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.set_apart import PREFIX


def run(graph: Graph) -> Graph:
    """Give the expressions back; see the module."""
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        rewriter.insert(_whole(graph, operator) if operator.kind.startswith(PREFIX) else operator)
    return rewriter.finish()


def _whole(graph: Graph, operator: Operator) -> Operator:
    kind = operator.kind.removeprefix(PREFIX)
    definition = definition_of(kind)
    assert isinstance(definition, OperatorDef)  # it had an expression
    expr = definition.build([graph.values[value].type for value in operator.inputs], operator.attributes)
    return replace(operator, kind=kind, expr=expr)
