"""Operators that pick elements by index: gathers, one-hot codes and sequences turned around."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import counted_from_front, expanded, part, reshaped
from rammer.frontends.onnx.node import Converter, Node

_MOST_CLASSES = 1 << 28


def _gather(node: Node) -> Sequence[Operand]:
    """Gather and GatherElements."""
    x, indices = node.operand(0), node.operand(1)
    axis = node.axis(node.integer("axis"), x.rank)
    check_known(node, indices, x.shape[axis])
    return [node.add(node.op_type, x, indices, axis=axis)]


def _gather_nd(node: Node) -> Sequence[Operand]:
    """A gather from the flattened operand, at positions computed from the index tuples.

    With b batch dimensions and tuples of k indices, x is `[*batch, *indexed(k), *rest]` and the indices
    `[*batch, ..., k]`; negative indices count from the end.
    """
    x, indices, batch = node.operand(0), node.operand(1), node.integer("batch_dims")
    if not (0 <= batch < indices.rank and indices.shape[-1] > 0 and batch + indices.shape[-1] <= x.rank):
        raise node.invalid(f"indices {indices.type} with {batch} batch dimension(s) do not fit {x.type}")
    if indices.shape[:batch] != x.shape[:batch]:
        raise node.invalid(f"the batch dimensions of {x.type} and {indices.type} differ")
    depth = batch + indices.shape[-1]
    indexed, rest = x.shape[batch:depth], x.shape[depth:]
    positions = flat_positions(node, indices, indexed)
    if batch:
        count = math.prod(x.shape[:batch])
        first = np.arange(count, dtype=np.int64) * math.prod(indexed)
        shape = (*x.shape[:batch], *(1 for _ in positions.shape[batch:]))
        positions = node.add("Add", positions, node.constant(first.reshape(shape)))
    flat = reshaped(node, x, (math.prod(x.shape[:depth]), *rest))
    return [node.add("Gather", flat, positions, axis=0)]


def _one_hot(node: Node) -> Sequence[Operand]:
    """1 where an index equals the position along the new axis; an index outside gives only off values."""
    indices, depth, values = node.operand(0), node.known(1), node.operand(2)
    if depth.size != 1 or values.shape != (2,):
        raise node.invalid(f"depth needs one element and values two, not {depth.size} and {values.type}")
    if not 0 <= depth.item() <= _MOST_CLASSES:  # NaN included
        raise node.unsupported(f"a depth of {depth.item()}; {_MOST_CLASSES} are possible")
    count = int(depth.item())
    axis = node.axis(node.integer("axis"), indices.rank + 1)
    position_shape = (count, *(1 for _ in range(indices.rank - axis)))
    positions = node.constant(np.arange(count, dtype=np.int64).reshape(position_shape))
    wrapped = counted_from_front(node, indices, node.constant(np.array(count, dtype=np.int64)))
    column = reshaped(node, wrapped, (*indices.shape[:axis], 1, *indices.shape[axis:]))
    off, on = (reshaped(node, part(node, values, 0, position, 1), ()) for position in range(2))
    chosen = node.add("Where", node.add("Equal", column, positions), on, off)
    return [expanded(node, chosen, (*indices.shape[:axis], count, *indices.shape[axis:]))]


def flat_positions(node: Node, indices: Operand, extents: Sequence[int]) -> Operand:
    """The row-major position, int64, that each index tuple names among dimensions of these extents.

    Negative indices count from the end, those outside are brought to the nearest end.

    Raises:
        InvalidModelError: an index is known and outside.
    """
    check_known(node, indices, *extents)
    last = node.constant(np.array(extents, dtype=np.int64) - 1)
    wrapped = counted_from_front(node, indices, node.constant(np.array(extents, dtype=np.int64)))
    wrapped = node.add("Min", node.add("Max", wrapped, node.constant(np.array(0, dtype=np.int64))), last)
    strides = np.array([math.prod(extents[position + 1 :]) for position in range(len(extents))], dtype=np.int64)
    offsets = node.add("Mul", wrapped, node.constant(strides))
    return node.add("ReduceSum", offsets, axes=(indices.rank - 1,), keepdims=False)


def check_known(node: Node, indices: Operand, *extents: int) -> None:
    """Check indices that are known, along dimensions of these extents: one, or one for each column.

    Raises:
        InvalidModelError: one is outside.
    """
    if indices.array is None:
        return
    table = indices.array.astype(np.int64).reshape(-1, len(extents))
    for column, extent in zip(table.T, extents, strict=True):
        wrong = column[(column < -extent) | (column >= extent)]
        if wrong.size:
            raise node.invalid(f"index {wrong[0]} along a dimension of {extent} elements")


def _reverse_sequence(node: Node) -> Sequence[Operand]:
    x, lengths = node.operand(0), node.operand(1)
    batch, time = (node.axis(node.integer(name), x.rank) for name in ("batch_axis", "time_axis"))
    for length in () if lengths.array is None else node.known_integers(1):
        if not 0 <= length <= x.shape[time]:
            raise node.invalid(f"length {length} along a dimension of {x.shape[time]} elements")
    return [node.add("ReverseSequence", x, lengths, batch_axis=batch, time_axis=time)]


CONVERTERS: Mapping[str, Converter] = {
    "Gather": _gather,
    "GatherElements": _gather,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "ReverseSequence": _reverse_sequence,
}
