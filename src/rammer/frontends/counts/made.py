"""What is found in operands: as much as there can be, with how much counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import counted, holding, is_below, number, running_total, vector
from rammer.frontends.moves import concatenated, converted, expanded, part, reshaped, transposed
from rammer.frontends.node import ModelNode
from rammer.ir.types import DType

_MOST_KEYS = 64
"""Of so many elements slices may be that are sorted: each is a sort of its own."""
MOST_BOXES = 1024
"""So many boxes of a class may be selected: each is chosen after the one before."""


def nonzero(node: ModelNode, x: Operand) -> tuple[list[Operand], Operand]:
    """Where elements are not 0, row by row: a vector of positions along each dimension, and how many of them count."""
    flat = reshaped(node, converted(node, x, DType.BOOL), (x.type.size,))
    places, count = holding(node, flat)
    if x.rank == 1:
        node.builder.bound(places, 0, x.type.size)
        return [places], count
    found, step = [], x.type.size
    for extent in x.shape:
        step //= max(extent, 1)
        line = node.add("Div", places, number(node, max(step, 1)))
        found.append(node.add("Mod", line, number(node, max(extent, 1)), fmod=False))
        node.builder.bound(found[-1], 0, max(extent - 1, 0))
    return found, count


def unique(
    node: ModelNode, x: Operand, axis: int, length: Operand | None = None, *, is_sorted: bool
) -> Sequence[Operand]:
    """Slices along an axis, sorted and compared with their neighbours; the first of equal ones stands for them.

    A NaN equals no other.

    Args:
        node: what they are for.
        x: what is compared.
        axis: along which.
        length: how many slices there are, where that depends on the data.
        is_sorted: whether the slices that are left are in ascending order, or in that of their first places.

    Returns:
        these slices, their first places, which of them each slice is, and how many slices are equal to each.

    Raises:
        UnsupportedFeatureError: slices have too many elements.
    """
    order = [axis, *(dim for dim in range(x.rank) if dim != axis)]
    extent = x.shape[axis]
    keys = reshaped(node, transposed(node, x, order), (extent, x.type.size // max(extent, 1)))
    if keys.shape[1] > _MOST_KEYS or not x.type.size:
        raise node.unsupported(f"slices of {keys.shape[1]} elements", f"1 to {_MOST_KEYS} are possible")
    ascending, whole = _sorted(node, keys), number(node, extent)
    if length is not None:
        ascending, whole = _before(node, ascending, length), length
    is_new = _differ_from_before(node, node.add("Gather", keys, ascending, axis=0))
    if length is not None:
        is_new = node.add("And", is_new, is_below(node, extent, length))
    groups = node.add("Sub", running_total(node, is_new), number(node, 1))
    starts, count = holding(node, is_new)
    firsts = node.add("Gather", ascending, starts, axis=0)
    ends = concatenated(node, [part(node, starts, 0, 1, extent - 1), vector(node, [extent])], 0)
    inside = is_below(node, extent, node.add("Sub", count, number(node, 1)))
    sizes = node.add("Sub", node.add("Where", inside, ends, whole), starts)
    if not is_sorted:
        there = node.add("Where", is_below(node, extent, count), firsts, number(node, extent))
        by_place = node.add_all("TopK", there, axis=0, k=extent, largest=False)[1]
        firsts, sizes = (node.add("Gather", one, by_place, axis=0) for one in (firsts, sizes))
        groups = node.add("Gather", _inverse(node, by_place), groups, axis=0)
    inverse = _scattered(node, ascending, groups)
    results = [node.add("Gather", x, firsts, axis=axis), firsts, inverse, sizes]
    dims = (axis, 0, None, 0)
    return [one if dim is None else counted(node, one, dim, count) for one, dim in zip(results, dims, strict=True)]


def _sorted(node: ModelNode, keys: Operand) -> Operand:
    """The positions of lines in ascending order, sorted by their last elements first; equal ones keep their order."""
    extent, columns = keys.shape
    order = node.constant(np.arange(extent, dtype=np.int64))
    for column in reversed(range(columns)):
        line = reshaped(node, part(node, keys, 1, column, 1), (extent,))
        _, by_column = node.add_all("TopK", node.add("Gather", line, order, axis=0), axis=0, k=extent, largest=False)
        order = node.add("Gather", order, by_column, axis=0)
    return order


def _before(node: ModelNode, order: Operand, length: Operand) -> Operand:
    """An order of positions, those below a length first."""
    is_behind = converted(node, node.add("Not", node.add("Less", order, length)), DType.INT64)
    _, kept = node.add_all("TopK", is_behind, axis=0, k=order.shape[0], largest=False)
    return node.add("Gather", order, kept, axis=0)


def _differ_from_before(node: ModelNode, lines: Operand) -> Operand:
    """Whether each line differs from the one before; the first one does."""
    extent = lines.shape[0]
    same = node.add("Equal", part(node, lines, 0, 1, extent - 1), part(node, lines, 0, 0, extent - 1))
    alike = node.add("ReduceMin", converted(node, same, DType.INT32), axes=(1,), keepdims=False)
    first = node.constant(np.ones(1, np.bool_))
    rest = node.add("Not", converted(node, alike, DType.BOOL))
    return concatenated(node, [first, rest], 0)


def best_boxes(
    node: ModelNode, corners: Sequence[Operand], scores: Operand, most: Operand, steps: int
) -> tuple[Operand, Operand]:
    """So many boxes of each class, the best of those that no selected one overlaps too much, one after the other.

    Args:
        node: what they are for.
        corners: the least and the greatest place of boxes along both dimensions, `[batches, 1, boxes]` each.
        scores: `[batches, classes, boxes]`; none is selected by the least score there is.
        most: how much of two boxes may overlap.
        steps: how many of a class are selected at most, 1 or more.

    Returns:
        their positions, `[batches, classes, steps]`, and whether there are any left to select.
    """
    extent = scores.shape[2]
    never = node.constant(np.array(-np.inf, scores.dtype.numpy))
    own = node.constant(np.arange(extent, dtype=np.int64).reshape(1, 1, extent))
    left, chosen, there = scores, [], []
    for _ in range(steps):
        best = node.add("ArgMax", left, axis=2, keepdims=True, select_last_index=False)
        score = node.add("ReduceMax", left, axes=(2,), keepdims=True)
        chosen.append(best)
        there.append(node.add("Less", never, score))
        gone = node.add("Or", node.add("Less", most, _overlap(node, corners, best)), node.add("Equal", own, best))
        left = node.add("Where", gone, never, left)
    return concatenated(node, chosen, 2), concatenated(node, there, 2)


def _overlap(node: ModelNode, corners: Sequence[Operand], chosen: Operand) -> Operand:
    """What all boxes share with the chosen one of their class, divided by what either covers."""
    batches, classes, _ = chosen.shape
    left, top, right, bottom = corners
    shape = (batches, classes, left.shape[2])
    of_chosen = [node.add("GatherElements", expanded(node, one, shape), chosen, axis=2) for one in corners]
    own_left, own_top, own_right, own_bottom = of_chosen
    zero = node.constant(np.zeros((), corners[0].dtype.numpy))

    def common(low: Operand, own_low: Operand, high: Operand, own_high: Operand) -> Operand:
        reach = node.add("Sub", node.add("Min", high, own_high), node.add("Max", low, own_low))
        return node.add("Max", reach, zero)

    def area(low: Operand, high: Operand, start: Operand, end: Operand) -> Operand:
        return node.add("Mul", node.add("Sub", high, low), node.add("Sub", end, start))

    shared = node.add("Mul", common(left, own_left, right, own_right), common(top, own_top, bottom, own_bottom))
    areas = node.add("Add", area(left, right, top, bottom), area(own_left, own_right, own_top, own_bottom))
    covered = node.add("Sub", areas, shared)
    is_empty = node.add("Equal", shared, zero)  # 0, too, where nothing is covered
    return node.add("Where", is_empty, zero, node.add("Div", shared, covered))


def _scattered(node: ModelNode, places: Operand, values: Operand) -> Operand:
    """A vector with values at places, which are all of its places."""
    extent = places.shape[0]
    zeros = node.constant(np.zeros((1, extent, 1), np.int64))
    at, given = reshaped(node, places, (1, extent)), reshaped(node, values, (1, extent, 1))
    return reshaped(node, node.add("Scatter", zeros, at, given, reduction="none"), (extent,))


def _inverse(node: ModelNode, order: Operand) -> Operand:
    """Where each element of an order is."""
    return _scattered(node, order, node.constant(np.arange(order.shape[0], dtype=np.int64)))
