"""Elements picked by index. What lies outside is brought to the nearest end: a static program cannot refuse it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import broadcast_count, counted
from rammer.frontends.counts.made import nonzero
from rammer.frontends.moves import concatenated, converted, counted_from_front, part, reshaped, transposed
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_OF_LINES = ("self", "index", "src", "source")
"""Arguments whose elements lie along a dimension."""


def of_lines(convert: Converter) -> Converter:
    """The converter, given tensors without dimensions as lines of one element: PyTorch takes them as such."""

    def with_lines(node: Node) -> Result:
        given = {name: node.arguments.get(name) for name in _OF_LINES}
        points = {name: x for name, x in given.items() if isinstance(x, Operand) and x.rank == 0}
        if not points:
            return convert(node)
        lines = {name: reshaped(node, x, (1,)) for name, x in points.items()}
        result = convert(replace(node, arguments={**node.arguments, **lines}))
        assert isinstance(result, Operand)
        return reshaped(node, result, node.shape)

    return with_lines


def _embedding(node: Node) -> Result:
    return node.add("Gather", node.operand("weight"), as_positions(node, node.operand("indices")), axis=0)


def _index_select(node: Node) -> Result:
    x = node.operand("self")
    positions = as_positions(node, node.operand("index"))
    positions = reshaped(node, positions, (positions.type.size,))
    return node.add("Gather", x, positions, axis=node.dimension("dim", x.rank))


def _gather(node: Node) -> Result:
    x = node.operand("self")
    positions = as_positions(node, node.operand("index"))
    return node.add("GatherElements", x, positions, axis=node.dimension("dim", x.rank))


def as_positions(node: Node, x: Operand) -> Operand:
    """An operand of integers in an element type that positions have."""
    return x if x.dtype in (DType.INT32, DType.INT64) else converted(node, x, DType.INT64)


def _index(node: Node) -> Result:
    """Several tensors of positions broadcast together and pick from the dimensions they stand for at once."""
    indexed = indexed_dimensions(node)
    x = node.operand("self")
    if not indexed:
        return x
    if len(indexed) == 1:
        ((first, positions),) = indexed.items()
    else:
        x, first, positions = flattened(node, x, indexed)
    picked = node.add("Gather", x, positions, axis=first) if positions.type.size else part(node, x, first, 0, 0)
    count = broadcast_count(node, list(indexed.values()))
    return picked if count is None else counted(node, picked, first + count.axis, count.value)


def indexed_dimensions(node: Node) -> dict[int, Operand]:
    """The positions for each indexed dimension of an advanced index.

    A mask stands for as many dimensions as it has, with the positions along each where it holds.
    """
    found: dict[int, Operand] = {}
    dim = 0
    for index in node.optional_operands("indices"):
        if index is not None and index.dtype in (DType.BOOL, DType.UINT8):
            places, count = nonzero(node, index)
            for position, place in enumerate(places):
                found[dim + position] = counted(node, place, 0, count)
            dim += index.rank
            continue
        if index is not None:
            found[dim] = index.like(as_positions(node, index))
        dim += 1
    return found


def flattened(node: Node, x: Operand, indexed: Mapping[int, Operand]) -> tuple[Operand, int, Operand]:
    """The operand with its indexed dimensions merged into one, where that is, and positions along it.

    Dimensions that are not side by side come first, as in NumPy.
    """
    dims = sorted(indexed)
    first = dims[0]
    if dims != list(range(first, first + len(dims))):
        others = [dim for dim in range(x.rank) if dim not in indexed]
        x, first = transposed(node, x, [*dims, *others]), 0
    extents = x.shape[first : first + len(dims)]
    merged = (*x.shape[:first], math.prod(extents), *x.shape[first + len(dims) :])
    return reshaped(node, x, merged), first, _joint_positions(node, [indexed[dim] for dim in dims], extents)


def _joint_positions(node: Node, positions: Sequence[Operand], extents: Sequence[int]) -> Operand:
    total: Operand | None = None
    for dim, (index, extent) in enumerate(zip(positions, extents, strict=True)):
        place = counted_from_front(node, index, node.constant(np.array(extent, dtype=np.int64)))
        stride = math.prod(extents[dim + 1 :])
        if stride != 1:
            place = node.add("Mul", place, node.constant(np.array(stride, dtype=np.int64)))
        total = place if total is None else node.add("Add", total, place)
    assert total is not None
    return total


def _take(node: Node) -> Result:
    x = node.operand("self")
    return node.add("Gather", reshaped(node, x, (x.type.size,)), as_positions(node, node.operand("index")), axis=0)


def _embedding_bag(node: Node) -> Result:
    """Rows of each bag, summed, averaged or the greatest; a bag ends where the next one begins."""
    positions, offsets = node.operand("indices"), as_positions(node, node.operand("offsets"))
    rows = node.add("Gather", node.operand("weight"), as_positions(node, positions), axis=0)
    if any(node.used[1:]):
        raise node.unsupported("what an embedding bag gives beside its rows")
    if node.has("per_sample_weights"):
        weights = converted(node, node.operand("per_sample_weights"), rows.dtype)
        rows = node.add("Mul", rows, reshaped(node, weights, (weights.shape[0], 1)))
    bags, count = node.shape[0], positions.shape[0]
    begins = reshaped(node, part(node, offsets, 0, 0, bags), (bags, 1))
    end = reshaped(node, node.constant(np.array([count], dtype=np.int64)), (1,))
    rest = part(node, offsets, 0, 1, offsets.shape[0] - 1)
    ends = rest if node.flag("include_last_offset") else concatenated(node, [rest, end], 0)
    places = node.constant(np.arange(count, dtype=np.int64).reshape(1, -1))
    inside = node.add("LessOrEqual", begins, places)
    inside = node.add("And", inside, node.add("Less", places, reshaped(node, ends, (bags, 1))))
    if node.integer("padding_idx") >= 0:
        padding = node.constant(np.array(node.integer("padding_idx"), positions.dtype.numpy))
        inside = node.add("And", inside, node.add("Not", node.add("Equal", positions, padding)))
    return [_of_bags(node, rows, inside), None, None, None]


def _of_bags(node: Node, rows: Operand, inside: Operand) -> Operand:
    """What the rows `[m, d]` that are `inside [bags, m]` each bag come to: `[bags, d]`, zeros for an empty one."""
    mode = ("sum", "mean", "max")[node.integer("mode")]
    column = reshaped(node, inside, (*inside.shape, 1))
    zero = node.scalar(0, rows.dtype)
    counts = node.add("ReduceSum", node.add("Cast", inside, to=rows.dtype), axes=(1,), keepdims=True)
    if mode == "max":
        least = node.add("Where", column, rows, node.scalar(-math.inf, rows.dtype))
        found = node.add("ReduceMax", least, axes=(1,), keepdims=False)
        return node.add("Where", node.add("Equal", counts, zero), zero, found)
    total = node.add("ReduceSum", node.add("Where", column, rows, zero), axes=(1,), keepdims=False)
    return total if mode == "sum" else node.add("Div", total, node.add("Max", counts, node.scalar(1, rows.dtype)))


CONVERTERS: Mapping[str, Converter] = {
    "_embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag,
    "embedding": _embedding,
    "gather": of_lines(_gather),
    "index": _index,
    "index_select": of_lines(_index_select),
    "take": _take,
}
