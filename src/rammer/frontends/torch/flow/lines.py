"""Operators along lines of elements: others than the counted dimension, or that one, whose rest is made neutral."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rammer.frontends.counts.count import filled, neutral
from rammer.frontends.counts.lines import elements_counted, mean
from rammer.frontends.moves import converted
from rammer.frontends.torch.converters.reduction import correction_of
from rammer.frontends.torch.flow.elementwise import broadcast
from rammer.frontends.torch.flow.rule import Rule, counted_axis, only, ordinary
from rammer.frontends.torch.node import Converter, Node, Result

_NEUTRAL: Mapping[str, float] = {
    "all": 1,
    "amax": -math.inf,
    "amin": math.inf,
    "any": 0,
    "logsumexp": -math.inf,
    "max": -math.inf,
    "min": math.inf,
    "prod": 1,
    "sum": 0,
}
"""What changes no reduction; of integers infinity is the least, or the greatest."""


def _is_reduced(node: Node) -> bool:
    """Whether the counted dimension is one of those reduced."""
    x = node.operand("self")
    return x.count is not None and x.count.axis in node.dimensions("dim", x.rank)


def _reduce(node: Node, converter: Converter) -> Result:
    if node.has("other"):
        return broadcast(node, converter)
    if not _is_reduced(node):
        return ordinary(node, converter)
    return ordinary(node, converter, self=neutral(node, node.operand("self"), _NEUTRAL[node.operator]))


def _mean(node: Node, converter: Converter) -> Result:
    x = node.operand("self").like(node.typed("self"))
    if not _is_reduced(node):
        return ordinary(node, converter)
    return converted(node, mean(node, x, node.dimensions("dim", x.rank), keepdims=node.flag("keepdim")), node.dtype)


def _spread(node: Node, converter: Converter) -> Result:
    """Variances and standard deviations, by the distances of what counts from its mean."""
    if not _is_reduced(node):
        return ordinary(node, converter)
    x = node.operand("self").like(node.typed("self"))
    axes, keepdims = node.dimensions("dim", x.rank), node.flag("keepdim")
    apart = filled(node, x.like(node.add("Sub", x, mean(node, x, axes, keepdims=True))))
    total = node.add("ReduceSum", node.add("Mul", apart, apart), axes=axes, keepdims=keepdims)
    size = converted(node, elements_counted(node, x, axes), x.dtype)
    left = node.add("Max", node.add("Sub", size, node.scalar(correction_of(node), x.dtype)), node.scalar(0, x.dtype))
    found = node.add("Div", total, left)
    if node.operator.startswith("std"):
        found = node.add("Sqrt", found)
    return [found, mean(node, x, axes, keepdims=keepdims)] if node.operator.endswith("_mean") else found


def _norm(node: Node, converter: Converter) -> Result:
    if _is_reduced(node) and node.number("ord") < 0:
        raise node.refusal("a norm of a negative order")
    return ordinary(node, converter, self=filled(node, node.operand("self")))


def _arg_extreme(node: Node, converter: Converter) -> Result:
    """The first of equal elements; positions among all elements have to be those without what does not count."""
    x = node.operand("self")
    if not _is_reduced(node) or x.count is None:
        return ordinary(node, converter)
    if not node.has("dim") and x.count.axis:
        raise node.refusal("positions among all elements depend on it")
    worst = math.inf if node.operator == "argmin" else -math.inf
    return ordinary(node, converter, self=neutral(node, x, worst))


def _softmax(node: Node, converter: Converter) -> Result:
    x = node.operand("self")
    is_along = counted_axis(node, "self") == node.dimension("dim", x.rank)
    return ordinary(node, converter, self=neutral(node, x, -math.inf) if is_along else x)


def _ordered(node: Node, converter: Converter) -> Result:
    """What does not count comes last. A NaN is greater than any number."""
    x = node.operand("self")
    descending = node.flag("largest" if "largest" in node.arguments else "descending")
    last = -math.inf if descending else math.nan if x.dtype.is_float else math.inf
    if counted_axis(node, "self") == node.dimension("dim", x.rank):
        x = neutral(node, x, last)
    count = {"k": node.shape[node.dimension("dim", x.rank)]} if "k" in node.arguments else {}
    return ordinary(node, converter, self=x, **count)


def _each_line(node: Node, converter: Converter) -> Result:
    x = node.operand("self")
    if not node.has("dim") or counted_axis(node, "self") == node.dimension("dim", x.rank):
        raise node.refusal("lines along that dimension")
    return ordinary(node, converter)


def _normalized(node: Node, converter: Converter) -> Result:
    """By statistics of the last dimensions."""
    axis, x = counted_axis(node, "input"), node.operand("input")
    if axis is not None and axis >= x.rank - len(node.integers("normalized_shape")):
        raise node.refusal("it is normalised along that dimension")
    return ordinary(node, converter)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_NEUTRAL, _reduce),
    **dict.fromkeys(("_log_softmax", "_softmax", "log_softmax", "softmax"), _softmax),
    **dict.fromkeys(("argmax", "argmin"), _arg_extreme),
    **dict.fromkeys(("argsort", "sort", "topk"), _ordered),
    **dict.fromkeys(("cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"), ordinary),
    **dict.fromkeys(("kthvalue", "median", "mode", "nanmedian"), _each_line),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "rms_norm"), only("input")(_normalized)),
    **dict.fromkeys(("std", "std_mean", "var", "var_mean"), _spread),
    "linalg_vector_norm": _norm,
    "mean": _mean,
}
