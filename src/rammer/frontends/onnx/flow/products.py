"""Products of rows that are counted, and what computes each element of a batch by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.counts.count import bare, cut, filled, one_count
from rammer.frontends.onnx.flow.rule import Rule, along, first_alone, ordinary
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value

_OF_BATCHES = (
    *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool"),
    *("GlobalLpPool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "LpPool", "MaxPool"),
    "SpaceToDepth",
)
"""Operators that compute each element along the first dimension by itself."""


def _matmul(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Rows of the first, columns of the second, or a batch of one are counted; or both, along the summed dimension."""
    a, b = node.operand(0), node.operand(1)
    summed = (a.rank - 1, max(b.rank - 2, 0))
    if a.count is not None and b.count is not None:
        if (a.count.axis, b.count.axis) != summed:
            raise node.refusal("so does that of the other input, along another dimension")
        one_count(node, [a, b])
        extent = min(a.shape[summed[0]], b.shape[summed[1]])
        return ordinary(node, converter, *(filled(node, cut(node, x, extent)) for x in (a, b)))
    x, own, other = (a, summed[0], b) if a.count is not None else (b, summed[1], a)
    if x.count is None or x.count.axis == own:
        raise node.refusal("the other input has another size along the dimension that is summed")
    rank = max(a.rank, b.rank) - (min(a.rank, b.rank) == 1)
    axis = x.count.axis
    if axis >= x.rank - 2:  # a row or a column
        behind = 0 if x is b or b.rank == 1 else 1
        return along(node, converter(node), rank - 1 - behind, x.count.value)
    place = axis - x.rank + other.rank
    if place >= 0 and other.shape[place] != 1:
        raise node.refusal(f"another input has {other.shape[place]} elements along that dimension")
    return along(node, converter(node), axis + max(0, other.rank - x.rank), x.count.value)


def _gemm(node: Node, converter: Converter) -> Sequence[Value | None]:
    """Rows of the first operand are counted; the bias is one for all."""
    _, count = first_alone(node)
    if count.axis != int(node.flag("transA")):
        raise node.refusal("the other input has another size along the dimension that is summed")
    bias = node.optional(2)
    if bias is not None and bias.rank == 2 and bias.shape[0] != 1:
        raise node.refusal("there is a bias for each row")
    return along(node, converter(node), 0, count.value)


def _of_batches(node: Node, converter: Converter) -> Sequence[Value | None]:
    _, count = first_alone(node)
    if count.axis or (node.has("training_mode") and node.flag("training_mode")):
        raise node.refusal("only that of the first dimension may, outside of training mode")
    return along(node, converter(node), 0, count.value)


def _roi_align(node: Node, converter: Converter) -> Sequence[Value | None]:
    """As many regions as numbers of their images."""
    x, regions, batches = (node.operand(position) for position in range(3))
    if x.count is not None or regions.count is None or batches.count is None or regions.count.axis:
        raise node.refusal("those of its regions and of the numbers of their images may alone")
    count = one_count(node, [regions, batches])
    extent = min(regions.shape[0], batches.shape[0])
    cut_ones = (bare(cut(node, one, extent)) for one in (regions, batches))
    return along(node, ordinary(node, converter, None, *cut_ones), 0, count)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_OF_BATCHES, _of_batches),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "RoiAlign": _roi_align,
}
