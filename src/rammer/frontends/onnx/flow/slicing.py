"""Slices of a dimension that is counted, and slices whose starts or ends are computed as sizes are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, part, strided
from rammer.frontends.onnx.converters.movement import sliced_along
from rammer.frontends.onnx.counts import counted, number, refusal, taken, vector
from rammer.frontends.onnx.flow.rule import Rule, bare, known, scalars
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value
from rammer.ir.types import DType


def _slice(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Along other dimensions as ever; of one, the elements between two positions that depend on the data."""
    x = node.operand(0)
    starts, ends = scalars(node, 1), scalars(node, 2)
    if starts is None or ends is None:
        return converter(node)
    axes, steps = sliced_along(node, x, len(starts), len(ends))
    own = None if x.count is None else x.count.axis
    ranges = list(zip(axes, starts, ends, steps, strict=True))
    open_ranges = [one for one in ranges if one[0] == own or one[1].array is None or one[2].array is None]
    if own is not None and any(axis != own for axis, *_ in open_ranges):
        raise refusal(node, "another dimension is cut where the model computes")
    if len(open_ranges) > 1:
        raise node.unsupported("more than one dimension that is cut where the model computes")
    rest = [one for one in ranges if one not in open_ranges]
    node.inputs = (
        bare(x),
        vector(node, [known(start) or 0 for _, start, _, _ in rest]),
        vector(node, [known(end) or 0 for _, _, end, _ in rest]),
        vector(node, [axis for axis, *_ in rest]),
        vector(node, [step for *_, step in rest]),
    )
    (result,) = node.tensors([value for value in converter(node) if value is not None])
    if own is not None and x.count is not None:
        result = counted(node, result, own, x.count.value)
    for axis, start, end, step in open_ranges:
        result = _cut(node, result, axis, start, end, step)
    return [result]


def _cut(node: Node, x: Operand, axis: int, start: Operand, end: Operand, step: int) -> Operand:
    """The elements between two positions of a dimension that is counted, or by positions that are computed."""
    extent = x.shape[axis]
    length = number(node, extent) if x.count is None else x.count.value
    begin, stop = known(start), known(end)
    if step < 0:
        if step < -1 or begin is None or stop is None or begin < -1 or 0 <= begin < extent or stop >= -extent:
            raise node.unsupported(
                f"steps of {step} along a dimension whose size depends on the data", "all of it may be turned around"
            )
        return counted(node, _from(node, x, axis, node.add("Sub", length, number(node, 1)), -1, extent), axis, length)
    first, last = _position(node, start, length), _position(node, end, length)
    size = node.add("Max", node.add("Sub", last, first), number(node, 0))
    most = min(extent, node.builder.most(size) or 0)
    if begin is not None and begin >= 0:
        begin = min(begin, extent)
        result = part(node, bare(x), axis, begin, min(most, extent - begin))
    else:
        result = _from(node, x, axis, first, 1, most if begin is None else min(most, -begin))
    if step > 1:
        result = strided(node, result, {axis: range(0, result.shape[axis], step)})
        size = node.add("Div", node.add("Add", size, number(node, step - 1)), number(node, step))
    return counted(node, result, axis, size)


def _position(node: Node, position: Operand, length: Operand) -> Operand:
    """A position from the front and within a length; a negative one counts from the end."""
    place, zero = converted(node, position, DType.INT64), number(node, 0)
    if node.builder.interval(place).least < 0:
        place = node.add("Where", node.add("Less", place, zero), node.add("Add", place, length), place)
        place = node.add("Max", place, zero)
    return node.add("Min", place, length)


def _from(node: Node, x: Operand, axis: int, first: Operand, step: int, size: int) -> Operand:
    """So many elements along a dimension, from a computed position on."""
    places = node.add("Add", first, node.constant(np.arange(size, dtype=np.int64) * step))
    return taken(node, bare(x), places, axis)


RULES: Mapping[str, Rule] = {"Slice": _slice}
