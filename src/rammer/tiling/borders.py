"""Where loads leave their slots for padding, and loops may leave out points instead of loading it."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rammer.ir.evaluate import FUNCTIONS, converted, identity
from rammer.ir.expr import Axis, Call, Cast, Const, Expr, Load, Reduce, ScalarFn, nodes
from rammer.ir.graph import Array
from rammer.ir.region import Affine, Interval, affine
from rammer.ir.types import DType, TensorType
from rammer.tiling.pattern import MAX_UNROLLED_POINTS, Contraction, Group, is_within, plain_load


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """A dimension of a padded load that can leave its slot, where leaving it out of the reduction changes nothing.

    Points where not `0 <= form < extent` may be skipped.
    """

    load: Load
    dim: int
    form: Affine
    extent: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes that the index depends on."""
        return tuple(axis for axis, _ in self.form.terms)

    def span(self, axis: Axis, others: Mapping[Axis, int]) -> Interval:
        """The positions along `axis` at which the index is in bounds, where all other axes stand at `others`."""
        step = self.form.coefficient(axis)
        offset = self.form.offset + sum(self.form.coefficient(other) * at for other, at in others.items())
        first, last = sorted((-offset / step, (self.extent - 1 - offset) / step))
        return Interval(math.ceil(first), math.floor(last) + 1)

    def inside(self, positions: Mapping[Axis, int]) -> bool:
        """Whether the index is in bounds at a point; `positions` names all its axes."""
        index = self.form.offset + sum(coefficient * positions[axis] for axis, coefficient in self.form.terms)
        return 0 <= index < self.extent


def borders(reductions: Sequence[Reduce], inputs: Sequence[TensorType]) -> tuple[Border, ...]:
    """Where loops over `reductions`, run together, may leave out points instead of loading the padding."""
    loads = [node for node in nodes(*(r.body for r in reductions)) if isinstance(node, Load) and node.fill is not None]
    return borders_of([load for load in loads if all(_absorbs(reduction, load) for reduction in reductions)], inputs)


def borders_of(loads: Iterable[Load], inputs: Sequence[TensorType]) -> tuple[Border, ...]:
    """Where loads can leave their slots."""
    found = []
    for load in loads:
        if load.fill is None:
            continue
        for dim, (index, extent) in enumerate(zip(load.indices, inputs[load.slot].shape, strict=True)):
            form = affine(index)
            if form is not None and not is_within(index, extent):
                found.append(Border(load=load, dim=dim, form=form, extent=extent))
    return tuple(found)


def _absorbs(reduction: Reduce, load: Load) -> bool:
    """Whether the body is the reduction's identity wherever `load` gives its fill."""
    outside: dict[Expr, Array | None] = {}
    for node in nodes(reduction.body):
        match node:
            case Load(_, _, type_, Const(fill, _)) if node is load:
                outside[node] = np.asarray(fill, type_.numpy)
            case Const(number, type_):
                outside[node] = np.asarray(number, type_.numpy)
            case Cast(type_, arg):
                inner = outside[arg]
                outside[node] = None if inner is None else converted(inner, type_)
            case Call(fn, args):
                outside[node] = _apply(fn, args, [outside[arg] for arg in args], node.dtype)
            case _:
                outside[node] = None
    body = outside[reduction.body]
    return body is not None and body == identity(reduction.fn, reduction.dtype)


def _apply(fn: ScalarFn, args: Sequence[Expr], values: Sequence[Array | None], dtype: DType) -> Array | None:
    """The value of a call as far as it follows from the operands whose values are known."""
    known = [value for value in values if value is not None]
    if fn is ScalarFn.MUL and any(value == 0 for value in known) and all(map(_is_finite, args, values)):
        return np.zeros((), dtype.numpy)
    if len(known) < len(values):
        return None
    with np.errstate(all="ignore"):
        return np.asarray(FUNCTIONS[fn](*known))


def _is_finite(operand: Expr, value: Array | None) -> bool:
    """Whether an operand is certain to be neither infinite nor NaN."""
    if value is not None:
        return bool(np.isfinite(value))
    loaded = plain_load(operand)
    return not operand.dtype.is_float or (loaded is not None and loaded.finite)


def is_blockable(found: Contraction, axis: Axis, inputs: Sequence[TensorType]) -> bool:
    """Whether several rows along `axis` can be computed together at no cost.

    At a border the rows of a block differ in the points they skip. That is settled when the code is written, by
    unrolling the reduction axes that the border depends on, so these have to be short.
    """
    return all(
        is_settled(border, (axis,), group)
        for group in found.groups
        for border in borders([term.reduce for term in group.terms], inputs)
        if axis in border.axes
    )


def is_settled(border: Border, rows: Collection[Axis], group: Group) -> bool:
    """Whether a border can be settled when the code is written: it depends on rows and a few summed points only."""
    summed = [axis for axis in border.axes if axis in group.axes]
    others = [axis for axis in border.axes if axis not in summed]
    points = math.prod(axis.extent for axis in summed)
    return bool(others) and all(axis in rows for axis in others) and points <= MAX_UNROLLED_POINTS
