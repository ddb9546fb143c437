"""Operators that move elements: the dimension that is counted stays one of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial, reduce

from rammer.frontends.builder import Count, Operand
from rammer.frontends.moves import concatenated, part, reshaped
from rammer.frontends.onnx.converters.movement import flattened_from
from rammer.frontends.onnx.counts import counted, holding, is_below, number, refusal, taken, vector
from rammer.frontends.onnx.flow.rule import Rule, along, bare, cut, first_alone, known, one_count, ordinary, scalars
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value


def _transpose(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, count = first_alone(node)
    results = converter(node)
    perm = node.integers("perm") or tuple(reversed(range(x.rank)))
    return along(node, results, perm.index(count.axis), count.value)


def _squeeze(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Which dimensions go has to be said: that of one element may be the one that is counted."""
    x, count = first_alone(node)
    if node.optional(1) is None:
        raise refusal(node, "name the dimensions that go")
    axes = node.axes(node.known_integers(1), x.rank)
    if count.axis in axes:
        raise refusal(node, "that dimension may not go")
    return along(node, converter(node), count.axis - sum(axis < count.axis for axis in axes), count.value)


def _unsqueeze(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, count = first_alone(node)
    wanted = node.known_integers(1)
    axes = node.axes(wanted, x.rank + len(wanted))
    kept = [dim for dim in range(x.rank + len(wanted)) if dim not in axes]
    return along(node, converter(node), kept[count.axis], count.value)


def _split(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, count = first_alone(node)
    if node.axis(node.integer("axis"), x.rank) == count.axis:
        raise refusal(node, "it is split along that dimension")
    return along(node, converter(node), count.axis, count.value)


def _tile(node: Node, converter: Converter) -> Sequence[Value | None]:
    _, count = first_alone(node)
    results = converter(node)
    if node.known_integers(1)[count.axis] != 1:
        raise refusal(node, "it is repeated along that dimension")
    return along(node, results, count.axis, count.value)


def _pad(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, count = first_alone(node)
    results = converter(node)
    pads = node.known_integers(1)
    axes = tuple(range(x.rank)) if node.optional(3) is None else node.axes(node.known_integers(3), x.rank)
    if any(pad and axis == count.axis for pad, axis in zip(pads, (*axes, *axes), strict=True)):
        raise refusal(node, "it is padded along that dimension")
    return along(node, results, count.axis, count.value)


def _concat(node: Node, converter: Converter) -> Sequence[Value | None]:
    return [joined(node, node.operands, node.axis(node.integer("axis"), node.operand(0).rank))]


def joined(node: Node, operands: Sequence[Operand], axis: int) -> Operand:
    """Operands one after the other along a dimension, some of which are counted.

    Along the counted dimension, what counts of each comes before what counts of the next.

    Raises:
        UnsupportedFeatureError: they are counted along several dimensions, or not all alike along another one.
    """
    sized = [(x, x.count.axis) for x in operands if x.count is not None]
    if all(own == axis for _, own in sized):
        return _one_after_the_other(node, operands, axis)
    if len(sized) < len(operands) or len({own for _, own in sized}) > 1:
        raise refusal(node, "not all of its inputs are counted along the same dimension")
    count, own = one_count(node, operands), sized[0][1]
    extent = min(x.shape[own] for x in operands)
    return counted(node, concatenated(node, [bare(cut(node, x, extent)) for x in operands], axis), own, count)


def _one_after_the_other(node: Node, parts: Sequence[Operand], axis: int) -> Operand:
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


def _flatten(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, count = first_alone(node)
    axis = flattened_from(node, x)
    if axis <= count.axis:
        return [_reshaped(node, x, count, (math.prod(x.shape[:axis]),), ())]
    return [_reshaped(node, x, count, (), (math.prod(x.shape[axis:]),))]


def _reshape(node: Node, converter: Converter) -> Sequence[Value | None]:
    """The extent that is counted is -1, a 0 that keeps it, or computed; if it is not -1, another extent may be."""
    x, wanted = node.operand(0), scalars(node, 1)
    if wanted is None:
        return converter(node)
    keeps = not (node.has("allowzero") and node.flag("allowzero"))
    target = [known(extent) for extent in wanted]
    if x.count is None:
        shape = [-1 if extent is None else extent for extent in target]
        if shape.count(-1) > 1:
            raise node.unsupported("a shape that leaves several extents open", "one may be computed, or be -1")
        return ordinary(node, converter, None, vector(node, shape))
    for place, extent in enumerate(target):
        if extent == 0 and keeps and place < x.rank:
            target[place] = None if place == x.count.axis else x.shape[place]
    open_places = [place for place, extent in enumerate(target) if extent is None]
    rest = [place for place, extent in enumerate(target) if extent == -1]
    if len(open_places) > 1 or len(rest) > 1 or not open_places + rest:
        raise refusal(node, "its shape does not say which dimension is the one that is counted")
    (place,) = open_places or rest
    extents = [1 if extent is None else extent for extent in target]
    if open_places and rest:
        same = wanted[place].array is not None or node.builder.are_equal(wanted[place], x.count.value)
        others = math.prod(extent for extent in extents if extent != -1)
        size = math.prod(extent for dim, extent in enumerate(x.shape) if dim != x.count.axis)
        if not same or not others or size % others:
            raise refusal(node, "its shape does not say which dimension is the one that is counted")
        extents[rest[0]] = size // others
    return [_reshaped(node, x, x.count, extents[:place], extents[place + 1 :])]


def _reshaped(node: Node, x: Operand, count: Count, before: Sequence[int], behind: Sequence[int]) -> Operand:
    """The operand with other extents before and behind the dimension that is counted.

    What counts is the beginning of each block of elements with the same position before that dimension, whose shape
    may change.
    """
    old, new = math.prod(x.shape[count.axis + 1 :]), math.prod(behind)
    if math.prod(before) != math.prod(x.shape[: count.axis]) or not new:
        raise refusal(node, "that dimension does not stay one of its own")
    unit = new // math.gcd(old, new)  # so many elements, or a multiple, are whole rows of the result
    extent = x.shape[count.axis] - x.shape[count.axis] % unit
    flat = reshaped(node, part(node, bare(x), count.axis, 0, extent), (*before, extent * old // new, *behind))
    size = node.add("Div", node.add("Mul", count.value, number(node, old * unit // new)), number(node, unit))
    return counted(node, flat, len(before), size)


RULES: Mapping[str, Rule] = {
    "Concat": _concat,
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
