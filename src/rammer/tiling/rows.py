"""Reductions seen as rows: what is reduced, and what is computed of it, along one axis that all of them share.

A softmax reduces a row twice and then computes each of its elements. Its expression gives every reduction axes of its
own; here all that runs over the same extents runs along the same axis, so that a value of an element that several of
them need is one node. Reductions that do not depend on each other are one *phase*: a pass over the row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rammer.ir.expr import Axis, Expr, Load, Output, Reduce, TensorExpr, nodes, rebuild
from rammer.ir.task import RKernel, RTile
from rammer.ir.types import Layout
from rammer.tiling.pattern import free_axes, reduction_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """An expression by rows.

    Attributes:
        expr: equal to the original, but that axes along a row are one axis. Its axes are `outer`, then `inner`.
        outer: the axes that reductions depend on: a row for each of their points.
        inner: those along which outputs alone run: `(axis,)` of a phase if they run along the row, too.
        phases: the reductions of each pass, and the axis that it runs along.
    """

    expr: TensorExpr
    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    phases: tuple[tuple[Axis, tuple[Reduce, ...]], ...]

    @property
    def is_joined(self) -> bool:
        """Whether outputs run along the row that is reduced."""
        return len(self.inner) == 1 and any(axis is self.inner[0] for axis, _ in self.phases)


def outer_reductions(expr: TensorExpr) -> tuple[list[Reduce], frozenset[Axis]]:
    """The reductions that depend on spatial axes alone, inner ones first, and these axes."""
    free, axes = free_axes(*expr.roots), frozenset(expr.axes)
    reductions = [reduction for reduction in expr.reductions if free[reduction] <= axes]
    return reductions, frozenset[Axis]().union(*(free[reduction] for reduction in reductions))


def phases(reductions: Sequence[Reduce]) -> tuple[tuple[tuple[Axis, ...], tuple[Reduce, ...]], ...]:
    """The passes that reductions take, with their axes: each comes after those that it depends on.

    Those along the same axes that do not depend on each other are one pass.
    """
    levels: dict[Reduce, int] = {}
    passes: dict[tuple[int, tuple[Axis, ...]], list[Reduce]] = {}
    for reduction in reductions:
        before = [levels[node] for node in nodes(reduction.body) if isinstance(node, Reduce) and node in levels]
        levels[reduction] = 1 + max(before, default=-1)
        passes.setdefault((levels[reduction], reduction.axes), []).append(reduction)
    ordered = sorted(passes.items(), key=lambda one: one[0][0])
    return tuple((axes, tuple(members)) for (_, axes), members in ordered)


def rows_of(expr: TensorExpr, layouts: Sequence[Layout], tile: RTile) -> Rows:
    """An expression by rows. Outputs run along rows only if rTasks of the tile have whole ones."""
    shared, used = outer_reductions(expr)
    outer = tuple(axis for axis in expr.axes if axis in used)
    inner = tuple(axis for axis in expr.axes if axis not in used)
    apart = {axis for reduction in expr.reductions if reduction not in shared for axis in reduction.axes}
    along: dict[tuple[int, ...], Axis] = {}
    moved: dict[Axis, Expr] = {}
    for reduction in shared:
        ordered = _ordered((reduction.body,), reduction.axes, layouts)
        if apart.isdisjoint(ordered) and not any(axis.extent == 0 for axis in ordered):
            moved.update(_along(along, ordered))
    ordered = _ordered(expr.roots, inner, layouts)
    is_whole = all(size == axis.extent for axis, size in zip(expr.axes, tile.task, strict=True) if axis in inner)
    if inner and is_whole and tuple(axis.extent for axis in ordered) in along:
        moved.update(_along(along, ordered))
        inner = (along[tuple(axis.extent for axis in ordered)],)
    by_rows = _moved(expr, moved, (*outer, *inner))
    whole = [one for one in outer_reductions(by_rows)[0] if one.axes[0] in along.values()]
    return Rows(
        expr=by_rows,
        outer=outer,
        inner=inner,
        phases=tuple((axes[0], members) for axes, members in phases(whole)),
    )


def by_rows(kernel: RKernel, rows: Rows) -> RKernel:
    """An rKernel of the same work whose expression is by rows."""
    sizes = dict(zip(kernel.expr.axes, kernel.tile.task, strict=True))
    task = tuple(sizes.get(axis, axis.extent) for axis in rows.expr.axes)
    return replace(kernel, expr=rows.expr, tile=replace(kernel.tile, task=task))


def _ordered(roots: Sequence[Expr], axes: Sequence[Axis], layouts: Sequence[Layout]) -> tuple[Axis, ...]:
    loads = [node for node in nodes(*roots) if isinstance(node, Load)]
    return reduction_order(loads, axes, layouts)


def _along(along: dict[tuple[int, ...], Axis], axes: Sequence[Axis]) -> dict[Axis, Expr]:
    """Positions along `axes`, outermost first, by that along the one axis of their extents."""
    extents = tuple(axis.extent for axis in axes)
    element = along.setdefault(extents, Axis(f"e{len(along)}", math.prod(extents)))
    positions: dict[Axis, Expr] = {}
    rest: Expr = element
    for axis in reversed(axes[1:]):
        positions[axis] = rest % axis.extent
        rest = rest // axis.extent
    positions[axes[0]] = rest
    return positions


def _moved(expr: TensorExpr, moved: Mapping[Axis, Expr], axes: tuple[Axis, ...]) -> TensorExpr:
    """An expression whose axes in `moved` are positions along others."""

    def visit(node: Expr) -> Expr | None:
        match node:
            case Axis():
                return moved.get(node)
            case Reduce(fn, own, body) if own[0] in moved:
                # An axis of one element is at 0 wherever the others are.
                (along,) = {at for at in nodes(*(moved[axis] for axis in own)) if isinstance(at, Axis)}
                return Reduce(fn, (along,), body)
        return None

    flat = [root for output in expr.outputs for root in (output.body, *output.indices)]
    rewritten = iter(rebuild(flat, visit))
    outputs = tuple(
        Output(type=output.type, body=next(rewritten), indices=tuple(next(rewritten) for _ in output.indices))
        for output in expr.outputs
    )
    return TensorExpr(axes=axes, inputs=expr.inputs, outputs=outputs)
