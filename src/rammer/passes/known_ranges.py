"""known_ranges: of a range of floats that are never negative, the beginning needs not be found.

    Min(ReduceMin(x), 0), x >= 0                     ->  0      beside Max(ReduceMax(x), 0)
    Cast(Round(Clip(Div(Neg(0), scale), 0, 255)))    ->  0

A range that is found as the model runs has 0 in it (`DynamicQuantizeLinear`), so that behind activations that give
nothing negative only its end is left to find. The zero point is 0 then, which bytes need not be centred by. A NaN is
in the end of the range, as before, and so in the scale; what integer a NaN would become is not defined. A least that
anything else reads has to be NaN itself, and stays.

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
    ranges = _Ranges(graph)
    for operator in graph.operators:
        rewriter.insert(operator)
        if len(operator.outputs) != 1:
            continue
        (result,) = operator.outputs
        is_float = rewriter.type(result).dtype.is_float  # integers wrap around: sums, products, the least one's `Abs`
        signs[result] = is_float and _is_never_negative(operator, signs)
        if (ranges.begins(operator) and _is_least(operator, rewriter, signs)) or _is_zero_point(operator, rewriter):
            type_ = rewriter.type(result)
            rewriter.replace(result, rewriter.constant(np.zeros(type_.shape, type_.dtype.numpy), operator.name))
    return rewriter.finish()


class _Ranges:
    """Where the least of values is one end of a range, of which the other has a NaN as well."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._makers, self._readers = graph, graph.producers(), graph.consumers()

    def begins(self, operator: Operator) -> bool:
        """Whether an operator gives the beginning of a range, which is read as that alone."""
        if operator.kind != "Min" or operator.outputs[0] in self._graph.outputs:
            return False
        readers = self._readers.get(operator.outputs[0], [])
        spreads = [reader for reader in readers if reader.kind == "Sub"]
        return (
            bool(spreads)
            and all(self._ends_alike(spread.inputs[0], operator) for spread in spreads)
            and all(reader in spreads or self._is_divided(reader) for reader in readers)
        )

    def _ends_alike(self, end: int, least: Operator) -> bool:
        """Whether a value is the greatest of what another operator is the least of."""
        greatest = self._makers.get(end)
        if greatest is None or greatest.kind != "Max":
            return False
        found = [self._makers.get(one.inputs[0]) for one in (greatest, least)]
        kinds = [None if one is None else one.kind for one in found]
        return kinds == ["ReduceMax", "ReduceMin"] and len({one.inputs[0] for one in found if one is not None}) == 1

    def _is_divided(self, reader: Operator) -> bool:
        """Whether a zero point is made by it: by the scale, which has the NaN."""
        users = self._readers.get(reader.outputs[0], [])
        return (
            reader.kind == "Neg"
            and reader.outputs[0] not in self._graph.outputs
            and all(user.kind == "Div" for user in users)
        )


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
