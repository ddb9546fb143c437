"""Elements in order, places in an order, and counts of elements between edges.

A NaN is greater than any number, as in PyTorch. Equal elements keep their order, with and without `stable`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, expanded, part, reshaped
from rammer.frontends.torch.converters.indexing import as_positions
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType


def _top_k(node: Node) -> Result:
    return _ordered(node, node.integer("k"), largest=node.flag("largest"))


def _sort(node: Node) -> Result:
    return _ordered(node, None, largest=node.flag("descending"))


def _arg_sort(node: Node) -> Result:
    return _ordered(node, None, largest=node.flag("descending"))[1]


def _ordered(node: Node, count: int | None, *, largest: bool) -> list[Operand]:
    """The first elements of each line along `dim`, all where no count is given, and their positions."""
    x = node.operand("self")
    lines = x if x.rank else reshaped(node, x, (1,))
    axis = node.dimension("dim", x.rank)
    if x.dtype is DType.BOOL:
        lines = converted(node, lines, DType.UINT8)
    k = lines.shape[axis] if count is None else count
    values, positions = node.add_all("TopK", lines, axis=axis, k=k, largest=largest)
    shape = values.shape if x.rank else ()
    return [reshaped(node, converted(node, values, x.dtype), shape), reshaped(node, positions, shape)]


def _kth_value(node: Node) -> Result:
    return _kth(node, node.operand("self"), node.integer("k"))


def _median(node: Node) -> Result:
    """The lower one of two in the middle; NaN where there is one."""
    x = node.operand("self")
    if not node.has("dim"):
        flat = reshaped(node, x, (x.type.size,))
        values, places = node.add_all("TopK", flat, axis=0, k=x.type.size, largest=False)
        return reshaped(node, node.add("Gather", values, _middle(node, flat, values, 0), axis=0), ())
    if x.rank == 0:
        return [x, node.scalar(0, DType.INT64)]
    axis = node.dimension("dim", x.rank)
    values, places = node.add_all("TopK", x, axis=axis, k=x.shape[axis], largest=False)
    middle = _middle(node, x, values, axis)
    picked = (node.add("GatherElements", each, middle, axis=axis) for each in (values, places))
    return [reshaped(node, each, node.shape) for each in picked]


def _middle(node: Node, x: Operand, ascending: Operand, axis: int) -> Operand:
    """The place of the median in each line in order, behind whose numbers NaN stands: the first NaN if there is one."""
    count = x.shape[axis]
    place = node.scalar((count - 1) // 2, DType.INT64)
    shape = tuple(1 if dim == axis else extent for dim, extent in enumerate(x.shape))
    if not x.dtype.is_float:
        return expanded(node, place, shape)
    numbers = node.add("Cast", node.add("Not", node.add("IsNaN", ascending)), to=DType.INT64)
    before = node.add("ReduceSum", numbers, axes=(axis,), keepdims=True)
    whole = node.add("Equal", before, node.scalar(count, DType.INT64))
    return node.add("Where", whole, place, before)


def _kth(node: Node, x: Operand, k: int) -> list[Operand]:
    """The kth smallest element of each line, and where it is."""
    if x.rank == 0:
        return [x, node.scalar(0, DType.INT64)]
    axis = node.dimension("dim", x.rank)
    found = node.add_all("TopK", x, axis=axis, k=k, largest=False)
    return [reshaped(node, part(node, each, axis, k - 1, 1), node.shape) for each in found]


def _search_sorted(node: Node) -> Result:
    return _searched(node, "sorted_sequence", "self", right=node.flag("right") or node.arguments["side"] == "right")


def _bucketize(node: Node) -> Result:
    return _searched(node, "boundaries", "self", right=node.flag("right"))


def _searched(node: Node, sequence_name: str, values_name: str, *, right: bool) -> Operand:
    """Where each value belongs in a sequence in order: PyTorch's own search by halves, all values at once.

    The sequence has one dimension, or a line for each line of the values.
    """
    common = node.promoted(sequence_name, values_name)
    sequence, values = node.typed(sequence_name, common), node.typed(values_name, common)
    if node.has("sorter"):
        axis = sequence.rank - 1
        sequence = node.add("GatherElements", sequence, as_positions(node, node.operand("sorter")), axis=axis)
    count = sequence.shape[-1]
    one, last = (node.scalar(number, DType.INT64) for number in (1, count - 1))
    low = expanded(node, node.scalar(0, DType.INT64), values.shape)
    high = expanded(node, node.scalar(count, DType.INT64), values.shape)
    for _ in range(count.bit_length()):
        middle = node.add("Div", node.add("Add", low, high), node.scalar(2, DType.INT64))
        place = node.add("Min", middle, last)
        if sequence.rank == 1:
            found = node.add("Gather", sequence, place, axis=0)
        else:
            found = node.add("GatherElements", sequence, place, axis=sequence.rank - 1)
        reached = node.add("Greater" if right else "GreaterOrEqual", found, values)
        open_ = node.add("Less", low, high)
        below = node.add("And", open_, node.add("Not", reached))
        low = node.add("Where", below, node.add("Add", middle, one), low)
        high = node.add("Where", node.add("And", open_, reached), middle, high)
    return converted(node, low, node.dtype)


def _histogram(node: Node) -> Result:
    """Counts of the elements in bins of equal width; the last bin has its right edge, what lies outside is left out."""
    x = node.operand("self")
    low, high, bins = node.number("min"), node.number("max"), node.integer("bins")
    if low == high:
        raise node.unsupported("a histogram over the range of its elements", "give min= and max=")
    lowest, highest = node.scalar(low, x.dtype), node.scalar(high, x.dtype)
    flat = reshaped(node, x, (x.type.size,))
    inside = node.add("And", node.add("LessOrEqual", lowest, flat), node.add("LessOrEqual", flat, highest))
    scaled = node.add("Mul", node.add("Sub", flat, lowest), node.scalar(bins, x.dtype))
    place = node.add("Div", scaled, node.add("Sub", highest, lowest))
    known = node.add("Where", inside, place, node.scalar(-1, x.dtype))
    position = node.add("Min", node.add("Cast", known, to=DType.INT64), node.scalar(bins - 1, DType.INT64))
    rows = node.constant(np.arange(bins, dtype=np.int64).reshape(-1, 1))
    hits = node.add("Equal", rows, reshaped(node, position, (1, x.type.size)))
    return node.add("ReduceSum", node.add("Cast", hits, to=x.dtype), axes=(1,), keepdims=False)


CONVERTERS: Mapping[str, Converter] = {
    "argsort": _arg_sort,
    "bucketize": _bucketize,
    "histc": _histogram,
    "kthvalue": _kth_value,
    "median": _median,
    "searchsorted": _search_sorted,
    "sort": _sort,
    "topk": _top_k,
}
