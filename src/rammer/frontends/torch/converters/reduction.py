"""Reductions, positions of extremes, running sums and running extremes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, converted, part, reshaped
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_REDUCTIONS: Mapping[str, str] = {
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "logsumexp": "ReduceLogSumExp",
    "mean": "ReduceMean",
    "prod": "ReduceProd",
    "sum": "ReduceSum",
}
_TESTS: Mapping[str, str] = {"all": "ReduceMin", "any": "ReduceMax"}
_EXTREMES: Mapping[str, tuple[str, str, str]] = {
    "max": ("ReduceMax", "ArgMax", "Max"),
    "min": ("ReduceMin", "ArgMin", "Min"),
}
"""Kinds of the extreme, of its position, and of the greater or lesser of two operands."""

_RUNNING_EXTREMES: Mapping[str, str] = {"cummax": "CumMax", "cummin": "CumMin"}
_NORMS: Mapping[float, str] = {1: "ReduceL1", 2: "ReduceL2", math.inf: "ReduceMax", -math.inf: "ReduceMin"}


def _reduction(node: Node) -> Result:
    """In the result's element type."""
    return reduced(node, _REDUCTIONS[node.operator], node.typed("self"))


def _test(node: Node) -> Result:
    """The least or greatest of booleans; of bytes, PyTorch gives bytes that are 0 or 1."""
    found = reduced(node, _TESTS[node.operator], node.typed("self", DType.BOOL))
    return converted(node, found, node.dtype)


def reduced(node: Node, kind: str, x: Operand) -> Operand:
    """A reduction along the argument `dim`, all dimensions where it is left out."""
    if x.rank == 0:
        return node.add(kind, x, axes=(), keepdims=False)
    return node.add(kind, x, axes=node.dimensions("dim", x.rank), keepdims=node.flag("keepdim"))


def _extreme(node: Node) -> Result:
    """Of all elements; of each line, with its position; or of two operands."""
    value, position, of_two = _EXTREMES[node.operator]
    if node.has("other"):
        return node.add(of_two, node.typed("self"), node.typed("other"))
    x = node.typed("self")
    if not node.has("dim"):
        return reduced(node, value, x)
    return [reduced(node, value, x), _position(node, position, x) if node.used[1] else None]


def _extremes(node: Node) -> Result:
    x = node.typed("self")
    return [reduced(node, "ReduceMin", x), reduced(node, "ReduceMax", x)]


def _position(node: Node, kind: str, x: Operand) -> Operand:
    """The first position of the extreme of each line, of all elements in a row where no dimension is given."""
    if x.dtype is DType.BOOL:
        x = node.add("Cast", x, to=DType.UINT8)
    if x.rank == 0 or not node.has("dim"):
        flat = reshaped(node, x, (x.type.size,))
        first = node.add(kind, flat, axis=0, keepdims=False, select_last_index=False)
        return reshaped(node, first, (1,) * x.rank if node.flag("keepdim") else ())
    axis = node.dimension("dim", x.rank)
    return node.add(kind, x, axis=axis, keepdims=node.flag("keepdim"), select_last_index=False)


def _arg_extreme(node: Node) -> Result:
    return _position(node, "ArgMax" if node.operator == "argmax" else "ArgMin", node.operand("self"))


def _variance(node: Node) -> Result:
    """The mean square of the distances from the mean, divided by the count less a correction."""
    x = node.typed("self")
    return _variance_of(node, x)


def _variance_of(node: Node, x: Operand) -> Operand:
    axes = node.dimensions("dim", x.rank)
    count = math.prod(x.shape[axis] for axis in axes)
    correction = correction_of(node)
    center = node.add("ReduceMean", x, axes=axes, keepdims=True)
    apart = node.add("Sub", x, center)
    total = node.add("ReduceSum", node.add("Mul", apart, apart), axes=axes, keepdims=node.flag("keepdim"))
    return node.add("Div", total, node.scalar(max(count - correction, 0.0), x.dtype))


def correction_of(node: Node) -> float:
    """What a variance takes from the count that it divides by."""
    if node.has("correction"):
        return node.number("correction")
    return float(node.flag("unbiased") if "unbiased" in node.arguments else True)


def _deviation(node: Node) -> Result:
    return node.add("Sqrt", _variance_of(node, node.typed("self")))


