"""finite_weights: convolutions by finite weights may leave their padding out.

    y = Conv(x, w)  ->  y = Conv(x, w), `finite_weights`

A product of padding and an infinite weight is NaN, so that a convolution whose weights are not known multiplies its
padding. A transposed convolution likewise has to look where its operands end.

Ordering restriction: after `fold_constants`, which finds out what the weights are, and before every pass that knows
convolutions by their kind: those keep finite weights finite.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np

from rammer.ir.graph import Graph, Operator
from rammer.operators.registry import OperatorDef, definition_of
from rammer.passes.helpers.rewrite import Rewriter


def run(graph: Graph) -> Graph:
    """Mark convolutions; see the module."""
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        rewriter.insert(_marked(operator, graph) if _is_by_finite_weights(operator, graph) else operator)
    return rewriter.finish()


def _is_by_finite_weights(operator: Operator, graph: Graph) -> bool:
    if operator.kind not in {"Conv", "ConvTranspose"}:
        return False
    weight = graph.constants.get(operator.inputs[1])
    return weight is not None and bool(np.isfinite(weight).all())


def _marked(operator: Operator, graph: Graph) -> Operator:
    definition = definition_of(operator.kind)
    assert isinstance(definition, OperatorDef)  # convolutions are expressions
    attributes = MappingProxyType({**operator.attributes, "finite_weights": True})
    types = [graph.values[value].type for value in operator.inputs]
    return replace(operator, expr=definition.build(types, attributes), attributes=attributes)
