"""Operators whose result has a size that depends on the data: as large as it can be, with how many elements count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, converted, expanded, part, reshaped, transposed
from rammer.frontends.onnx.counts import counted, holding, is_below, number, running_total, taken, vector
from rammer.frontends.onnx.node import Converter, Node
from rammer.ir.types import DType

_LEAST = np.array(np.finfo(np.float32).min)
"""The score of a box for which a model says minus infinity, where that is none, too."""
_MOST_KEYS = 64
"""Of so many elements slices may be that are sorted: each is a sort of its own."""
_MOST_STEPS = 1024
"""So many boxes of a class may be selected: each is chosen after the one before."""


def _nonzero(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    if not x.rank:
        x = reshaped(node, x, (1,))
    flat = reshaped(node, converted(node, x, DType.BOOL), (x.type.size,))
    places, count = holding(node, flat)
    rows, step = [], x.type.size
    for extent in x.shape:
        step //= max(extent, 1)
        line = node.add("Div", places, number(node, max(step, 1)))
        row = node.add("Mod", line, number(node, max(extent, 1)), fmod=False)
        rows.append(reshaped(node, row, (1, x.type.size)))
    return [counted(node, concatenated(node, rows, 0), 1, count)]


def _compress(node: Node) -> Sequence[Operand]:
    """Without an axis, elements are taken from the operand flattened. A condition may be shorter than the dimension."""
    x, condition = node.operand(0), node.operand(1)
    axis = node.axis(node.integer("axis"), x.rank) if node.has("axis") else 0
    if not node.has("axis"):
        x = reshaped(node, x, (x.type.size,))
    if condition.rank != 1:
        raise node.invalid(f"its condition {condition.type} is no vector")
    length = min(condition.shape[0], x.shape[axis])
    places, count = holding(node, part(node, condition, 0, 0, length))
    return [counted(node, taken(node, x, places, axis), axis, count)]


def _unique(node: Node) -> Sequence[Operand]:
    return unique(node, node.operand(0))


def unique(node: Node, x: Operand, length: Operand | None = None) -> Sequence[Operand]:
    """Slices along an axis, or elements, sorted and compared with their neighbours.

    The first of equal ones stands for them. A NaN equals no other.

    Args:
        node: says along which axis and in which order.
        x: what is compared.
        length: how many slices there are, where that depends on the data.

    Raises:
        UnsupportedFeatureError: slices have too many elements.
    """
    axis = node.axis(node.integer("axis"), x.rank) if node.has("axis") else 0
    if not node.has("axis"):
        x = reshaped(node, x, (x.type.size,))
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
    if not node.flag("sorted"):
        there = node.add("Where", is_below(node, extent, count), firsts, number(node, extent))
        by_place = node.add_all("TopK", there, axis=0, k=extent, largest=False)[1]
        firsts, sizes = (node.add("Gather", one, by_place, axis=0) for one in (firsts, sizes))
        groups = node.add("Gather", _inverse(node, by_place), groups, axis=0)
    inverse = _scattered(node, ascending, groups)
    results = [node.add("Gather", x, firsts, axis=axis), firsts, inverse, sizes]
    dims = (axis, 0, None, 0)
    return [one if dim is None else counted(node, one, dim, count) for one, dim in zip(results, dims, strict=True)]


def _sorted(node: Node, keys: Operand) -> Operand:
    """The positions of lines in ascending order, sorted by their last elements first; equal ones keep their order."""
    extent, columns = keys.shape
    order = node.constant(np.arange(extent, dtype=np.int64))
    for column in reversed(range(columns)):
        line = reshaped(node, part(node, keys, 1, column, 1), (extent,))
        _, by_column = node.add_all("TopK", node.add("Gather", line, order, axis=0), axis=0, k=extent, largest=False)
        order = node.add("Gather", order, by_column, axis=0)
    return order


def _before(node: Node, order: Operand, length: Operand) -> Operand:
    """An order of positions, those below a length first."""
    is_behind = converted(node, node.add("Not", node.add("Less", order, length)), DType.INT64)
    _, kept = node.add_all("TopK", is_behind, axis=0, k=order.shape[0], largest=False)
    return node.add("Gather", order, kept, axis=0)


def _differ_from_before(node: Node, lines: Operand) -> Operand:
    """Whether each line differs from the one before; the first one does."""
    extent = lines.shape[0]
    same = node.add("Equal", part(node, lines, 0, 1, extent - 1), part(node, lines, 0, 0, extent - 1))
    alike = node.add("ReduceMin", converted(node, same, DType.INT32), axes=(1,), keepdims=False)
    first = node.constant(np.ones(1, np.bool_))
    rest = node.add("Not", converted(node, alike, DType.BOOL))
    return concatenated(node, [first, rest], 0)


def _non_max_suppression(node: Node) -> Sequence[Operand]:
    return non_max_suppression(node, node.operand(0), node.operand(1))


def non_max_suppression(
    node: Node, boxes: Operand, scores: Operand, length: Operand | None = None
) -> Sequence[Operand]:
    """One box of each class after the other, the best of those that no selected one overlaps too much.

    No more are selected of a single class than anything reads.

    Args:
        node: says how many and by which limits.
        boxes: what is selected from, `[batches, boxes, 4]`.
        scores: `[batches, classes, boxes]`.
        length: how many boxes there are, where that depends on the data.

    Raises:
        InvalidModelError: boxes and scores do not fit.
        UnsupportedFeatureError: too many are selected.
    """
    if boxes.rank != 3 or scores.rank != 3 or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise node.invalid(f"boxes {boxes.type} and scores {scores.type} do not fit")
    batches, classes, extent = scores.shape
    wanted = 0 if node.optional(2) is None else node.known_integer(2)
    steps = min(max(wanted, 0), extent)
    if batches == classes == 1 and (rows := node.rows()) is not None:
        steps = min(steps, rows)
    if steps > _MOST_STEPS:
        raise node.unsupported(f"{steps} boxes of a class", f"up to {_MOST_STEPS} are possible")
    if not steps * batches * classes:
        return [node.constant(np.zeros((0, 3), np.int64))]
    least = _threshold(node, 4)
    most = _threshold(node, 3) or node.constant(np.zeros((), np.float32))
    never = node.constant(np.array(-np.inf, np.float32))
    if least is None:
        left = node.add("Max", scores, node.constant(_LEAST))  # what is gone has less
    else:
        left = node.add("Where", node.add("Less", least, scores), scores, never)
    if length is not None:
        left = node.add("Where", is_below(node, extent, length), left, never)
    corners = _corners(node, boxes)
    own = node.constant(np.arange(extent, dtype=np.int64).reshape(1, 1, extent))
    chosen, there = [], []
    for _ in range(steps):
        best = node.add("ArgMax", left, axis=2, keepdims=True, select_last_index=False)
        score = node.add("ReduceMax", left, axes=(2,), keepdims=True)
        chosen.append(best)
        there.append(node.add("Less", never, score))
        gone = node.add("Or", node.add("Less", most, _overlap(node, corners, best)), node.add("Equal", own, best))
        left = node.add("Where", gone, never, left)
    picked, holds = concatenated(node, chosen, 2), concatenated(node, there, 2)
    places, count = holding(node, reshaped(node, holds, (holds.type.size,)))
    numbers = np.indices(holds.shape, dtype=np.int64)[:2].reshape(2, -1)
    columns = [
        *(node.constant(np.ascontiguousarray(one)) for one in numbers),
        reshaped(node, picked, (holds.type.size,)),
    ]
    tuples = concatenated(node, [reshaped(node, column, (holds.type.size, 1)) for column in columns], 1)
    return [counted(node, taken(node, tuples, places, 0), 0, count)]


def _threshold(node: Node, position: int) -> Operand | None:
    given = node.optional(position)
    return None if given is None else reshaped(node, given, ())


def _corners(node: Node, boxes: Operand) -> tuple[Operand, ...]:
    """The least and the greatest place of boxes along both dimensions, `[batches, 1, boxes]` each."""
    shape = (boxes.shape[0], 1, boxes.shape[1])
    a, b, c, d = (reshaped(node, part(node, boxes, 2, place, 1), shape) for place in range(4))
    if node.integer("center_point_box"):
        half = node.constant(np.array(0.5, np.float32))
        width, height = node.add("Mul", c, half), node.add("Mul", d, half)
        return (
            node.add("Sub", a, width),
            node.add("Sub", b, height),
            node.add("Add", a, width),
            node.add("Add", b, height),
        )
    return node.add("Min", a, c), node.add("Min", b, d), node.add("Max", a, c), node.add("Max", b, d)


def _overlap(node: Node, corners: Sequence[Operand], chosen: Operand) -> Operand:
    """What all boxes share with the chosen one of their class, divided by what either covers."""
    batches, classes, _ = chosen.shape
    left, top, right, bottom = corners
    shape = (batches, classes, left.shape[2])
    of_chosen = [node.add("GatherElements", expanded(node, one, shape), chosen, axis=2) for one in corners]
    own_left, own_top, own_right, own_bottom = of_chosen
    zero = node.constant(np.zeros((), np.float32))

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


def _scattered(node: Node, places: Operand, values: Operand) -> Operand:
    """A vector with values at places, which are all of its places."""
    extent = places.shape[0]
    zeros = node.constant(np.zeros((1, extent, 1), np.int64))
    at, given = reshaped(node, places, (1, extent)), reshaped(node, values, (1, extent, 1))
    return reshaped(node, node.add("Scatter", zeros, at, given, reduction="none"), (extent,))


def _inverse(node: Node, order: Operand) -> Operand:
    """Where each element of an order is."""
    return _scattered(node, order, node.constant(np.arange(order.shape[0], dtype=np.int64)))


CONVERTERS: Mapping[str, Converter] = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _nonzero,
    "Unique": _unique,
}
