"""Operators that write elements at indices: what is written at indices that do not count falls away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from rammer.frontends.builder import Count, Operand
from rammer.frontends.counts.count import bare, broadcast_count, filled, one_count
from rammer.frontends.counts.made import nonzero
from rammer.frontends.moves import part
from rammer.frontends.torch.converters.indexing import indexed_dimensions
from rammer.frontends.torch.flow.rule import Rule, counted_axis, ordinary
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType


def _scatter(node: Node, converter: Converter) -> Result:
    """An element for each index. No line has more of them than there are elements, or places, along it."""
    x, index = node.operand("self"), node.operand("index")
    axis, source = node.dimension("dim", x.rank), node.optional("src") if "src" in node.arguments else None
    for dim, extent in enumerate(index.shape):
        fits_places = dim == axis or extent <= x.shape[dim]
        if not fits_places or (source is not None and extent > source.shape[dim]):
            raise node.refusal(f"there may be {extent} indices along dimension {dim}")
    return ordinary(node, converter, index=filled(node, index, x.shape[axis]))


def _rows(node: Node, converter: Converter) -> Result:
    """A row for each index; rows are counted as those that they are written to.

    Eager PyTorch refuses other numbers of rows than of indices, so where one is known, the other one is it.
    """
    x, index = node.operand("self"), node.operand("index")
    axis, source = node.dimension("dim", x.rank), node.optional("source") if "source" in node.arguments else None
    if source is None:
        return ordinary(node, converter, index=filled(node, index, x.shape[axis]))
    _check_alike(node, x, source, axis)
    is_along = source.count is not None and source.count.axis == axis
    if is_along and index.count is not None:
        one_count(node, [index, source])
    elif is_along or index.count is not None:
        known = min(index.type.size, source.shape[axis]) if index.rank else 1
        index, source = part(node, bare(index), 0, 0, known), part(node, bare(source), axis, 0, known)
    return ordinary(node, converter, index=filled(node, index, x.shape[axis]), source=source)


def _check_alike(node: Node, x: Operand, source: Operand, axis: int) -> None:
    """What is written is counted as what it is written to, along other dimensions than one."""
    counts = [each.count if each.count is not None and each.count.axis != axis else None for each in (x, source)]
    places = {None if count is None else count.axis for count in counts}
    if len(places) > 1:
        raise node.refusal("what is written is not counted as what it is written to")
    if places != {None}:
        one_count(node, [x, source])


def _index_put(node: Node, converter: Converter) -> Result:
    x, values, indices = node.operand("self"), node.operand("values"), node.optional_operands("indices")
    held = [filled(node, each) if each is not None and each.dtype is DType.BOOL else each for each in indices]
    if len(held) == 1 and held[0] is not None and held[0].dtype is DType.BOOL:
        return _masked_put(node, converter, held[0])
    node.arguments = {**node.arguments, "self": bare(x), "indices": held}
    indexed = indexed_dimensions(node)
    if x.count is not None and x.count.axis in indexed:
        raise node.refusal("it is indexed along that dimension")
    count = broadcast_count(node, list(indexed.values()))
    places = max(index.rank for index in indexed.values())
    dims = sorted(indexed)
    first = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    others = [dim for dim in range(x.rank) if dim not in indexed]
    written = [*(x.shape[dim] for dim in others[:first]), *_common(indexed), *(x.shape[dim] for dim in others[first:])]
    counts = [] if count is None else [Count(axis=first + count.axis, value=count.value)]
    if x.count is not None:
        place = others.index(x.count.axis)
        counts.append(Count(axis=place + (places if place >= first else 0), value=x.count.value))
    if len(counts) > 1:
        raise node.refusal("what is written would be counted along two dimensions")
    whole = replace(x, type=replace(x.type, shape=tuple(written)), count=counts[0] if counts else None)
    broadcast_count(node, [whole, values])
    node.arguments = {**node.arguments, "values": bare(values)}
    return converter(node)


def _common(indexed: Mapping[int, Operand]) -> tuple[int, ...]:
    """The shape that positions broadcast to."""
    return np.broadcast_shapes(*(index.shape for index in indexed.values()))


def _masked_put(node: Node, converter: Converter, mask: Operand) -> Result:
    """One value where the mask holds, or a row for each place where it does, in order."""
    x, values, given = node.operand("self"), node.operand("values"), node.optional_operands("indices")[0]
    assert given is not None
    if counted_axis(node, "self") != (None if given.count is None else given.count.axis):
        raise node.refusal("the mask is not counted as what it is written to")
    if given.count is not None:
        one_count(node, [x, given])
    if values.rank <= x.rank - mask.rank:
        if values.count is not None:
            raise node.refusal("the value has to be of a known size")
    elif values.count is not None:
        (_, count), captured = nonzero(node, mask), node.captured["values"]
        assert isinstance(captured, torch.Tensor)
        if values.count.axis or not node.sizes.is_number(node, captured.shape[0], count):
            raise node.refusal("it is not known to be how often the mask holds")
    return ordinary(node, converter, indices=[mask])


def _masked_scatter(node: Node, converter: Converter) -> Result:
    """The mask is counted as the operand is; what does not count of the source comes behind what does."""
    x, mask = node.operand("self"), node.operand("mask")
    broadcast_count(node, [x, mask])
    if counted_axis(node, "source"):
        raise node.refusal("only that of the source's first dimension may")
    return ordinary(node, converter, mask=filled(node, mask))


def _part_scatter(node: Node, converter: Converter) -> Result:
    """Both are counted alike, along another dimension than the one of which a part is replaced."""
    x, source = node.operand("self"), node.operand("src")
    dim = node.dimension("dim", x.rank)
    own = counted_axis(node, "self")
    moved = None if own is None else own - (node.operator == "select_scatter" and own > dim)
    if own == dim or moved != counted_axis(node, "src"):
        raise node.refusal("what is written is not counted as what it is written to")
    one_count(node, [x, source])
    return ordinary(node, converter)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("index_add", "index_copy", "index_fill", "index_reduce"), _rows),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _scatter),
    **dict.fromkeys(("select_scatter", "slice_scatter"), _part_scatter),
    "index_put": _index_put,
    "masked_scatter": _masked_scatter,
}
