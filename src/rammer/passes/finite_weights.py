"""finite_weights: convolutions by finite weights may leave their padding out.

    y = Conv(x, w)  ->  y = Conv(x, w), `finite_weights`

A product of padding and an infinite weight is NaN, so that a convolution whose weights are not known multiplies its
padding. A transposed convolution likewise has to look where its operands end. Weights that a program keeps as states
and moves, as those that are trained, are taken to be finite: once one is not, neither is what follows from it.

Ordering restriction: after `fold_constants`, which finds out what the weights are, and before every pass that knows
convolutions by their kind: those keep finite weights finite.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from rammer.ir.graph import Graph, Operator
from rammer.operators.registry import OperatorDef, definition_of
from rammer.passes.helpers.rewrite import Rewriter


def run(graph: Graph) -> Graph:
    """Mark convolutions; see the module."""
    rewriter = Rewriter(graph)
    states = frozenset(graph.inputs[len(graph.inputs) - len(graph.states) :])
    for operator in graph.operators:
        finite = _is_by_finite_weights(operator, graph, states)
        rewriter.insert(_marked(operator, graph) if finite else operator)
    return rewriter.finish()


def _is_by_finite_weights(operator: Operator, graph: Graph, states: Collection[int]) -> bool:
    if operator.kind not in {"Conv", "ConvTranspose"} or operator.attributes.get("finite_weights"):
        return False
    weight = operator.inputs[1]
    return weight in states or (weight in graph.constants and bool(np.isfinite(graph.constants[weight]).all()))


def _marked(operator: Operator, graph: Graph) -> Operator:
    definition = definition_of(operator.kind)
    assert isinstance(definition, OperatorDef)  # convolutions are expressions
    attributes = MappingProxyType({**operator.attributes, "finite_weights": True})
    types = [graph.values[value].type for value in operator.inputs]
    return replace(operator, expr=definition.build(types, attributes), attributes=attributes)
