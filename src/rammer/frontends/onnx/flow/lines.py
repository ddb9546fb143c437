"""Operators along lines of elements: others than the counted dimension, or that one, whose rest is made neutral."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import bare, known, neutral, number, vector
from rammer.frontends.counts.lines import mean
from rammer.frontends.moves import converted
from rammer.frontends.onnx.converters.reduction import reduced_axes
from rammer.frontends.onnx.flow.rule import Rule, along, first_alone, ordinary, scalars, sized
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value
from rammer.ir.types import DType

_NEUTRAL: Mapping[str, float] = {
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSum", "ReduceSumSquare"), 0),
    **dict.fromkeys(("ReduceMax", "ReduceLogSumExp"), -math.inf),
    "ReduceMin": math.inf,
    "ReduceProd": 1,
}
"""What changes no reduction; of integers infinity is the least, or the greatest."""

_LAST: Mapping[str, float] = {
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax"), -math.inf),
    "LpNormalization": 0,
}
"""What changes no line that is normalised, behind its elements."""


def _reduce(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, count = first_alone(node)
    axes, keepdims = reduced_axes(node, x), node.flag("keepdims")
    if count.axis not in axes:
        return along(node, converter(node), _kept_axis(count.axis, () if keepdims else axes), count.value)
    if node.op_type != "ReduceMean":
        return ordinary(node, converter, neutral(node, x, _NEUTRAL[node.op_type]))
    return [mean(node, x, axes, keepdims=keepdims)]


def _kept_axis(axis: int, gone: Sequence[int]) -> int:
    """Where a dimension is once others are gone."""
    return axis - sum(other < axis for other in gone)


def _arg_extreme(node: Node, converter: Converter) -> Sequence[Value | None]:
    """The last of equal elements could lie behind what counts, all of which it is equal to then."""
    x, count = first_alone(node)
    axis = node.axis(node.integer("axis"), x.rank)
    if axis != count.axis:
        return along(
            node, converter(node), _kept_axis(count.axis, () if node.flag("keepdims") else (axis,)), count.value
        )
    found = ordinary(node, converter, neutral(node, x, math.inf if node.op_type == "ArgMin" else -math.inf))
    last = node.add("Sub", count.value, number(node, 1))
    return [node.add("Min", place, last) for place in found if isinstance(place, Operand)]


def _cumulative(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Forwards, what does not count comes behind what does."""
    x, count = first_alone(node)
    whole = neutral(node, x, 1 if node.op_type == "CumProd" else 0) if node.flag("reverse") else bare(x)
    return along(node, ordinary(node, converter, whole), count.axis, count.value)


def _line(node: Node, converter: Converter) -> Sequence[Value | None]:
    """By all elements along one dimension."""
    x, count = first_alone(node)
    is_along = node.axis(node.integer("axis"), x.rank) == count.axis
    whole = neutral(node, x, _LAST[node.op_type]) if is_along else bare(x)
    return along(node, ordinary(node, converter, whole), count.axis, count.value)


def _normalized(node: Node, converter: Converter) -> Sequence[Value | None]:
    """By statistics of the dimensions from an axis on."""
    x, count = first_alone(node)
    if count.axis >= node.axis(node.integer("axis"), x.rank):
        raise node.refusal("it is normalised along that dimension")
    return along(node, converter(node), count.axis, count.value)


def _top_k(node: Node, converter: Converter) -> Sequence[Value | None]:
    """There may be as many as what bounds a number that the model computes. A NaN is greater than any number."""
    x, k = node.operand(0), scalars(node, 1)
    axis, largest = node.axis(node.integer("axis"), x.rank), node.flag("largest")
    if k is None or len(k) != 1 or (x.count is not None and x.count.axis != axis and k[0].array is None):
        return converter(node)
    number_taken, extent = known(k[0]), x.shape[axis]
    if number_taken is None:
        most = node.builder.most(k[0])
        number_taken = extent if most is None else min(most, extent)
    taken = vector(node, [number_taken])
    if x.count is None:
        return sized(node, ordinary(node, converter, None, taken), axis, k[0])
    if x.count.axis != axis:
        return along(node, converter(node), x.count.axis, x.count.value)
    last = -math.inf if largest else math.nan if x.dtype.is_float else math.inf
    results = ordinary(node, converter, neutral(node, x, last), taken)
    return sized(node, results, axis, node.add("Min", converted(node, k[0], DType.INT64), x.count.value))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_LAST, _line),
    **dict.fromkeys((*_NEUTRAL, "ReduceMean"), _reduce),
    "ArgMax": _arg_extreme,
    "ArgMin": _arg_extreme,
    "CumProd": _cumulative,
    "CumSum": _cumulative,
    "LayerNormalization": _normalized,
    "RMSNormalization": _normalized,
    "TopK": _top_k,
}
