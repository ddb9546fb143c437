"""Small steps that converters of every front end take: other shapes, orders, parts and element types.

Each gives the operand itself where nothing changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.node import ModelNode
from rammer.ir.types import DType


def converted(node: ModelNode, x: Operand, dtype: DType) -> Operand:
    """The operand as another element type."""
    return x if x.dtype is dtype else node.add("Cast", x, to=dtype)


def reshaped(node: ModelNode, x: Operand, shape: Sequence[int]) -> Operand:
    """The operand with another shape of the same size."""
    return x if x.shape == tuple(shape) else node.add("Reshape", x, shape=tuple(shape))


def expanded(node: ModelNode, x: Operand, shape: Sequence[int]) -> Operand:
    """The operand broadcast to a shape."""
    return x if x.shape == tuple(shape) else node.add("Expand", x, shape=tuple(shape))


def transposed(node: ModelNode, x: Operand, perm: Sequence[int]) -> Operand:
    """The operand with its dimensions in another order."""
    return x if list(perm) == list(range(x.rank)) else node.add("Transpose", x, perm=tuple(perm))


def channels_first(node: ModelNode, x: Operand) -> Operand:
    """`[n, *spatial, c]` as `[n, c, *spatial]`."""
    return transposed(node, x, (0, x.rank - 1, *range(1, x.rank - 1)))


def channels_last(node: ModelNode, x: Operand) -> Operand:
    """`[n, c, *spatial]` as `[n, *spatial, c]`."""
    return transposed(node, x, (0, *range(2, x.rank), 1))


def part(node: ModelNode, x: Operand, axis: int, start: int, size: int) -> Operand:
    """`size` neighbouring elements along a dimension."""
    return strided(node, x, {axis: range(start, start + size)})


def element(node: ModelNode, x: Operand, axis: int, position: int) -> Operand:
    """The part at one position of a dimension, without it."""
    return reshaped(node, part(node, x, axis, position, 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


def split(node: ModelNode, x: Operand, axis: int, sizes: Sequence[int]) -> list[Operand]:
    """Parts one after the other along a dimension, of so many elements each."""
    ends = itertools.accumulate(sizes)
    return [part(node, x, axis, end - size, size) for end, size in zip(ends, sizes, strict=True)]


def strided(node: ModelNode, x: Operand, ranges: Mapping[int, range]) -> Operand:
    """The elements at the positions of a range along some dimensions, all along the others."""
    taken = [ranges.get(axis, range(extent)) for axis, extent in enumerate(x.shape)]
    if all(positions == range(extent) for positions, extent in zip(taken, x.shape, strict=True)):
        return x
    return node.add(
        "Slice",
        x,
        starts=tuple(positions.start for positions in taken),
        steps=tuple(positions.step for positions in taken),
        sizes=tuple(len(positions) for positions in taken),
    )


def concatenated(node: ModelNode, parts: Sequence[Operand], axis: int) -> Operand:
    """The operands one after the other along a dimension."""
    return parts[0] if len(parts) == 1 else node.add("Concat", *parts, axis=axis)


def stacked(node: ModelNode, parts: Sequence[Operand], axis: int) -> Operand:
    """Operands of one shape along a new dimension."""
    shape = parts[0].shape
    return concatenated(node, [reshaped(node, x, (*shape[:axis], 1, *shape[axis:])) for x in parts], axis)


def repeated(node: ModelNode, x: Operand, axis: int, times: int) -> Operand:
    """Each element several times in a row, with affine indices."""
    before, extent, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    column = reshaped(node, x, (*before, extent, 1, *after))
    return reshaped(node, expanded(node, column, (*before, extent, times, *after)), (*before, extent * times, *after))


def counted_from_front(node: ModelNode, positions: Operand, extents: Operand) -> Operand:
    """Positions as int64, negative ones counted from the end of `extents`, which broadcast."""
    positions = converted(node, positions, DType.INT64)
    if node.builder.interval(positions).least >= 0:
        return positions
    negative = node.add("Less", positions, node.constant(np.array(0, dtype=np.int64)))
    return node.add("Where", negative, node.add("Add", positions, extents), positions)
