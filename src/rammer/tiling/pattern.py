"""What an expression looks like: the analysis that Roller, the layout pass and every device share.

A *contraction* is an expression whose every reduction is a float sum of products over arbitrary elementwise work:
a matrix product or a convolution with its bias, activation and residual, all gates of a recurrent cell, a batched
attention product. Vector lanes run along a spatial axis that one operand of each product has (the lane operand); the
other is a scalar there, or in a depthwise convolution a vector too. Axes that the lane operand lacks are rows: a block
of rows and lanes is kept in registers while the reduction runs. An operand may be a short sum itself, a *window* (the
depthwise half of a separable convolution).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import (
    Axis,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    all_nodes,
    nodes,
)
from rammer.ir.kernel_form import Skeleton
from rammer.ir.region import Affine, Interval, affine, interval_of
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import ByteProducts

MAX_UNROLLED_POINTS = 16
MAX_CHOSEN_POINTS = 65
MAX_WINDOW_POINTS = 64  # of each element of an operand
QUAD = 4
"""So many products of bytes are summed by one instruction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One sum of products: `reduce` sums `operands[0] * operands[1]`, which contain no reductions but windows.

    Along `quad` lie four bytes of each operand, of which an instruction adds the products to an int32; the operands are
    loads of uint8 and of int8 then. Operands of sums of bytes that are not cut into quads are bytes, too.
    """

    reduce: Reduce
    operands: tuple[Expr, Expr]
    quad: Axis | None = None

    @property
    def multiplied(self) -> DType:
        """What arithmetic a vDevice has a peak for."""
        return DType.INT8 if self.reduce.dtype is DType.INT32 else self.reduce.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Sums over the same axes: one pass over them serves all (the gates of a cell)."""

    axes: tuple[Axis, ...]
    terms: tuple[Term, ...]

    @property
    def quad(self) -> Axis | None:
        """The axis along which four products of bytes are one step; all terms have the same."""
        return self.terms[0].quad


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """An expression seen as sums of products.

    Of the spatial `axes`, `lanes` are those that exactly one operand of every product depends on, `shared` those that
    in some products both depend on (the channels of a depthwise convolution), each by decreasing extent; `free` maps
    each node to the axes its value depends on.
    """

    groups: tuple[Group, ...]
    axes: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    shared: tuple[Axis, ...]
    free: Mapping[Expr, frozenset[Axis]]

    @property
    def terms(self) -> tuple[Term, ...]:
        """All sums."""
        return tuple(term for group in self.groups for term in group.terms)

    def split(self, term: Term, lane: Axis) -> tuple[Expr, Expr]:
        """The lane operand and the other. If both have `lane`, it is the one that depends on fewer axes."""
        left, right = term.operands
        if lane not in self.free[left] or lane not in self.free[right]:
            return (left, right) if lane in self.free[left] else (right, left)
        return (left, right) if len(self.free[left]) < len(self.free[right]) else (right, left)

    def rows(self, axes: Iterable[Axis], lane: Axis) -> tuple[Axis, ...]:
        """Those of `axes` that in every product the other operand depends on, and the lane operand does not."""
        pairs = [self.split(term, lane) for term in self.terms]
        return tuple(
            axis
            for axis in axes
            if all(axis in self.free[other] and axis not in self.free[operand] for operand, other in pairs)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A selection by the position of an axis: `if_true` where it is `value`, else `if_false`."""

    axis: Axis
    value: int
    if_true: Expr
    if_false: Expr


@lru_cache(maxsize=1024)
def contraction(expr: TensorExpr, bytes_: ByteProducts | None = None) -> Contraction | None:
    """The expression as a contraction; None where it is none, or no axis could run along lanes.

    Args:
        expr: what is computed.
        bytes_: which sums of products of bytes count, too: who asks knows how to multiply them.
    """
    if not expr.reductions:
        return None
    inner = {node for reduction in expr.reductions for node in nodes(reduction.body) if isinstance(node, Reduce)}
    outer = [reduction for reduction in expr.reductions if reduction not in inner]
    terms = [_term(one, bytes_) for one in outer]
    grouped: dict[tuple[Axis, ...], list[Term]] = {}
    for term in terms:
        if term is None:
            return None
        grouped.setdefault(term.reduce.axes, []).append(term)
    free = free_axes(*expr.roots)
    members = [term for group in grouped.values() for term in group]
    owners = {axis: [sum(axis in free[operand] for operand in term.operands) for term in members] for axis in expr.axes}
    widest = sorted(
        (axis for axis in expr.axes if members and min(owners[axis]) > 0 and _may_be_lanes(axis, members, free)),
        key=lambda axis: -axis.extent,
    )
    lanes = tuple(axis for axis in widest if max(owners[axis]) == 1)
    mixed = any(len({term.quad for term in group}) > 1 for group in grouped.values())
    if not lanes or mixed:
        return None
    return Contraction(
        groups=tuple(Group(axes=axes, terms=tuple(group)) for axes, group in grouped.items()),
        axes=expr.axes,
        lanes=lanes,
        shared=tuple(axis for axis in widest if axis not in lanes),
        free=free,
    )


def _may_be_lanes(axis: Axis, terms: Sequence[Term], free: Mapping[Expr, frozenset[Axis]]) -> bool:
    """Whether lanes may run along an axis: of products of bytes, the operand of lanes is that of int8, and it alone."""
    quads = [term.operands for term in terms if term.quad is not None]
    return all(axis in free[weight] and axis not in free[other] for other, weight in quads)


def product_skeleton(found: Contraction, lane: Axis) -> Skeleton:
    """What libraries call a contraction that is tiled along a lane.

    Without rows it is a matrix-vector product. A matrix that is not in memory as such (its elements are windows that
    overlap, padding, or sums themselves) makes a GEMM an implicit one.
    """
    if lane in found.shared:
        return Skeleton.DEPTHWISE
    if not any(axis.extent > 1 for axis in found.rows(found.axes, lane)):
        return Skeleton.GEMV
    are_plain = all(_is_matrix(operand) for term in found.terms for operand in term.operands)
    return Skeleton.GEMM if are_plain else Skeleton.IMPLICIT_GEMM


def _is_matrix(operand: Expr) -> bool:
    """Whether an operand is elementwise work on loads that read each element for one point, and no padding."""
    found = nodes(operand)
    loads = [node for node in found if isinstance(node, Load)]
    return not any(isinstance(node, Reduce) for node in found) and all(
        load.fill is None and _is_one_to_one([affine(index) for index in load.indices]) for load in loads
    )


def _is_one_to_one(forms: Sequence[Affine | None]) -> bool:
    """Whether indices are affine, no axis is in two of them, and each steps over all that the finer ones reach."""
    seen: set[Axis] = set()
    for form in forms:
        reach = 0
        for axis, coefficient in sorted(() if form is None else form.terms, key=lambda term: abs(term[1])):
            if axis in seen or abs(coefficient) <= reach:
                return False
            reach += abs(coefficient) * (axis.extent - 1)
            seen.add(axis)
    return None not in forms


def _term(reduction: Reduce, bytes_: ByteProducts | None) -> Term | None:
    """A reduction as a sum of products of single precision or more, or of bytes, over at least one point."""
    if reduction.fn is not ReduceFn.SUM or any(axis.extent == 0 for axis in reduction.axes):
        return None
    if reduction.dtype is DType.INT32:
        return None if bytes_ is None else _TERMS_OF_BYTES[bytes_](reduction)
    if reduction.dtype not in (DType.FLOAT32, DType.FLOAT64):
        return None
    match reduction.body:
        case Call(ScalarFn.MUL, (left, right)) if window_points(left, right) <= MAX_WINDOW_POINTS:
            return Term(reduce=reduction, operands=(left, right))
    return None


def _term_of_quads(reduction: Reduce) -> Term | None:
    """A reduction as a sum of products of uint8 and int8, four of which lie along the last axis."""
    match reduction.body:
        case Call(ScalarFn.MUL, factors):
            left, right = map(widened_byte, factors)
            *_, quad = reduction.axes
            if left is None or right is None or (left.type, right.type) != (DType.UINT8, DType.INT8):
                return None
            if quad.extent == QUAD and all(_steps_by_quads(load, quad) for load in (left, right)):
                return Term(reduce=reduction, operands=(left, right), quad=quad)
    return None


def _term_of_plain_bytes(reduction: Reduce) -> Term | None:
    """A reduction as a sum of products of bytes of either sign."""
    match reduction.body:
        case Call(ScalarFn.MUL, (Cast(DType.INT32, left), Cast(DType.INT32, right))):
            are_bytes = all(operand.dtype in (DType.UINT8, DType.INT8) for operand in (left, right))
            if are_bytes and window_points(left, right) <= MAX_WINDOW_POINTS:
                return Term(reduce=reduction, operands=(left, right))
    return None


_TERMS_OF_BYTES: Mapping[ByteProducts, Callable[[Reduce], Term | None]] = {
    ByteProducts.QUADS: _term_of_quads,
    ByteProducts.PLAIN: _term_of_plain_bytes,
}


def _steps_by_quads(load: Load, quad: Axis) -> bool:
    """Whether a quad's elements are neighbours along one dimension, at whole quads of it."""
    forms = [form for form in map(affine, load.indices) if form is None or form.coefficient(quad)]
    if len(forms) != 1 or forms[0] is None or forms[0].coefficient(quad) != 1:
        return False
    others = [coefficient for axis, coefficient in forms[0].terms if axis is not quad]
    return all(step % QUAD == 0 for step in (*others, forms[0].offset))


def window_points(*operands: Expr) -> int:
    """Over how many points operands of a product reduce for each of their elements; 0 if they don't."""
    windows = [node for node in nodes(*operands) if isinstance(node, Reduce)]
    return sum(math.prod(axis.extent for axis in window.axes) for window in windows)


def free_axes(*roots: Expr) -> dict[Expr, frozenset[Axis]]:
    """The axes that the value of each node below `roots` depends on; a reduction binds its own."""
    free: dict[Expr, frozenset[Axis]] = {}
    for node in all_nodes(*roots):
        below = frozenset[Axis]().union(*(free[part] for part in node.parts))
        match node:
            case Axis():
                free[node] = frozenset((node,))
            case Reduce(_, axes, _):
                free[node] = below.difference(axes)
            case _:
                free[node] = below
    return free


def values(*roots: Expr) -> tuple[Expr, ...]:
    """The nodes below `roots` that are computed: all but the arithmetic of indices."""
    seen: dict[Expr, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            stack.extend(() if isinstance(node, Load) else node.children)
    return tuple(seen)


def choice_of(node: Expr) -> Choice | None:
    """The node as a choice by an axis, None for any other."""
    match node:
        case Call(ScalarFn.SELECT, (Call(ScalarFn.EQ, (Axis() as axis, Const(value, _))), if_true, if_false)):
            return Choice(axis=axis, value=int(value), if_true=if_true, if_false=if_false)
    return None


@lru_cache(maxsize=1024)
def chosen_axes(expr: TensorExpr) -> tuple[Axis, ...]:
    """Short axes that choose between values.

    Code that has all their points side by side has no choice left to make, and computes once what the points share.
    """
    axes = {choice.axis for choice in map(choice_of, values(*expr.roots)) if choice is not None}
    chosen = tuple(axis for axis in expr.axes if axis in axes)
    return chosen if math.prod(axis.extent for axis in chosen) <= MAX_CHOSEN_POINTS else ()


def is_gathered(expr: TensorExpr) -> bool:
    """Whether something that is loaded says where something else is."""
    return any(isinstance(node, Load) for load in expr.loads for node in nodes(*load.indices))


@lru_cache(maxsize=1024)
def choices(expr: TensorExpr) -> frozenset[Expr]:
    """The nodes that choose along the chosen axes, with their conditions: they are no work."""
    chosen = chosen_axes(expr)
    found = [node for node in values(*expr.roots) if (choice := choice_of(node)) is not None and choice.axis in chosen]
    return frozenset((*found, *(node.children[0] for node in found)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """An element that lies `before` where `axis` is below `start`, and is `behind` from there on.

    So are rows of a cache, and new ones. What is computed may have to be rounded to the element's type yet.
    """

    axis: Axis
    start: int
    before: Load
    behind: Expr


def joint_of(element: Expr) -> Joint | None:
    """The element as one of two by its position; None where it is anything else, or only one computed element."""
    match element:
        case Cast(dtype, Call(ScalarFn.SELECT, (condition, Cast(_, Load() as before), behind))) if before.type is dtype:
            behind = plain_load(behind) or behind
        case Call(ScalarFn.SELECT, (condition, Load() as before, behind)):
            dtype = before.type
        case _:
            return None
    match condition:
        case Call(ScalarFn.LT, (Axis() as axis, Const(start, _))) if (
            not isinstance(behind, Load) or behind.type is dtype
        ):
            return Joint(axis=axis, start=int(start), before=before, behind=behind)
    return None


def plain_load(operand: Expr) -> Load | None:
    """The load that an operand is, 16-bit floats being widened or float32 rounded; None for anything computed."""
    match operand:
        case Cast(type_, inner) if inner.dtype.compute is type_:
            pass
        case inner:
            pass
    return inner if isinstance(inner, Load) else None


def lane_load(operand: Expr) -> Load | None:
    """The load of whose neighbours vectors of an operand are made, bytes perhaps as float32; None for any other."""
    match operand:
        case Load():
            return operand
        case Cast(DType.FLOAT32, Load(_, _, DType.UINT8 | DType.INT8) as inner):
            return inner
    return None


def widened_byte(operand: Expr) -> Load | None:
    """The load of a byte that an operand is as int32, None for any other."""
    match operand:
        case Cast(DType.INT32, Load(_, _, DType.UINT8 | DType.INT8) as inner):
            return inner
    return None


def lies_in_lanes(operand: Expr, lane: Axis, expr: TensorExpr, layouts: Sequence[Layout]) -> bool:
    """Whether neighbours of an operand along `lane` are neighbours in memory, none of them padding."""
    load = lane_load(operand)
    if load is None or stride_along(load.indices, layouts[load.slot], lane) != 1:
        return False
    shape = expr.inputs[load.slot].shape
    return load.fill is None or not any(
        lane in free_axes(index)[index] and not is_within(index, extent)
        for index, extent in zip(load.indices, shape, strict=True)
    )


def lies_side_by_side(load: Load, lane: Axis, layouts: Sequence[Layout]) -> bool:
    """Whether neighbours of a load along `lane` are neighbours in memory, wherever it stands."""
    layout = layouts[load.slot]
    plain = layout.panel is None and all(affine(index) is not None for index in load.indices)
    return plain and stride_along(load.indices, layout, lane) == 1


def lies_in_quads(load: Load, lane: Axis, quad: Axis, layouts: Sequence[Layout]) -> bool:
    """Whether a quad's bytes lie side by side, and so do those of neighbours along `lane`."""
    layout = layouts[load.slot]
    steps = stride_along(load.indices, layout, lane), stride_along(load.indices, layout, quad)
    return load.fill is None and steps == (QUAD, 1)


def is_within(index: Expr, extent: int) -> bool:
    """Whether an index is certain to be in `range(extent)`."""
    span = interval_of(index, {})
    return span is not None and Interval(0, extent).contains(span)


def stride_along(indices: Sequence[Expr], layout: Layout, axis: Axis) -> int:
    """Elements between the addresses of neighbouring points along `axis` (within a panel); 0 where unknown."""
    forms = [affine(index) for index in indices]
    return sum(
        form.coefficient(axis) * stride for form, stride in zip(forms, layout.strides, strict=True) if form is not None
    )


def reduction_order(loads: Sequence[Load], axes: Sequence[Axis], layouts: Sequence[Layout]) -> tuple[Axis, ...]:
    """Reduction axes outermost first: the shorter the strides of `loads` along an axis, the further in it runs."""

    def reach(axis: Axis) -> int:
        return max((abs(stride_along(load.indices, layouts[load.slot], axis)) for load in loads), default=0)

    return tuple(sorted(axes, key=lambda axis: -reach(axis)))


def broadcast_loads(found: Contraction, group: Group, lane: Axis) -> tuple[Load, ...]:
    """The loads of a group's operands that do not have the lane."""
    others = [found.split(term, lane)[1] for term in group.terms]
    return tuple(node for node in nodes(*others) if isinstance(node, Load))


def sliding_axes(found: Contraction, group: Group, rows: Collection[Axis], lane: Axis) -> tuple[Axis, ...]:
    """The few summed axes along which windows of neighbouring rows overlap, where both operands of products have lanes.

    What rows share is loaded once where the points along these axes are unrolled.
    """
    others = dict.fromkeys(found.split(term, lane)[1] for term in group.terms)
    loads = [load for other in others if (load := lane_load(other)) is not None and lane in found.free[other]]
    if len(loads) < len(others):
        return ()
    forms = [form for load in loads for form in map(affine, load.indices) if form is not None]
    moved = [{axis for axis, _ in form.terms} for form in forms]
    axes = tuple(axis for axis in group.axes if any(axis in index and not index.isdisjoint(rows) for index in moved))
    return axes if math.prod(axis.extent for axis in axes) <= MAX_UNROLLED_POINTS else ()
