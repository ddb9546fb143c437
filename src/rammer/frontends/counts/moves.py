"""Parts, rows and blocks of operands of which a number of elements counts, and such operands one after the other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial, reduce

import numpy as np

from rammer.frontends.builder import Count, Operand
from rammer.frontends.counts.count import bare, counted, cut, holding, is_below, known, number, one_count, taken
from rammer.frontends.moves import concatenated, converted, part, reshaped, strided
from rammer.frontends.node import ModelNode
from rammer.ir.types import DType


def joined(node: ModelNode, operands: Sequence[Operand], axis: int) -> Operand:
    """Operands one after the other along a dimension, some of which are counted.

    Along the counted dimension, what counts of each comes before what counts of the next.

    Raises:
        ModelError: they are counted along several dimensions, or not all alike along another one.
    """
    sized = [(x, x.count.axis) for x in operands if x.count is not None]
    if all(own == axis for _, own in sized):
        return _one_after_the_other(node, operands, axis)
    if len(sized) < len(operands) or len({own for _, own in sized}) > 1:
        raise node.refusal("not all of its inputs are counted along the same dimension")
    count, own = one_count(node, operands), sized[0][1]
    extent = min(x.shape[own] for x in operands)
    return counted(node, concatenated(node, [bare(cut(node, x, extent)) for x in operands], axis), own, count)


def _one_after_the_other(node: ModelNode, parts: Sequence[Operand], axis: int) -> Operand:
    """What counts of all, gathered unless only the last one has others behind."""
    whole = concatenated(node, [bare(x) for x in parts], axis)
    extents = [x.shape[axis] for x in parts]
    counts = [number(node, x.shape[axis]) if x.count is None else x.count.value for x in parts]
    total = reduce(partial(node.add, "Add"), counts)
    if any(x.count is not None for x in parts[:-1]):
        holds = [is_below(node, extent, count) for extent, count in zip(extents, counts, strict=True)]
        places, _ = holding(node, concatenated(node, holds, 0))
        whole = taken(node, whole, places, axis)
    return counted(node, whole, axis, total)


def in_blocks(node: ModelNode, x: Operand, count: Count, before: Sequence[int], behind: Sequence[int]) -> Operand:
    """The operand with other extents before and behind the dimension that is counted.

    What counts is the beginning of each block of elements with the same position before that dimension, whose shape
    may change.

    Raises:
        ModelError: the dimension does not stay one of its own.
    """
    old, new = math.prod(x.shape[count.axis + 1 :]), math.prod(behind)
    if math.prod(before) != math.prod(x.shape[: count.axis]) or not new:
        raise node.refusal("that dimension does not stay one of its own")
    unit = new // math.gcd(old, new)  # so many elements, or a multiple, are whole rows of the result
    extent = x.shape[count.axis] - x.shape[count.axis] % unit
    flat = reshaped(node, part(node, bare(x), count.axis, 0, extent), (*before, extent * old // new, *behind))
    size = node.add("Div", node.add("Mul", count.value, number(node, old * unit // new)), number(node, unit))
    return counted(node, flat, len(before), size)


def between(node: ModelNode, x: Operand, axis: int, start: Operand, end: Operand, step: int) -> Operand:
    """The elements between two positions of a dimension that is counted, or by positions that are computed.

    Raises:
        ModelError: a step is negative, and not all elements are turned around.
    """
    extent = x.shape[axis]
    length = number(node, extent) if x.count is None else x.count.value
    begin, stop = known(start), known(end)
    if step < 0:
        if step < -1 or begin is None or stop is None or begin < -1 or 0 <= begin < extent or stop >= -extent:
            raise node.unsupported(
                f"steps of {step} along a dimension whose size depends on the data", "all of it may be turned around"
            )
        return counted(
            node, run_from(node, x, axis, node.add("Sub", length, number(node, 1)), -1, extent), axis, length
        )
    first, last = place_in(node, start, length), place_in(node, end, length)
    size = node.add("Max", node.add("Sub", last, first), number(node, 0))
    most = min(extent, node.builder.most(size) or 0)
    if begin is not None and begin >= 0:
        begin = min(begin, extent)
        result = part(node, bare(x), axis, begin, min(most, extent - begin))
    else:
        result = run_from(node, x, axis, first, 1, most if begin is None else min(most, -begin))
    if step > 1:
        result = strided(node, result, {axis: range(0, result.shape[axis], step)})
        size = node.add("Div", node.add("Add", size, number(node, step - 1)), number(node, step))
    return counted(node, result, axis, size)


def place_in(node: ModelNode, position: Operand, length: Operand) -> Operand:
    """A position from the front and within a length; a negative one counts from the end."""
    place, zero = converted(node, position, DType.INT64), number(node, 0)
    if node.builder.interval(place).least < 0:
        place = node.add("Where", node.add("Less", place, zero), node.add("Add", place, length), place)
        place = node.add("Max", place, zero)
    return node.add("Min", place, length)


def run_from(node: ModelNode, x: Operand, axis: int, first: Operand, step: int, size: int) -> Operand:
    """So many elements along a dimension, from a computed position on."""
    places = node.add("Add", first, node.constant(np.arange(size, dtype=np.int64) * step))
    return taken(node, bare(x), places, axis)
