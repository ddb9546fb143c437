"""Replace every composite operator by the operators it stands for: a recurrent layer becomes its cells.

Afterwards each operator has an expression, and what a layer was made of has the layer's place in the model.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.errors import UnsupportedFeatureError
from rammer.ir.graph import Graph, Operator
from rammer.operators.builder import GraphBuilder
from rammer.operators.recurrent import LAYERS, steps_of
from rammer.operators.recurrent_gradients import TRAINED_LAYERS
from rammer.operators.registry import CompositeDef, definition_of
from rammer.passes.helpers.rewrite import Rewriter

_MOST_STEPS = 1 << 13
"""Of a layer: from there on compiling takes minutes."""


def run(graph: Graph) -> Graph:
    """The graph without composite operators.

    Raises:
        UnsupportedFeatureError: it has a loop that was not cut out, or a layer of very many steps.
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
    if operator.repeat is not None:
        raise _too_many(operator, operator.repeat.trips)
    definition = definition_of(operator.kind)
    if not isinstance(definition, CompositeDef):
        raise ValueError(f"{operator.kind} '{operator.name}' has neither an expression nor an expansion")
    x = graph.values[operator.inputs[0]].type if operator.inputs else None
    if x is not None and operator.kind in LAYERS and (steps := steps_of(operator, x)) > _MOST_STEPS:
        raise _too_many(operator, steps)
    if x is not None and operator.kind in TRAINED_LAYERS and x.shape[0] > _MOST_STEPS:
        raise _too_many(operator, x.shape[0], "train it on parts of the sequence")
    builder = GraphBuilder(operator.name)
    inputs = [builder.input(graph.values[i].name, graph.values[i].type) for i in operator.inputs]
    return builder.build(definition.expand(builder, inputs, operator.attributes, operator.name))


_ALONE = "compile it by itself with rammer.compile, where such a loop is a program of its own"


def _too_many(operator: Operator, steps: int, hint: str = _ALONE) -> UnsupportedFeatureError:
    what, where = operator.kind, operator.name
    if operator.sources:
        what, where = operator.sources[0].op_type, str(operator.sources[0])
    return UnsupportedFeatureError(
        f"{steps} steps of {what} in a model that has to be one program",
        where=where,
        hint=hint,
    )


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
