"""Canonical expressions: equal work on different tensors, slices or time steps becomes the same expression.

LSTM-TC has a thousand cells; they must share one rKernel, so nothing that differs between them may stay in the
expression. Slots become formal (only the extents the expression sees), positions inside a tensor move to the
`Binding`'s origin, axes and slots are renamed in order of first appearance, and axes of extent 1 vanish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import add, sub

from rammer.ir.expr import (
    Axis,
    Const,
    Expr,
    Load,
    Output,
    Reduce,
    ScalarFn,
    TensorExpr,
    all_nodes,
    call,
    cast,
    const,
    rebuild,
    select,
)
from rammer.ir.region import Interval, depends_on_data, interval_of
from rammer.ir.task import Binding
from rammer.ir.types import DType, TensorType

_ZERO = const(0, DType.INT64)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A value's place in a tensor.

    Dimension d of the value is dimension `dims[d]` of the tensor (None: a dimension of extent 1 that the tensor does
    not have), shifted by that dimension's `origin`; the tensor's other dimensions stay at their origin.
    """

    tensor: int
    origin: tuple[int, ...]
    dims: tuple[int | None, ...]

    @classmethod
    def whole(cls, tensor: int, rank: int) -> View:
        """The view of a whole tensor of `rank` dimensions."""
        return cls(tensor=tensor, origin=(0,) * rank, dims=tuple(range(rank)))

    def shifted(self, offsets: Sequence[int]) -> View:
        """The part that starts at `offsets` of this one."""
        origin = list(self.origin)
        for dim, offset in zip(self.dims, offsets, strict=True):
            if dim is not None:
                origin[dim] += offset
        return View(tensor=self.tensor, origin=tuple(origin), dims=self.dims)


def canonical(
    expr: TensorExpr, reads: Sequence[View], writes: Sequence[View]
) -> tuple[TensorExpr, tuple[Binding, ...], tuple[Binding, ...]]:
    """The canonical form of `expr` with what its slots and outputs are bound to.

    Args:
        expr: an operator's expression.
        reads: where each slot's value lies.
        writes: where each output's value lies.

    Returns:
        The expression, the binding of each of its slots, and the binding of each output.
    """
    views = (*reads, *writes)
    bases: dict[int, tuple[int, ...]] = {}
    for view in views:
        bases.setdefault(view.tensor, view.origin)
    # The form depends on places only by how they lie to each other: branches and steps of a layer have it in common.
    tensors = list(bases)
    near = [
        View(
            tensor=tensors.index(view.tensor),
            origin=tuple(map(sub, view.origin, bases[view.tensor])),
            dims=view.dims,
        )
        for view in views
    ]
    form, *bindings = _canonical(expr, tuple(near[: len(reads)]), tuple(near[len(reads) :]))

    def back(binding: Binding) -> Binding:
        tensor = tensors[binding.tensor]
        return Binding(tensor=tensor, origin=tuple(map(add, bases[tensor], binding.origin)))

    slots, outputs = (tuple(map(back, group)) for group in bindings)
    return form, slots, outputs


@lru_cache(maxsize=1024)
def _canonical(
    expr: TensorExpr, reads: tuple[View, ...], writes: tuple[View, ...]
) -> tuple[TensorExpr, tuple[Binding, ...], tuple[Binding, ...]]:
    """As `canonical`, computed."""
    expr = _drop_unit_axes(expr)
    slots = _Slots(expr, reads)
    flat = [root for output in expr.outputs for root in (output.body, *output.indices)]
    rewritten = iter(rebuild(flat, slots.visit))
    outputs, bindings = [], []
    for output, view in zip(expr.outputs, writes, strict=True):
        body, *places = (next(rewritten) for _ in range(1 + output.type.rank))
        indices, origin, shape = _settle(places, output.type.shape, view)
        outputs.append(Output(type=TensorType(output.type.dtype, shape), indices=indices, body=body))
        bindings.append(Binding(tensor=view.tensor, origin=origin))
    settled = TensorExpr(axes=expr.axes, inputs=slots.types(), outputs=tuple(outputs))
    return _rename(settled), slots.bindings(), tuple(bindings)


def _drop_unit_axes(expr: TensorExpr) -> TensorExpr:
    """Axes of extent 1 become 0, and padded loads plain ones or constants where that is what they always are.

    So a 1x1 convolution is a plain product.
    """

    def visit(node: Expr) -> Expr | None:
        match node:
            case Axis(_, 1):
                return _ZERO
            case Reduce(fn, axes, body) if any(axis.extent == 1 for axis in axes):
                kept = tuple(axis for axis in axes if axis.extent != 1)
                return Reduce(fn, kept, body) if kept else body
            case Load(slot, indices, _, Const() as fill, _):
                spans = [interval_of(index, {}) for index in indices]
                bounds = [Interval(0, extent) for extent in expr.inputs[slot].shape]
                pairs = list(zip(spans, bounds, strict=True))
                if any(span is not None and not bound.overlaps(span) for span, bound in pairs):
                    return fill
                inside = all(span is not None and bound.contains(span) for span, bound in pairs)
                return replace(node, fill=None) if inside else None
        return None

    flat = [root for output in expr.outputs for root in (output.body, *output.indices)]
    rewritten = iter(rebuild(flat, visit))
    outputs = tuple(
        Output(type=output.type, body=next(rewritten), indices=tuple(next(rewritten) for _ in output.indices))
        for output in expr.outputs
    )
    axes = tuple(axis for axis in expr.axes if axis.extent != 1)
    return TensorExpr(axes=axes, inputs=expr.inputs, outputs=outputs)


