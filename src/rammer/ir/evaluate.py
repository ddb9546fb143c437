"""What a tensor expression means, in NumPy: used by constant folding, the reference device and the tests.

Every axis gets an array dimension of its own; a node's array has extent 1 along each axis it does not depend on, so
nothing is larger than the axes it really uses. Sums of products go through `einsum`, other large reductions are cut
along their first axis, so that a convolution or a matrix product fits in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from rammer.ir.expr import Axis, Call, Cast, Const, Expr, Guarded, Load, Reduce, ReduceFn, ScalarFn, TensorExpr, nodes
from rammer.ir.graph import Array, Graph
from rammer.ir.region import Interval
from rammer.ir.types import DType

_CHUNK_ELEMENTS = 1 << 24
_erf = np.vectorize(math.erf, otypes=[np.float64])


# NumPy's stubs give `generic` no arithmetic; the element types are checked by the expressions themselves.
_Numbers = npt.NDArray[Any]


def _truncated_div(a: _Numbers, b: _Numbers) -> Array:
    if np.issubdtype(a.dtype, np.floating):
        return np.true_divide(a, b, dtype=a.dtype)
    quotient = np.floor_divide(a, b)
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    result: Array = (quotient + inexact).astype(a.dtype)
    return result


def _power(a: _Numbers, b: _Numbers) -> Array:
    if np.issubdtype(a.dtype, np.floating):
        return np.power(a, b)
    inverse = np.where(a == -1, np.where(b % 2 == 0, 1, a), a == 1)
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0))).astype(a.dtype)


def _sigmoid(a: _Numbers) -> Array:
    positive = np.exp(-np.abs(a))
    result: Array = np.where(a >= 0, 1 / (1 + positive), positive / (1 + positive)).astype(a.dtype)
    return result


def converted(array: Array, dtype: DType) -> Array:
    """The array's elements as `dtype`, float32's being rounded for TF32. Codes are their bits."""
    if dtype.is_code:
        return array.astype(np.uint8).view(dtype.numpy)
    if array.dtype.type.__module__ == ml_dtypes.__name__ and DType.of(array).is_code:
        array = array.view(np.uint8)
    found = array.astype(dtype.numpy)
    if dtype is not DType.TF32:
        return found
    rounded = ((found.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isnan(found), found, rounded)


FUNCTIONS: Mapping[ScalarFn, Callable[..., Array]] = {
    ScalarFn.ADD: np.add,
    ScalarFn.SUB: np.subtract,
    ScalarFn.MUL: np.multiply,
    ScalarFn.DIV: _truncated_div,
    ScalarFn.FLOORDIV: np.floor_divide,
    ScalarFn.MOD: np.mod,
    ScalarFn.FMOD: np.fmod,
    ScalarFn.POW: _power,
    ScalarFn.MIN: np.minimum,
    ScalarFn.MAX: np.maximum,
    ScalarFn.AND: np.logical_and,
    ScalarFn.OR: np.logical_or,
    ScalarFn.XOR: np.logical_xor,
    ScalarFn.BIT_AND: np.bitwise_and,
    ScalarFn.BIT_OR: np.bitwise_or,
    ScalarFn.BIT_XOR: np.bitwise_xor,
    ScalarFn.SHIFT_LEFT: np.left_shift,
    ScalarFn.SHIFT_RIGHT: np.right_shift,
    ScalarFn.EQ: np.equal,
    ScalarFn.NE: np.not_equal,
    ScalarFn.LT: np.less,
    ScalarFn.LE: np.less_equal,
    ScalarFn.NEG: np.negative,
    ScalarFn.NOT: np.logical_not,
    ScalarFn.BIT_NOT: np.invert,
    ScalarFn.ABS: np.abs,
    ScalarFn.SIGN: np.sign,
    ScalarFn.FLOOR: np.floor,
    ScalarFn.CEIL: np.ceil,
    ScalarFn.ROUND: np.rint,
    ScalarFn.SQRT: np.sqrt,
    ScalarFn.EXP: np.exp,
    ScalarFn.LOG: np.log,
    ScalarFn.SIN: np.sin,
    ScalarFn.COS: np.cos,
    ScalarFn.TAN: np.tan,
    ScalarFn.ASIN: np.arcsin,
    ScalarFn.ACOS: np.arccos,
    ScalarFn.ATAN: np.arctan,
    ScalarFn.SINH: np.sinh,
    ScalarFn.COSH: np.cosh,
    ScalarFn.TANH: np.tanh,
    ScalarFn.ASINH: np.arcsinh,
    ScalarFn.ACOSH: np.arccosh,
    ScalarFn.ATANH: np.arctanh,
    ScalarFn.ERF: lambda a: _erf(a).astype(a.dtype),
    ScalarFn.SIGMOID: _sigmoid,
    ScalarFn.ISNAN: np.isnan,
    ScalarFn.ISINF: np.isinf,
    ScalarFn.SELECT: np.where,
    ScalarFn.BRANCH: np.where,
}
_REDUCTIONS: Mapping[ReduceFn, Callable[..., Array]] = {
    ReduceFn.SUM: np.sum,
    ReduceFn.PROD: np.prod,
    ReduceFn.MAX: np.max,
    ReduceFn.MIN: np.min,
}
_COMBINE: Mapping[ReduceFn, Callable[[Array, Array], Array]] = {
    ReduceFn.SUM: np.add,
    ReduceFn.PROD: np.multiply,
    ReduceFn.MAX: np.maximum,
    ReduceFn.MIN: np.minimum,
}


def identity(fn: ReduceFn, dtype: DType) -> bool | int | float:
    """The value of a reduction over no elements."""
    if fn is ReduceFn.SUM or fn is ReduceFn.PROD:
        return int(fn is ReduceFn.PROD)
    lowest = fn is ReduceFn.MAX
    if dtype is DType.BOOL:
        return not lowest
    if dtype.is_float:
        return -math.inf if lowest else math.inf
    limits = np.iinfo(dtype.value)
    return int(limits.min) if lowest else int(limits.max)


def evaluate(expr: TensorExpr, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """All outputs of an expression over its whole domain.

    Args:
        expr: the expression; its outputs must each cover their tensor.
        inputs: one array per slot, of the slot's dtype and shape.

    Raises:
        IndexError: a load without fill leaves its slot.
    """
    results = tuple(np.zeros(output.type.shape, output.type.dtype.numpy) for output in expr.outputs)
    for result, (index, values) in zip(results, evaluate_tile(expr, inputs, {}), strict=True):
        result[index] = values
    return results


def evaluate_tile(
    expr: TensorExpr, inputs: Sequence[Array], ranges: Mapping[Axis, Interval]
) -> list[tuple[tuple[Array, ...], Array]]:
    """Per output, the (index arrays, values) that the tile `ranges` stores; axes not named run whole."""
    spans = {axis: ranges.get(axis, Interval(0, axis.extent)) for axis in expr.axes}
    shape = tuple(span.extent for span in spans.values())
    if 0 in shape:  # Nothing is stored, so nothing is loaded: constant indices into empty operands do not matter.
        nowhere = np.zeros(shape, np.int64)
        return [((nowhere,) * o.type.rank, np.zeros(shape, o.type.dtype.numpy)) for o in expr.outputs]
    scope = _Scope(inputs, expr.axes, spans)
    stores = []
    with np.errstate(all="ignore"):
        for output in expr.outputs:
            body = scope.value(output.body)
            index = tuple(_spread(scope.value(i), shape) for i in output.indices)
            values = _spread(body, shape).astype(output.type.dtype.numpy)
            stores.append((index, values))
    return stores


def _spread(array: Array, shape: tuple[int, ...]) -> Array:
    """The array, broadcast to a shape that most have."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


