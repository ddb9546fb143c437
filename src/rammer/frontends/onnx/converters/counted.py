"""Operators whose result has a size that depends on the data: as large as it can be, with how many elements count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import counted, holding, is_below, taken
from rammer.frontends.counts.made import MOST_BOXES, best_boxes, nonzero, unique
from rammer.frontends.moves import concatenated, part, reshaped
from rammer.frontends.onnx.node import Converter, Node

_LEAST = np.array(np.finfo(np.float32).min)
"""The score of a box for which a model says minus infinity, where that is none, too."""


def _nonzero(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    if not x.rank:
        x = reshaped(node, x, (1,))
    places, count = nonzero(node, x)
    return [counted(node, concatenated(node, [reshaped(node, row, (1, x.type.size)) for row in places], 0), 1, count)]


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
    return unique_slices(node, node.operand(0))


def unique_slices(node: Node, x: Operand, length: Operand | None = None) -> Sequence[Operand]:
    """Along the node's axis, or elements; of slices a number may count that depends on the data."""
    axis = node.axis(node.integer("axis"), x.rank) if node.has("axis") else 0
    if not node.has("axis"):
        x = reshaped(node, x, (x.type.size,))
    return unique(node, x, axis, length, is_sorted=node.flag("sorted"))


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
    if steps > MOST_BOXES:
        raise node.unsupported(f"{steps} boxes of a class", f"up to {MOST_BOXES} are possible")
    if not steps * batches * classes:
        return [node.constant(np.zeros((0, 3), np.int64))]
    least = _threshold(node, 4)
    most = _threshold(node, 3) or node.constant(np.zeros((), np.float32))
    never = node.constant(np.array(-np.inf, np.float32))
    if least is None:
        above = node.add("Max", scores, node.constant(_LEAST))  # what is gone has less
    else:
        above = node.add("Where", node.add("Less", least, scores), scores, never)
    if length is not None:
        above = node.add("Where", is_below(node, extent, length), above, never)
    picked, holds = best_boxes(node, _corners(node, boxes), above, most, steps)
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


CONVERTERS: Mapping[str, Converter] = {
    "Compress": _compress,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _nonzero,
    "Unique": _unique,
}
