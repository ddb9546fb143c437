"""eliminate_common: compute equal things once.

    y = op(x), z = op(x)                  ->  y = op(x), readers of z read y
    constants of equal type and content   ->  one constant

Operators are equal if their kinds, expressions (or, for composite ones, attributes) and operands are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from rammer.ir.graph import Graph, Operator, fingerprint
from rammer.passes.helpers.rewrite import Rewriter


def run(graph: Graph) -> Graph:
    """Eliminate common subexpressions; see the module."""
    rewriter = Rewriter(graph)
    _merge_constants(graph, rewriter)
    known: dict[Hashable, Operator] = {}
    for operator in graph.operators:
        found = known.setdefault(_key(operator, rewriter.currents(operator.inputs)), operator)
        if found is operator:
            rewriter.insert(operator)
            continue
        for output, equal in zip(operator.outputs, found.outputs, strict=True):
            rewriter.replace(output, equal)
    return rewriter.finish()


def _merge_constants(graph: Graph, rewriter: Rewriter) -> None:
    """Let equal constants be one. Only those that share their type with another are read."""
    types = Counter(graph.values[value].type for value in graph.constants)
    known: dict[Hashable, int] = {}
    for value, array in graph.constants.items():
        entry = graph.values[value]
        if types[entry.type] > 1:
            first = known.setdefault((entry.type, entry.layout, fingerprint(array)), value)
            rewriter.replace(value, first)


def _key(operator: Operator, inputs: tuple[int, ...]) -> Hashable:
    if operator.expr is None:
        return (operator.kind, tuple(sorted(operator.attributes.items())), inputs)
    return (operator.kind, operator.expr, inputs)
