"""Operators that write elements at indices: what is written at indices that do not count falls away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import bare, counted, cut, filled, one_count, there
from rammer.frontends.moves import counted_from_front
from rammer.frontends.onnx.converters.scatter import scatter_nd
from rammer.frontends.onnx.flow.picking import within
from rammer.frontends.onnx.flow.rule import Rule, along, ordinary
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value


def _written(node: Node) -> tuple[Operand, Operand]:
    """Indices and updates, of which as many count along the same dimension, or all.

    Raises:
        UnsupportedFeatureError: they are not counted alike.
    """
    indices, updates = node.operand(1), node.operand(2)
    if indices.count is None and updates.count is None:
        return indices, updates
    if indices.count is None or updates.count is None or indices.count.axis != updates.count.axis:
        raise node.refusal("its indices and updates are not counted along the same dimension")
    one_count(node, [indices, updates])
    extent = min(x.shape[indices.count.axis] for x in (indices, updates))
    return cut(node, indices, extent), cut(node, updates, extent)


def _scatter_elements(node: Node, converter: Converter) -> Sequence[Value | None]:
    data, (indices, updates) = node.operand(0), _written(node)
    axis = node.axis(node.integer("axis"), data.rank)
    count, inside = data.count, indices
    if count is not None and count.axis == axis:
        wrapped = counted_from_front(node, bare(indices), count.value)
        inside = wrapped if indices.count is None else counted(node, wrapped, indices.count.axis, indices.count.value)
    inside = filled(node, inside, data.shape[axis])
    results = ordinary(node, converter, bare(data), inside, bare(updates))
    return results if count is None else along(node, results, count.axis, count.value)


def _scatter_nd(node: Node, converter: Converter) -> Sequence[Value | None]:
    data, (indices, updates) = node.operand(0), _written(node)
    depth, count = indices.shape[-1] if indices.rank else 0, data.count
    inside = bare(indices)
    if count is not None:
        if count.axis >= depth:
            raise node.refusal("that dimension is one of what is written")
        inside = within(node, indices, count, count.axis)
    which = None
    if indices.count is not None:
        if indices.count.axis == indices.rank - 1:
            raise node.refusal("that dimension is one of tuples")
        which = there(node, indices, indices.count, indices.rank - 1)
    result = scatter_nd(node, bare(data), inside, bare(updates), which)
    return [result if count is None else counted(node, result, count.axis, count.value)]


RULES: Mapping[str, Rule] = {
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
}
