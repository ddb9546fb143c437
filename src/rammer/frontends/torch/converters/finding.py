"""Operators whose results are as large as the values say: as large as they can be, with how many elements count."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import counted, holding, is_below, taken
from rammer.frontends.counts.made import MOST_BOXES, best_boxes, nonzero, unique
from rammer.frontends.moves import concatenated, converted, expanded, part, reshaped
from rammer.frontends.torch.converters.logic import CONVERTERS as LOGIC
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType


def _nonzero(node: Node) -> Result:
    x = node.operand("self")
    if not x.rank:
        raise node.unsupported("the places of a tensor without dimensions", "give it one: x.reshape(1)")
    places, count = nonzero(node, x)
    columns = [reshaped(node, place, (x.type.size, 1)) for place in places]
    return counted(node, concatenated(node, columns, 1), 0, count)


def _where(node: Node) -> Result:
    """A choice, or, of a condition alone, the places where it holds along each dimension."""
    if "self" in node.arguments:
        return LOGIC["where"](node)
    condition = node.operand("condition")
    if not condition.rank:
        condition = reshaped(node, condition, (1,))
    places, count = nonzero(node, condition)
    return [counted(node, place, 0, count) for place in places]


def _masked_select(node: Node) -> Result:
    x, mask = node.operand("self"), node.operand("mask")
    if np.broadcast_shapes(x.shape, mask.shape) != x.shape:  # PyTorch has a wrong bound for the result then
        raise node.unsupported(
            f"a mask of {list(mask.shape)} for {list(x.shape)}", "expand the tensor to the mask's shape"
        )
    places, count = holding(node, reshaped(node, expanded(node, mask, x.shape), (x.type.size,)))
    return counted(node, taken(node, reshaped(node, x, (x.type.size,)), places, 0), 0, count)


def _item(node: Node) -> Result:
    return reshaped(node, node.operand("self"), ())


def _nonzero_static(node: Node) -> Result:
    """The first places, and behind them a number."""
    x, size = node.operand("self"), node.integer("size")
    places, count = nonzero(node, x)
    there = reshaped(node, is_below(node, size, count), (size, 1))
    columns = [reshaped(node, _of_size(node, place, size), (size, 1)) for place in places]
    fill = node.scalar(node.integer("fill_value"), DType.INT64)
    return node.add("Where", there, concatenated(node, columns, 1), fill)


def _of_size(node: Node, line: Operand, size: int) -> Operand:
    """A vector cut or continued to a size."""
    missing = size - line.shape[0]
    if missing <= 0:
        return part(node, line, 0, 0, size)
    return node.add("Pad", line, mode="constant", pads=(0, missing), value=0)


def _unique(node: Node) -> Result:
    """Elements, or slices along a dimension, in order; which of them each one is; how many are equal to each."""
    x = node.operand("self")
    if node.has("dim"):
        return found_once(node, x, node.dimension("dim", x.rank), None)
    return found_once(node, reshaped(node, x, (x.type.size,)), 0, None)


def found_once(node: Node, x: Operand, axis: int, length: Operand | None) -> Result:
    """The results of `unique`, of slices of which a number may count that depends on the data."""
    keys = converted(node, x, DType.UINT8) if x.dtype is DType.BOOL else x
    values, _, inverse, sizes = unique(node, keys, axis, length, is_sorted=True)
    values = values.like(converted(node, values, x.dtype))
    if not node.has("dim"):
        inverse = reshaped(node, inverse, node.operand("self").shape)
    wanted = (node.flag("return_inverse"), node.flag("return_counts"))
    return [values, *(one if is_wanted else None for one, is_wanted in zip((inverse, sizes), wanted, strict=True))]


def _best_boxes(node: Node) -> Result:
    return boxes_by_rank(node, node.operand("dets"), node.operand("scores"), None)


def boxes_by_rank(node: Node, boxes: Operand, scores: Operand, length: Operand | None) -> Operand:
    """The best of boxes that overlap, best first, and of equal scores the first; no more than anything reads.

    Raises:
        UnsupportedFeatureError: there are too many.
    """
    extent = boxes.shape[0]
    rows = node.rows()
    steps = extent if rows is None else min(extent, rows)
    if steps > MOST_BOXES:
        raise node.unsupported(f"{steps} boxes", f"up to {MOST_BOXES} are possible: read no more, by keep[:n]")
    if not steps:
        return node.constant(np.zeros(0, np.int64))
    _, order = node.add_all("TopK", scores, axis=0, k=extent, largest=True)
    ordered = node.add("Gather", boxes, order, axis=0)
    corners = [reshaped(node, part(node, ordered, 1, place, 1), (1, 1, extent)) for place in range(4)]
    ranks = node.constant(np.arange(extent, 0, -1).astype(boxes.dtype.numpy))
    if length is not None:
        ranks = node.add("Where", is_below(node, extent, length), ranks, node.scalar(-math.inf, boxes.dtype))
    most = node.scalar(node.number("iou_threshold"), boxes.dtype)
    chosen, there = best_boxes(node, corners, reshaped(node, ranks, (1, 1, extent)), most, steps)
    places, count = holding(node, reshaped(node, there, (steps,)))
    picked = node.add("Gather", reshaped(node, chosen, (steps,)), places, axis=0)
    return counted(node, node.add("Gather", order, picked, axis=0), 0, count)


CONVERTERS: Mapping[str, Converter] = {
    "_unique2": _unique,
    "_local_scalar_dense": _item,
    "masked_select": _masked_select,
    "nms": _best_boxes,
    "nonzero": _nonzero,
    "nonzero_static": _nonzero_static,
    "unique_dim": _unique,
    "where": _where,
}
