"""Values whose size depends on the data: what of them counts, and the steps that operators on them take.

What lies behind the elements that count is arbitrary, until the value is an output of the model: there it is 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rammer.errors import InvalidModelError
from rammer.frontends.builder import Count, FoldingBuilder, Operand
from rammer.frontends.intervals import range_of
from rammer.frontends.moves import concatenated, converted, part, reshaped
from rammer.frontends.node import ModelNode
from rammer.ir.graph import SourceLocation
from rammer.ir.types import DType

COUNT_SUFFIX = ".count"
"""Behind the name of an output, that of how many of its elements count."""


def counted(node: ModelNode, x: Operand, axis: int, count: Operand) -> Operand:
    """An operand of which so many elements along an axis count: just those where their number is known."""
    if count.array is not None:
        return part(node, bare(x), axis, 0, min(int(count.array), x.shape[axis]))
    node.builder.bound(count, 0, x.shape[axis])
    return replace(x, count=Count(axis=axis, value=count))


def bare(x: Operand) -> Operand:
    """An operand with all of its elements, whether they count or not."""
    return x if x.count is None else replace(x, count=None)


def cut(node: ModelNode, x: Operand, extent: int) -> Operand:
    """An operand with no more elements than so many along the dimension that is counted, where there are others."""
    if x.count is None or x.shape[x.count.axis] == extent:
        return x
    return replace(part(node, bare(x), x.count.axis, 0, extent), count=x.count)


def one_count(node: ModelNode, operands: Sequence[Operand]) -> Operand:
    """How many elements count of operands, where that is the same number of all of them.

    Raises:
        ModelError: it is not known to be.
    """
    counts = [x.count.value for x in operands if x.count is not None]
    if any(not node.builder.are_equal(counts[0], other) for other in counts[1:]):
        raise node.refusal("it is not known to be that of its other inputs")
    return counts[0]


def broadcast_count(node: ModelNode, operands: Sequence[Operand]) -> Count | None:
    """What counts of a tensor that operands broadcast to: each has as much along that dimension, or one element.

    None where all of each operand counts.

    Raises:
        ModelError: they are not known to be.
    """
    rank = max(x.rank for x in operands)
    sized = [(x, x.count.axis + rank - x.rank) for x in operands if x.count is not None]
    if not sized:
        return None
    axis = sized[0][1]
    if any(own != axis for _, own in sized):
        raise node.refusal("so does that of another input, along another dimension")
    count = one_count(node, [x for x, _ in sized])
    for x in operands:
        own = axis - rank + x.rank
        if x.count is None and own >= 0 and x.shape[own] != 1:
            raise node.refusal(f"another input has {x.shape[own]} elements along that dimension")
    return Count(axis=axis, value=count)


def known(operand: Operand) -> int | None:
    """An integer, where it is known."""
    return None if operand.array is None else int(operand.array.item())


def number(node: ModelNode, value: int) -> Operand:
    """An int64 constant."""
    return node.constant(np.array(value, np.int64))


def vector(node: ModelNode, values: Sequence[int]) -> Operand:
    """A constant vector of int64."""
    return node.constant(np.array(values, np.int64))


def is_below(node: ModelNode, extent: int, count: Operand) -> Operand:
    """Which positions of a vector come before a number of them."""
    return node.add("Less", vector(node, range(extent)), count)


def there(node: ModelNode, x: Operand, count: Count, rank: int | None = None) -> Operand:
    """What counts of an operand, as truth values that broadcast with it, or with what has another number of dimensions.

    Dimensions of other operands stand behind the operand's own.
    """
    extent = x.shape[count.axis]
    behind = (x.rank if rank is None else rank) - count.axis - 1
    return reshaped(node, is_below(node, extent, count.value), (extent, *(1 for _ in range(behind))))


def filled(node: ModelNode, x: Operand, fill: float | bool = 0) -> Operand:
    """An operand with a number behind what counts, all of whose elements may be read."""
    if x.count is None:
        return x
    value = node.constant(np.array(fill).astype(x.dtype.numpy))
    return node.add("Where", there(node, x, x.count), bare(x), value)


def neutral(node: ModelNode, x: Operand, fill: float) -> Operand:
    """An operand with a number behind what counts; of what has no infinity, the greatest or least there is."""
    if math.isfinite(fill) or x.dtype.is_float:
        return filled(node, x, fill)
    if x.dtype is DType.BOOL:
        return filled(node, x, fill > 0)
    limits = range_of(x.dtype)
    return filled(node, x, limits.most if fill > 0 else limits.least)


def holding(node: ModelNode, holds: Operand) -> tuple[Operand, Operand]:
    """Places of a vector of booleans that hold, in order and then arbitrary ones, and how many there are."""
    extent = holds.shape[0]
    if not extent:
        return vector(node, ()), number(node, 0)
    total = node.add("ReduceSum", converted(node, holds, DType.INT64), axes=(0,), keepdims=True)  # as exporters count
    node.builder.bound(total, 0, extent)
    return node.add("Places", running_total(node, holds)), reshaped(node, total, ())


def running_total(node: ModelNode, holds: Operand) -> Operand:
    """How many of a vector of booleans hold up to each one."""
    return node.add("CumSum", converted(node, holds, DType.INT64), axis=0, exclusive=False, reverse=False)


def taken(node: ModelNode, x: Operand, places: Operand, axis: int) -> Operand:
    """Slices at places, if there are any."""
    return node.add("Gather", x, places, axis=axis) if places.type.size else part(node, x, axis, 0, 0)


def one_of_two(node: ModelNode, condition: Operand, a: Operand, b: Operand) -> Operand | None:
    """The first operand where a scalar condition holds, else the second: they may differ in what counts of each.

    None where they differ in more.
    """
    axes = {x.count.axis for x in (a, b) if x.count is not None}
    if len(axes) != 1 or a.rank != b.rank or a.dtype is not b.dtype:
        return None
    (axis,) = axes
    extent = max(a.shape[axis], b.shape[axis])
    wide = [_widened(node, x, axis, extent) for x in (a, b)]
    if wide[0].type != wide[1].type:
        return None
    counts = [number(node, x.shape[axis]) if x.count is None else x.count.value for x in (a, b)]
    return counted(node, node.add("Branch", condition, *wide), axis, node.add("Branch", condition, *counts))


def _widened(node: ModelNode, x: Operand, axis: int, extent: int) -> Operand:
    """An operand with arbitrary elements behind it."""
    shape = [*x.shape[:axis], extent - x.shape[axis], *x.shape[axis + 1 :]]
    whole = bare(x)
    return concatenated(node, [whole, node.constant(np.zeros(shape, x.dtype.numpy))], axis) if shape[axis] else whole


def with_counts(
    builder: FoldingBuilder, outputs: Sequence[tuple[str, Operand]], where: str
) -> list[tuple[str, Operand]]:
    """The outputs, and behind them, named after each whose size depends on the data, how many elements count.

    Raises:
        InvalidModelError: an output has the name that such a number, or an element of a sequence, has.
    """
    counts = [(name + COUNT_SUFFIX, operand.count.value) for name, operand in outputs if operand.count is not None]
    whole = [*((name, cleared(builder, name, operand, where)) for name, operand in outputs), *counts]
    for name, times in Counter(name for name, _ in whole).items():
        if times > 1:
            raise InvalidModelError(
                f"an output is called '{name}', which the size or an element of another is", where=where
            )
    return whole


def cleared(builder: FoldingBuilder, name: str, output: Operand, where: str) -> Operand:
    """An output of the model with 0 behind what counts."""
    location = SourceLocation(model=where, node=name, op_type="Where")
    return filled(ModelNode(location=location, builder=builder), output)
