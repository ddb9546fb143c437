"""Replace every composite operator by the operators it stands for: a recurrent layer becomes its cells.

Afterwards each operator has an expression, and what a layer was made of has the layer's place in the model.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.graph import Graph, Operator
from rammer.operators.builder import GraphBuilder
from rammer.operators.registry import CompositeDef, definition_of
from rammer.passes.helpers.rewrite import Rewriter


def run(graph: Graph) -> Graph:
    """The graph without composite operators.

    Raises:
        ValueError: an operator has neither an expression nor an expansion.
    """
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if operator.expr is None:
            _splice(rewriter, operator, _expansion(graph, operator))
        else:
            rewriter.insert(operator)
    return rewriter.finish()


def _expansion(graph: Graph, operator: Operator) -> Graph:
    """What a composite operator stands for, as a graph of its own: inputs and outputs as the operator's."""
    definition = definition_of(operator.kind)
    if not isinstance(definition, CompositeDef):
        raise ValueError(f"{operator.kind} '{operator.name}' has neither an expression nor an expansion")
    builder = GraphBuilder(operator.name)
    inputs = [builder.input(graph.values[i].name, graph.values[i].type) for i in operator.inputs]
    return builder.build(definition.expand(builder, inputs, operator.attributes, operator.name))


def _splice(rewriter: Rewriter, operator: Operator, body: Graph) -> None:
    """Put a graph in the place of an operator."""
    values = dict(zip(body.inputs, operator.inputs, strict=True))
    for value, array in body.constants.items():
        values[value] = rewriter.constant(array, body.values[value].name)
    for part in body.operators:
        for output in part.outputs:
            values[output] = rewriter.value(body.values[output].type, body.values[output].name)
        rewriter.insert(
            replace(
                part,
                inputs=tuple(values[i] for i in part.inputs),
                outputs=tuple(values[o] for o in part.outputs),
                sources=operator.sources,
            )
        )
    for old, new in zip(operator.outputs, body.outputs, strict=True):
        rewriter.replace(old, values[new])
