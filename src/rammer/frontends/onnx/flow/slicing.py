"""Slices of a dimension that is counted, and slices whose starts or ends are computed as sizes are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.counts.count import bare, counted, known, vector
from rammer.frontends.counts.moves import between
from rammer.frontends.onnx.converters.movement import sliced_along
from rammer.frontends.onnx.flow.rule import Rule, scalars
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value


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
        raise node.refusal("another dimension is cut where the model computes")
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
        result = between(node, result, axis, start, end, step)
    return [result]


RULES: Mapping[str, Rule] = {"Slice": _slice}
