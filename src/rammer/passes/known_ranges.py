"""known_ranges: the least of values that are never negative needs not be found.

    Min(ReduceMin(x), 0), x >= 0                     ->  0
    Cast(Round(Clip(Div(Neg(0), scale), 0, 255)))    ->  0

A range that is found as the model runs has 0 in it (`DynamicQuantizeLinear`), so that behind activations that give
nothing negative only its end is left to find. The zero point is 0 then, which bytes need not be centred by. A NaN gives
a scale that is NaN, as before; what integer a NaN would become is not defined.

Ordering restriction: before `byte_products` and `byte_windows`, which look at zero points.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType
from rammer.operators.attributes import number
from rammer.passes.helpers.rewrite import Rewriter

_NEVER_NEGATIVE = frozenset({"Abs", "HardSigmoid", "Relu", "Sigmoid", "Softmax"})
_AS_THEIR_OPERANDS = frozenset(
    {"Add", "AveragePool", "Concat", "GlobalAveragePool", "Identity", "Mul", "Reshape", "Slice", "Transpose"}
)
"""Kinds that give nothing negative of operands that are not."""


def run(graph: Graph) -> Graph:
    """Replace what is known of ranges; see the module."""
    if not any(operator.kind == "ReduceMin" for operator in graph.operators):
        return graph
    rewriter = Rewriter(graph)
    signs: dict[int, bool] = {}
    for operator in graph.operators:
        rewriter.insert(operator)
        if len(operator.outputs) != 1:
            continue
        (result,) = operator.outputs
        signs[result] = _is_never_negative(operator, signs)
        if _is_least(operator, rewriter, signs) or _is_zero_point(operator, rewriter):
            type_ = rewriter.type(result)
            rewriter.replace(result, rewriter.constant(np.zeros(type_.shape, type_.dtype.numpy), operator.name))
    return rewriter.finish()


def _is_never_negative(operator: Operator, signs: Mapping[int, bool]) -> bool:
    if operator.kind == "Clip":
        return number(operator.attributes, "lower") >= 0
    if operator.kind in _AS_THEIR_OPERANDS:
        return all(signs.get(value, False) for value in operator.inputs)
    return operator.kind in _NEVER_NEGATIVE


def _is_least(operator: Operator, rewriter: Rewriter, signs: Mapping[int, bool]) -> bool:
    """Whether it is the lesser of 0 and the least of values that are never negative."""
    if operator.kind != "Min":
        return False
    least, zero = operator.inputs
    maker = rewriter.maker(least)
    return (
        maker is not None
        and maker.kind == "ReduceMin"
        and signs.get(maker.inputs[0], False)
        and _is_zero(zero, rewriter)
    )


def _is_zero_point(operator: Operator, rewriter: Rewriter) -> bool:
    """Whether it is the integer nearest to no quanta."""
    if operator.kind != "Cast" or operator.attributes["to"] is not DType.UINT8:
        return False
    value = operator.inputs[0]
    for kind in ("Round", "Clip", "Div", "Neg"):
        made = rewriter.maker(value)
        if made is None or made.kind != kind or (kind == "Clip" and number(made.attributes, "lower") != 0):
            return False
        value = made.inputs[0]
    return _is_zero(value, rewriter)


def _is_zero(value: int, rewriter: Rewriter) -> bool:
    array = rewriter.array(value)
    return array is not None and not array.any()