def _variance_and_mean(node: Node) -> Result:
    x = node.typed("self")
    spread = _variance_of(node, x)
    if node.operator == "std_mean":
        spread = node.add("Sqrt", spread)
    return [spread, reduced(node, "ReduceMean", x)]


def _norm(node: Node) -> Result:
    x = node.typed("self")
    return norm(node, x, node.number("ord"), node.dimensions("dim", x.rank), keepdims=node.flag("keepdim"))


def norm(node: Node, x: Operand, order: float, axes: tuple[int, ...], *, keepdims: bool) -> Operand:
    """The norm of an order; 0 counts what is not 0."""
    if order in _NORMS:
        elements = node.add("Abs", x) if math.isinf(order) else x
        return node.add(_NORMS[order], elements, axes=axes, keepdims=keepdims)
    if order == 0:
        some = node.add("Not", node.add("Equal", x, node.scalar(0, x.dtype)))
        return node.add("ReduceSum", node.add("Cast", some, to=x.dtype), axes=axes, keepdims=keepdims)
    powers = node.add("Pow", node.add("Abs", x), node.scalar(order, x.dtype))
    total = node.add("ReduceSum", powers, axes=axes, keepdims=keepdims)
    return node.add("Pow", total, node.scalar(1 / order, x.dtype))


def _running(node: Node) -> Result:
    x = node.typed("self")
    if x.rank == 0:
        return x
    kind = "CumProd" if node.operator == "cumprod" else "CumSum"
    return node.add(kind, x, axis=node.dimension("dim", x.rank), exclusive=False, reverse=False)


def _running_log_sum(node: Node) -> Result:
    """The logarithm of the sum of the exponentials up to each element, by doubling.

    Each step adds the sum that ends where the own one begins. A line has no maximum that small elements vanish beside.
    """
    x = node.operand("self")
    if x.rank == 0:
        return x
    axis = node.dimension("dim", x.rank)
    count, reach = x.shape[axis], 1
    total = converted(node, x, x.dtype.compute)
    while reach < count:
        first = part(node, total, axis, 0, reach)
        before, others = (part(node, total, axis, start, count - reach) for start in (0, reach))
        total = concatenated(node, [first, _log_sum(node, before, others)], axis)
        reach *= 2
    return converted(node, total, x.dtype)


def _log_sum(node: Node, a: Operand, b: Operand) -> Operand:
    """`log(exp(a) + exp(b))`; two equal infinities are not apart."""
    apart = node.add("Abs", node.add("Sub", a, b))
    apart = node.add("Where", node.add("Equal", a, b), node.scalar(0, a.dtype), apart)
    return node.add("Add", node.add("Max", a, b), node.add("Softplus", node.add("Neg", apart)))


def _running_extreme(node: Node) -> Result:
    """The extreme of the elements up to each one, and the last place where it was found, or NaN."""
    x = node.operand("self")
    if x.rank == 0:
        return [x, node.scalar(0, DType.INT64)]
    axis = node.dimension("dim", x.rank)
    lines = converted(node, x, DType.UINT8) if x.dtype is DType.BOOL else x
    found = node.add(_RUNNING_EXTREMES[node.operator], lines, axis=axis, exclusive=False, reverse=False)
    values = converted(node, found, x.dtype)
    if not node.used[1]:
        return [values, None]
    is_new = node.add("Equal", lines, found)
    if x.dtype.is_float:
        is_new = node.add("Or", is_new, node.add("IsNaN", lines))
    shape = tuple(extent if dim == axis else 1 for dim, extent in enumerate(x.shape))
    places = node.constant(np.arange(x.shape[axis], dtype=np.int64).reshape(shape))
    seen = node.add("Where", is_new, places, node.scalar(0, DType.INT64))
    return [values, node.add("CumMax", seen, axis=axis, exclusive=False, reverse=False)]


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_EXTREMES, _extreme),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_TESTS, _test),
    "aminmax": _extremes,
    "argmax": _arg_extreme,
    "argmin": _arg_extreme,
    **dict.fromkeys(_RUNNING_EXTREMES, _running_extreme),
    "cumprod": _running,
    "cumsum": _running,
    "linalg_vector_norm": _norm,
    "logcumsumexp": _running_log_sum,
    "std": _deviation,
    "std_mean": _variance_and_mean,
    "var": _variance,
    "var_mean": _variance_and_mean,
}
