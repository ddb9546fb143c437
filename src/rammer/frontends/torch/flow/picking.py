"""Operators that pick elements by index: as many as there are indices that count, of what counts of the operand."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.frontends.counts.count import bare, broadcast_count, filled
from rammer.frontends.moves import counted_from_front
from rammer.frontends.torch.converters.indexing import indexed_dimensions
from rammer.frontends.torch.flow.rule import Rule, only, ordinary
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType


def _index(node: Node, converter: Converter) -> Result:
    """Of a mask that is counted nothing else holds; negative positions count from the end of what counts."""
    x, indices = node.operand("self"), node.optional_operands("indices")
    held = [filled(node, each) if each is not None and each.dtype is DType.BOOL else each for each in indices]
    node.arguments = {**node.arguments, "self": bare(x), "indices": held}
    indexed = indexed_dimensions(node)
    if x.count is not None and x.count.axis in indexed:
        own = indexed[x.count.axis]
        indexed[x.count.axis] = own.like(counted_from_front(node, own, x.count.value))
    node.arguments = {**node.arguments, "indices": [indexed.get(dim) for dim in range(x.rank)]}
    broadcast_count(node, list(indexed.values()))
    return converter(node)


def _gather(node: Node, converter: Converter) -> Result:
    """Lines are counted alike."""
    x, index = node.operand("self"), node.operand("index")
    axis = node.dimension("dim", x.rank)
    if x.count is not None and x.count.axis != axis:
        broadcast_count(node, [x, index])
    return ordinary(node, converter)


def _masked_select(node: Node, converter: Converter) -> Result:
    x, mask = node.operand("self"), node.operand("mask")
    count = broadcast_count(node, [x, mask])
    if count is not None and mask.count is None:
        raise node.refusal("its mask is one for all elements along that dimension")
    return ordinary(node, converter, mask=filled(node, mask))


RULES: Mapping[str, Rule] = {
    "bucketize": only("self")(ordinary),
    "embedding": only("indices")(ordinary),
    "gather": _gather,
    "index": _index,
    "index_select": ordinary,
    "masked_select": _masked_select,
    "searchsorted": only("self")(ordinary),
    "take": only("index")(ordinary),
}
