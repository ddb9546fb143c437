"""Operators that pick elements by index: as many as there are indices that count, of what counts of the operand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Count, Operand
from rammer.frontends.counts.count import bare, cut, one_count
from rammer.frontends.moves import concatenated, counted_from_front, part
from rammer.frontends.onnx.flow.rule import Rule, along, first_alone, ordinary
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import Value


def _gather(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, indices = node.operand(0), node.operand(1)
    axis = node.axis(node.integer("axis"), x.rank)
    results = {axis + indices.count.axis: indices.count.value} if indices.count is not None else {}
    if x.count is not None and x.count.axis == axis:
        indices = counted_from_front(node, bare(indices), x.count.value)
    elif x.count is not None:
        results[x.count.axis + (indices.rank - 1 if x.count.axis > axis else 0)] = x.count.value
    return _counted(node, converter, x, indices, results)


def _gather_elements(node: Node, converter: Converter) -> Sequence[Value | None]:
    """The result has the shape of the indices; along other dimensions than the one picked along, both are counted."""
    x, indices = node.operand(0), node.operand(1)
    axis = node.axis(node.integer("axis"), x.rank)
    results = {} if indices.count is None else {indices.count.axis: indices.count.value}
    if x.count is not None and x.count.axis == axis:
        indices = counted_from_front(node, bare(indices), x.count.value)
    elif x.count is not None:
        if indices.count is None or indices.count.axis != x.count.axis:
            raise node.refusal("the other input has another size along that dimension")
        one_count(node, [x, indices])
        extent = min(x.shape[x.count.axis], indices.shape[x.count.axis])
        x, indices = cut(node, x, extent), cut(node, indices, extent)
    return _counted(node, converter, x, indices, results)


def _gather_nd(node: Node, converter: Converter) -> Sequence[Value | None]:
    x, indices, batch = node.operand(0), node.operand(1), node.integer("batch_dims")
    depth = batch + indices.shape[-1] if indices.rank else 0
    results: dict[int, Operand] = {}
    if indices.count is not None:
        if indices.count.axis == indices.rank - 1 or indices.count.axis < batch:
            raise node.refusal("that dimension is one of tuples, or of a batch")
        results[indices.count.axis] = indices.count.value
    if x.count is not None and x.count.axis >= depth:
        results[x.count.axis - depth + indices.rank - 1] = x.count.value
    elif x.count is not None:
        if x.count.axis < batch:
            raise node.refusal("that dimension is one of a batch")
        indices = within(node, indices, x.count, x.count.axis - batch)
    return _counted(node, converter, x, indices, results)


def _counted(
    node: Node, converter: Converter, x: Operand, indices: Operand, results: Mapping[int, Operand]
) -> Sequence[Value | None]:
    if len(results) > 1:
        raise node.refusal("the result would be counted along two dimensions")
    picked = ordinary(node, converter, bare(x), bare(indices))
    for axis, count in results.items():
        picked = along(node, picked, axis, count)
    return picked


def within(node: Node, indices: Operand, count: Count, column: int) -> Operand:
    """Tuples of indices of which one counts from the end of what counts, if it is negative."""
    last, columns = indices.rank - 1, indices.shape[-1]
    whole = bare(indices)
    parts = [
        part(node, whole, last, 0, column),
        counted_from_front(node, part(node, whole, last, column, 1), count.value),
        part(node, whole, last, column + 1, columns - column - 1),
    ]
    return concatenated(node, [one for one in parts if one.shape[last]], last)


def _one_hot(node: Node, converter: Converter) -> Sequence[Value | None]:
    indices, count = first_alone(node)
    axis = node.axis(node.integer("axis"), indices.rank + 1)
    return along(node, converter(node), count.axis + (axis <= count.axis), count.value)


RULES: Mapping[str, Rule] = {
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
}