def evaluate_graph(graph: Graph, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The graph's outputs, operator by operator.

    Args:
        graph: without composite operators (every operator has an expression).
        inputs: one array per graph input, in order.

    Raises:
        ValueError: an operator has no expression.
    """
    arrays: dict[int, Array] = dict(graph.constants)
    arrays.update(zip(graph.inputs, inputs, strict=True))
    for operator in graph.operators:
        if operator.expr is None:
            raise ValueError(f"{operator.kind} '{operator.name}' is composite")
        results = evaluate(operator.expr, [arrays[i] for i in operator.inputs])
        arrays.update(zip(operator.outputs, results, strict=True))
    return tuple(arrays[output] for output in graph.outputs)


def index_values(indices: Sequence[Expr], axes: Sequence[Axis]) -> tuple[Array, ...]:
    """The values of indices, which load nothing, at all points of axes: an array with a dimension for each axis.

    An array has extent 1 along each axis that its index does not depend on.
    """
    scope = _Scope((), axes, {axis: Interval(0, axis.extent) for axis in axes})
    return tuple(scope.value(index) for index in indices)


class _Scope:
    """Node values over a list of dimensions: the axes in sight, spatial first, then the enclosing reductions'."""

    def __init__(
        self,
        inputs: Sequence[Array],
        axes: Sequence[Axis],
        spans: Mapping[Axis, Interval],
        around: _Scope | None = None,
    ) -> None:
        self._inputs = inputs
        self._axes = tuple(axes)
        self._spans = dict(spans)
        self._around = around
        self._values: dict[Expr, Array] = {}

    def value(self, root: Expr) -> Array:
        """The array of `root`, with one dimension per axis in sight."""
        values = self._values
        if root not in values:
            for node in _outside_reductions(root):
                if node not in values:
                    values[node] = self._compute(node)
        return values[root]

    def _compute(self, node: Expr) -> Array:
        match node:
            case Const(value, type_):
                return np.full((1,) * len(self._axes), value, dtype=type_.numpy)
            case Axis():
                span = self._spans[node]
                shape = [span.extent if axis is node else 1 for axis in self._axes]
                return np.arange(span.lo, span.hi, dtype=np.int64).reshape(shape)
            case Load():
                return self._load(node)
            case Call(fn, args):
                return FUNCTIONS[fn](*(self._values[arg] for arg in args))
            case Cast(type_, arg):
                return converted(self._values[arg], type_)
            case Reduce():
                return self._reduce(node)
            case Guarded(condition, value, fallback):
                holds, usual = self.value(condition), self._values[value]
                return usual if holds.all() else np.where(holds, usual, self.value(fallback))
        raise TypeError(f"unknown node {type(node).__name__}")

    def _load(self, node: Load) -> Array:
        array = self._inputs[node.slot]
        indices: list[_Numbers] = [self._values[i] for i in node.indices]
        if node.fill is None:
            if any((index < 0).any() for index in indices):  # NumPy would count from the end.
                raise IndexError(f"a load of slot {node.slot} at a negative index")
            return array[tuple(indices)] if indices else array.reshape((1,) * len(self._axes))
        inside = np.ones((1,) * len(self._axes), dtype=bool)
        clipped = []
        for index, extent in zip(indices, array.shape, strict=True):
            inside = inside & (index >= 0) & (index < extent)
            clipped.append(np.clip(index, 0, max(extent - 1, 0)))
        fill = np.asarray(node.fill.value, dtype=array.dtype)
        if array.size == 0:
            return np.broadcast_to(fill, np.broadcast_shapes(*(i.shape for i in indices)))
        return np.where(inside, array[tuple(clipped)], fill)

    def _reduce(self, node: Reduce) -> Array:
        if any(axis.extent == 0 for axis in node.axes):
            start = np.asarray(identity(node.fn, node.dtype), dtype=node.dtype.numpy)
            return np.broadcast_to(start, (1,) * len(self._axes))
        used = _axes_below(node)
        if self._around is not None and used.isdisjoint(self._axes[len(self._around._axes) :]):
            outside = self._around.value(node)  # once, not for every part of what is reduced here
            return outside.reshape(*outside.shape, *(1,) * (len(self._axes) - outside.ndim))
        first, *rest = node.axes
        span = math.prod(axis.extent for axis in rest)
        span *= math.prod(one.extent for axis, one in self._spans.items() if axis in used)
        product = _factors(node)
        step = first.extent if product else max(1, _CHUNK_ELEMENTS // max(1, span))
        total: Array | None = None
        for lo in range(0, first.extent, step):
            spans = {first: Interval(lo, min(lo + step, first.extent)), **{a: Interval(0, a.extent) for a in rest}}
            inner = _Scope(self._inputs, (*self._axes, *node.axes), {**self._spans, **spans}, self)
            part = inner.product_sum(*product, node) if product else inner.reduce(node)
            total = part if total is None else _COMBINE[node.fn](total, part)
        if total is None:
            raise ValueError("a reduction without axes")
        return total

    def reduce(self, node: Reduce) -> Array:
        """The reduction over the trailing dimensions of this scope."""
        body = self.value(node.body)
        extents = [self._spans[axis].extent for axis in node.axes]
        body = np.broadcast_to(body, (*body.shape[: -len(extents)], *extents))
        axes = tuple(range(body.ndim - len(extents), body.ndim))
        if node.fn in (ReduceFn.SUM, ReduceFn.PROD):
            return _REDUCTIONS[node.fn](body, axis=axes, dtype=body.dtype)
        return _REDUCTIONS[node.fn](body, axis=axes)

    def product_sum(self, left: Expr, right: Expr, node: Reduce) -> Array:
        """`sum(left * right)` over the trailing dimensions, by einsum over the dimensions each really has."""
        kept = len(self._axes) - len(node.axes)
        operands: list[Any] = []
        present: set[int] = set()
        scale = 1
        for array in (self.value(left), self.value(right)):
            dims = [d for d, extent in enumerate(array.shape) if extent != 1]
            present.update(dims)
            operands += [array.reshape([array.shape[d] for d in dims]), dims]
        for dim in range(kept, len(self._axes)):
            if dim not in present:
                scale *= self._spans[self._axes[dim]].extent
        out = sorted(d for d in present if d < kept)
        total: Array = np.einsum(*operands, out, optimize=True)
        shape = [1] * kept
        for dim, extent in zip(out, total.shape, strict=True):
            shape[dim] = extent
        return (total * np.asarray(scale, dtype=total.dtype)).reshape(shape)


@lru_cache(maxsize=4096)
def _axes_below(node: Expr) -> frozenset[Axis]:
    return frozenset(below for below in nodes(node) if isinstance(below, Axis))


@lru_cache(maxsize=4096)
def _outside_reductions(root: Expr) -> Sequence[Expr]:
    """Nodes below `root` in order, reductions being opaque: their bodies belong to an inner scope."""
    seen: dict[Expr, None] = {}
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if node in seen:
            continue
        if expanded:
            seen[node] = None
            continue
        stack.append((node, True))
        if not isinstance(node, Reduce):
            stack.extend((child, False) for child in reversed(node.children))
    return tuple(seen)


def _factors(node: Reduce) -> tuple[Expr, Expr] | None:
    """The operands of a float sum of products."""
    if node.fn is ReduceFn.SUM and node.dtype in (DType.FLOAT32, DType.FLOAT64):
        match node.body:
            case Call(ScalarFn.MUL, (left, right)):
                return left, right
    return None