class _Slots:
    """Formal slots, numbered as their loads are met.

    A padded load is defined by its own bounds, so it shares a slot only with padded loads of the same shape.
    """

    def __init__(self, expr: TensorExpr, views: Sequence[View]) -> None:
        self._expr = expr
        self._views = views
        self._slots: dict[tuple[Binding, tuple[int, ...] | None], TensorType] = {}

    def visit(self, node: Expr) -> Expr | None:
        """Rewrite a load to its formal slot."""
        if not isinstance(node, Load):
            return None
        shape = self._expr.inputs[node.slot].shape
        view = self._views[node.slot]
        settle = _settle if node.fill is None else _spread
        indices, origin, extents = settle(node.indices, shape, view)
        key = (Binding(tensor=view.tensor, origin=origin), None if node.fill is None else extents)
        known = self._slots.get(key)
        reach = extents if known is None else tuple(map(max, known.shape, extents))
        self._slots[key] = TensorType(node.type, reach)
        element = node.at(list(self._slots).index(key), indices)
        return element if node.fill is None else _guarded(element, node.fill, node.indices, view)

    def types(self) -> tuple[TensorType, ...]:
        """The formal type of each slot."""
        return tuple(self._slots.values())

    def bindings(self) -> tuple[Binding, ...]:
        """What each slot is bound to."""
        return tuple(binding for binding, _ in self._slots)


def _guarded(element: Load, fill: Const, indices: Sequence[Expr], view: View) -> Expr:
    """A padded load that minds the bounds of dimensions of extent 1 that the tensor does not have."""
    compute = element.type.compute
    guarded = cast(compute, element)
    for dim, index in zip(view.dims, indices, strict=True):
        if dim is None and interval_of(index, {}) != Interval(0, 1):
            guarded = select(call(ScalarFn.EQ, index, 0), guarded, const(fill.value, compute))
    return cast(element.type, guarded)


def _spread(
    indices: Sequence[Expr], shape: Sequence[int], view: View
) -> tuple[tuple[Expr, ...], tuple[int, ...], tuple[int, ...]]:
    """Indices and extents over the tensor's dimensions; dimensions the value does not have get index 0, extent 1."""
    spread: list[Expr] = [_ZERO] * len(view.origin)
    extents = [1] * len(view.origin)
    for dim, index, extent in zip(view.dims, indices, shape, strict=True):
        if dim is not None:
            spread[dim], extents[dim] = index, extent
    return tuple(spread), view.origin, tuple(extents)


def _settle(
    indices: Sequence[Expr], shape: Sequence[int], view: View
) -> tuple[tuple[Expr, ...], tuple[int, ...], tuple[int, ...]]:
    """Like `_spread`, with each index shifted so that its least value is 0 and its extent just what it reaches."""
    spread, start, extents = _spread(indices, shape, view)
    settled, origin, reach = [], [], []
    for index, base, extent in zip(spread, start, extents, strict=True):
        span = interval_of(index, {})
        if span is None or span.extent == 0 or depends_on_data(index):
            settled.append(index)
            origin.append(base)
            reach.append(extent)
        else:
            # The interval may be wider than what the index takes on, but the index stays inside the value.
            inside = Interval(max(span.lo, 0), min(span.hi, extent))
            settled.append(index - inside.lo)
            origin.append(base + inside.lo)
            reach.append(inside.extent)
    return tuple(settled), tuple(origin), tuple(reach)


def _rename(expr: TensorExpr) -> TensorExpr:
    """Axes s0.. in domain order, r0.. in order of first appearance."""
    names: dict[Axis, Axis] = {axis: Axis(f"s{i}", axis.extent) for i, axis in enumerate(expr.axes)}
    reductions = (node for node in all_nodes(*expr.roots) if isinstance(node, Reduce))
    for i, axis in enumerate(dict.fromkeys(axis for reduction in reductions for axis in reduction.axes)):
        names[axis] = Axis(f"r{i}", axis.extent)

    def visit(node: Expr) -> Expr | None:
        match node:
            case Axis():
                return names[node]
            case Reduce(fn, axes, body):
                return Reduce(fn, tuple(names[axis] for axis in axes), body)
        return None

    flat = [root for output in expr.outputs for root in (output.body, *output.indices)]
    rewritten = iter(rebuild(flat, visit))
    outputs = tuple(
        Output(type=output.type, body=next(rewritten), indices=tuple(next(rewritten) for _ in output.indices))
        for output in expr.outputs
    )
    return TensorExpr(axes=tuple(names[axis] for axis in expr.axes), inputs=expr.inputs, outputs=outputs)


def copy_expr(type_: TensorType) -> TensorExpr:
    """`out[i] = in[i]` over a whole tensor."""
    axes = tuple(Axis(f"i{d}", extent) for d, extent in enumerate(type_.shape))
    output = Output(type=type_, indices=axes, body=Load(0, axes, type_.dtype))
    return TensorExpr(axes=axes, inputs=(type_,), outputs=(output,))
