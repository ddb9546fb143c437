"""Elements in order, places in an order, and counts of elements between edges.

A NaN is greater than any number, as in PyTorch. Equal elements keep their order, with and without `stable`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, converted, expanded, part, reshaped
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
    """The lower one of two in the middle; NaN where there is one, unless NaN does not count."""
    x = node.operand("self")
    if not node.has("dim"):
        if x.dtype.is_float and not x.type.size:
            return node.scalar(math.nan, x.dtype)
        flat = reshaped(node, x, (x.type.size,))
        values, places = node.add_all("TopK", flat, axis=0, k=x.type.size, largest=False)
        return reshaped(node, node.add("Gather", values, _middle(node, values, 0), axis=0), ())
    if x.rank == 0:
        return [x, node.scalar(0, DType.INT64)]
    axis = node.dimension("dim", x.rank)
    values, places = node.add_all("TopK", x, axis=axis, k=x.shape[axis], largest=False)
    return _picked(node, (values, places), _middle(node, values, axis), axis)


def _picked(node: Node, lines: Sequence[Operand], place: Operand, axis: int) -> list[Operand]:
    """What stands at the place of each line."""
    return [reshaped(node, node.add("GatherElements", each, place, axis=axis), node.shape) for each in lines]


def _middle(node: Node, ascending: Operand, axis: int) -> Operand:
    """The place of the median in each line in order, behind whose numbers NaN stands: the first NaN if one counts."""
    count = ascending.shape[axis]
    place = node.scalar((count - 1) // 2, DType.INT64)
    shape = tuple(1 if dim == axis else extent for dim, extent in enumerate(ascending.shape))
    if not ascending.dtype.is_float:
        return expanded(node, place, shape)
    numbers = node.add("Cast", node.add("Not", node.add("IsNaN", ascending)), to=DType.INT64)
    before = node.add("ReduceSum", numbers, axes=(axis,), keepdims=True)
    if node.operator == "nanmedian":
        zero, one, two = (node.scalar(number, DType.INT64) for number in range(3))
        return node.add("Div", node.add("Max", node.add("Sub", before, one), zero), two)
    whole = node.add("Equal", before, node.scalar(count, DType.INT64))
    return node.add("Where", whole, place, before)


def _mode(node: Node) -> Result:
    """The least of the most frequent elements of each line, and the last place where it stands.

    Equal elements are neighbours in order, so the first of the longest runs is looked for.
    """
    x = node.operand("self")
    if x.rank == 0:
        return [x, node.scalar(0, DType.INT64)]
    axis = node.dimension("dim", x.rank)
    lines = converted(node, x, DType.UINT8) if x.dtype is DType.BOOL else x
    count = x.shape[axis]
    values, places = node.add_all("TopK", lines, axis=axis, k=count, largest=False)
    numbers = np.arange(count, dtype=np.int64).reshape([-1 if dim == axis else 1 for dim in range(x.rank)])
    number, zero = node.constant(numbers), node.scalar(0, DType.INT64)
    before, others = (part(node, values, axis, start, count - 1) for start in (0, 1))
    goes_on = node.add("Equal", before, others)
    begun = node.add("Where", goes_on, zero, part(node, number, axis, 1, count - 1))
    first = expanded(node, zero, tuple(1 if dim == axis else extent for dim, extent in enumerate(x.shape)))
    begun = concatenated(node, [first, begun], axis)
    begin = node.add("CumMax", begun, axis=axis, exclusive=False, reverse=False)
    length = node.add("Sub", number, begin)
    end = node.add("ArgMax", length, axis=axis, keepdims=True, select_last_index=False)
    value, place = _picked(node, (values, places), end, axis)
    return [converted(node, value, x.dtype), place]


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


def _counts_in_even_bins(node: Node) -> Result:
    """Counts of the elements in bins of equal width; the last bin has its right edge, what lies outside is left out."""
    x = node.operand("self")
    bins, count = node.integer("bins"), x.type.size
    low, high = (np.array(node.number(name)).astype(x.dtype.numpy) for name in ("min", "max"))
    if not count:
        return expanded(node, node.scalar(0, x.dtype), (bins,))
    flat = reshaped(node, x, (count,))
    edges = _extremes(node, flat) if low == high else (node.constant(low), node.constant(high))
    lowest, highest = _apart(node, edges, 1)
    inside = node.add("And", node.add("LessOrEqual", lowest, flat), node.add("LessOrEqual", flat, highest))
    scaled = node.add("Mul", node.add("Sub", flat, lowest), node.scalar(bins, x.dtype))
    place = node.add("Div", scaled, node.add("Sub", highest, lowest))
    known = node.add("Where", inside, place, node.scalar(-1, x.dtype))
    position = node.add("Min", node.add("Cast", known, to=DType.INT64), node.scalar(bins - 1, DType.INT64))
    rows = node.constant(np.arange(bins, dtype=np.int64).reshape(-1, 1))
    hits = node.add("Equal", rows, reshaped(node, position, (1, count)))
    return node.add("ReduceSum", node.add("Cast", hits, to=x.dtype), axes=(1,), keepdims=False)


def _extremes(node: Node, x: Operand) -> tuple[Operand, Operand]:
    """The least and the greatest element of a line."""
    low, high = (node.add(kind, x, axes=(0,), keepdims=False) for kind in ("ReduceMin", "ReduceMax"))
    return low, high


def _apart(node: Node, edges: tuple[Operand, Operand], margin: float) -> tuple[Operand, Operand]:
    """The two edges, each moved by a margin where they are equal."""
    low, high = edges
    by = node.add("Where", node.add("Equal", low, high), node.scalar(margin, low.dtype), node.scalar(0, low.dtype))
    return node.add("Sub", low, by), node.add("Add", high, by)


def _histogram(node: Node) -> Result:
    """The weights of the elements in the bins between edges, and the edges; the last bin has its right edge."""
    x = node.operand("self")
    flat = reshaped(node, x, (1, x.type.size))
    bins = node.arguments["bins"]
    edges = bins if isinstance(bins, Operand) else _even_edges(node, flat, node.integer("bins"))
    count = edges.shape[0] - 1
    left, right = (reshaped(node, part(node, edges, 0, start, count), (count, 1)) for start in (0, 1))
    if x.type.size:
        is_last = node.constant((np.arange(count) == count - 1).reshape(-1, 1))
        before_end = node.add(
            "Or", node.add("Less", flat, right), node.add("And", is_last, node.add("Equal", flat, right))
        )
        inside = node.add("And", node.add("LessOrEqual", left, flat), before_end)
        weight = reshaped(node, node.operand("weight"), flat.shape) if node.has("weight") else node.scalar(1, x.dtype)
        parts = node.add("Where", inside, weight, node.scalar(0, x.dtype))
        total = node.add("ReduceSum", parts, axes=(1,), keepdims=False)
    else:
        total = expanded(node, node.scalar(0, x.dtype), (count,))
    if node.flag("density"):
        share = node.add("Div", total, node.add("ReduceSum", total, axes=(0,), keepdims=False))
        total = node.add("Div", share, reshaped(node, node.add("Sub", right, left), (count,)))
    return [total, edges]


def _even_edges(node: Node, x: Operand, bins: int) -> Operand:
    """Edges of bins of equal width from `range`, else from the least to the greatest element."""
    if node.has("range"):
        low, high = (node.constant(edge) for edge in np.array(node.arguments["range"], x.dtype.numpy).reshape(2, 1))
    elif x.type.size:
        low, high = _extremes(node, reshaped(node, x, (x.type.size,)))
    else:
        low, high = node.scalar(0, x.dtype), node.scalar(1, x.dtype)
    low, high = _apart(node, (low, high), 0.5)
    width = node.add("Div", node.add("Sub", high, low), node.scalar(bins, x.dtype))
    numbers = np.arange(bins + 1)
    steps = (node.constant(count.astype(x.dtype.numpy)) for count in (numbers, numbers[::-1]))
    from_low, from_high = (node.add("Mul", width, count) for count in steps)
    in_first_half = node.constant(numbers < (bins + 1) // 2)
    return node.add("Where", in_first_half, node.add("Add", low, from_low), node.add("Sub", high, from_high))


CONVERTERS: Mapping[str, Converter] = {
    "argsort": _arg_sort,
    "bucketize": _bucketize,
    "histc": _counts_in_even_bins,
    "histogram": _histogram,
    "kthvalue": _kth_value,
    "median": _median,
    "mode": _mode,
    "nanmedian": _median,
    "searchsorted": _search_sorted,
    "sort": _sort,
    "topk": _top_k,
}
