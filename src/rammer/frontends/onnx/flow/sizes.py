"""Sizes that depend on the data as numbers, and what is made as large as such numbers say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import bare, counted, known, number, vector
from rammer.frontends.moves import concatenated, converted, reshaped
from rammer.frontends.onnx.flow.rule import Rule, along, first_alone, ordinary, scalars, sized
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value
from rammer.ir.types import DType

_MOST_ELEMENTS = 1 << 28
"""So long a computed range may be."""


def _shape(node: Node, converter: Converter) -> Sequence[Value | None]:
    """The count stands in the place of its dimension."""
    x, count = first_alone(node)
    start = node.integer("start") if node.has("start") else 0
    end = node.integer("end") if node.has("end") else x.rank
    extents = [count.value if dim == count.axis else number(node, extent) for dim, extent in enumerate(x.shape)]
    wanted = extents[start:end]
    if count.value not in wanted:
        return converter(node)
    return [concatenated(node, [reshaped(node, extent, (1,)) for extent in wanted], 0)]


def _size(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, count = first_alone(node)
    others = math.prod(extent for dim, extent in enumerate(x.shape) if dim != count.axis)
    return [node.add("Mul", count.value, number(node, others))]


def _constant_of_shape(node: Node, converter: Converter) -> Sequence[Value | None]:
    shape = scalars(node, 0)
    if shape is None:
        return converter(node)
    place, greatest = _greatest(node, shape)
    return sized(node, ordinary(node, converter, greatest), place, shape[place])


def _expand(node: Node, converter: Converter) -> Sequence[Value | None]:
    """A dimension that is counted stays as it is; one of a single element is repeated as often as a number says."""
    x, shape = node.operand(0), scalars(node, 1)
    if shape is None:
        return converter(node)
    rank = max(x.rank, len(shape))
    if x.count is None:
        place, greatest = _greatest(node, shape)
        own = place - len(shape) + x.rank
        if own >= 0 and x.shape[own] != 1:
            raise node.unsupported(f"{x.type} expanded along dimension {own}, as far as the model computes")
        return sized(node, ordinary(node, converter, None, greatest), place - len(shape) + rank, shape[place])
    place = x.count.axis - x.rank + len(shape)
    target = [known(extent) for extent in shape]
    if place >= 0:
        if target[place] != 1 and not node.builder.are_equal(shape[place], x.count.value):
            raise node.refusal("it is expanded along that dimension")
        target[place] = 1
    if None in target:
        raise node.refusal("another dimension is expanded, as far as the model computes")
    wide = ordinary(node, converter, bare(x), vector(node, [extent or 0 for extent in target]))
    return along(node, wide, x.count.axis - x.rank + rank, x.count.value)


def _greatest(node: Node, shape: Sequence[Operand]) -> tuple[int, Operand]:
    """The place of the one extent of a shape that is computed, and the shape with what that is at most.

    Raises:
        UnsupportedFeatureError: several are.
    """
    places = [place for place, extent in enumerate(shape) if extent.array is None]
    if len(places) != 1:
        raise node.unsupported("a shape of which the model computes several extents", "one is possible")
    return places[0], vector(node, [node.builder.most(extent) or 0 for extent in shape])


def _range(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Of integers from a start by a step that are known, to a limit that is computed and has a bound."""
    start, limit, delta = (node.operand(position) for position in range(3))
    first, step = (None if one.array is None else one.array.reshape(-1) for one in (start, delta))
    most = node.builder.most(limit)
    if first is None or step is None or most is None or not (first.size == step.size == limit.type.size == 1):
        return converter(node)
    begin, by = int(first[0]), int(step[0])
    if limit.dtype.is_float or by < 1:
        return converter(node)
    extent = max(0, -(-(most - begin) // by))
    if extent > _MOST_ELEMENTS:
        raise node.unsupported(f"a range of up to {extent} elements; {_MOST_ELEMENTS} are possible")
    left = node.add("Add", converted(node, reshaped(node, limit, ()), DType.INT64), number(node, by - 1 - begin))
    size = node.add("Div", node.add("Max", left, number(node, 0)), number(node, by))
    numbers = node.constant((begin + np.arange(extent) * by).astype(limit.dtype.numpy))
    return [counted(node, numbers, 0, size)]


RULES: Mapping[str, Rule] = {
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
}
