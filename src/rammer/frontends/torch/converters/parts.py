"""Parts of tensors: slices, splits, concatenations, pads, and tensors with a part replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.moves import (
    concatenated,
    converted,
    element,
    expanded,
    part,
    reshaped,
    split,
    stacked,
    strided,
)
from rammer.frontends.torch.node import Converter, Node, Result

PADS: Mapping[str, str] = {
    **{f"reflection_pad{rank}d": "reflect" for rank in (1, 2, 3)},
    **{f"replication_pad{rank}d": "edge" for rank in (1, 2, 3)},
}

SPLITS = (
    *("chunk", "split", "split_copy", "split_with_sizes", "split_with_sizes_copy"),
    *("tensor_split", "unsafe_split"),
)
"""Operators whose results' extents say all."""


def _slice(node: Node) -> Result:
    x = node.operand("self")
    dim = node.dimension("dim", x.rank)
    return strided(node, x, {dim: _range(node, x.shape[dim])})


def _range(node: Node, extent: int) -> range:
    """The positions of a slice, which PyTorch clamps as Python does."""
    return range(extent)[node.optional_integer("start") : node.optional_integer("end") : node.integer("step")]


def _select(node: Node) -> Result:
    """One position of a dimension, which goes."""
    x = node.operand("self")
    dim = node.dimension("dim", x.rank)
    return element(node, x, dim, node.axis(node.integer("index"), x.shape[dim]))


def _narrow(node: Node) -> Result:
    """Neighbouring positions of a dimension."""
    x = node.operand("self")
    dim = node.dimension("dim", x.rank)
    start = node.integer("start")
    return part(node, x, dim, start + x.shape[dim] if start < 0 else start, node.integer("length"))


def _split(node: Node) -> Result:
    """Into the extents of the results."""
    x = node.operand("self")
    dim = node.dimension("dim", x.rank)
    sizes = [0 if type_ is None else type_.shape[dim] for type_ in node.results]
    return split(node, x, dim, sizes)


def _unbind(node: Node) -> Result:
    x = node.operand("self")
    dim = node.dimension("dim", x.rank)
    return [element(node, x, dim, i) for i in range(x.shape[dim])]


def _cat(node: Node) -> Result:
    """Vectors without elements fit any shape, as in PyTorch."""
    tensors = node.operands("tensors")
    parts = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    dim = node.dimension("dim", parts[0].rank)
    return concatenated(node, [converted(node, x, node.dtype) for x in parts], dim)


def _stack(node: Node) -> Result:
    tensors = node.operands("tensors")
    dim = node.dimension("dim", tensors[0].rank + 1)
    return stacked(node, [converted(node, x, node.dtype) for x in tensors], dim)


def _constant_pad(node: Node) -> Result:
    x = node.operand("self")
    value = node.number("value")
    return _padded(node, x, node.integers("pad"), "constant", float(value) if x.dtype.is_float else value)


def _mirrored_pad(node: Node) -> Result:
    return _padded(node, node.operand("self"), node.integers("padding"), PADS[node.operator], 0.0)


def _pad(node: Node) -> Result:
    x, mode = node.operand("self"), node.text("mode")
    value = node.number("value") if node.has("value") else 0
    kinds = {"circular": "wrap", "constant": "constant", "reflect": "reflect", "replicate": "edge"}
    return _padded(node, x, node.integers("pad"), kinds[mode], float(value) if x.dtype.is_float else value)


def _padded(node: Node, x: Operand, pads: Sequence[int], mode: str, value: float) -> Operand:
    """PyTorch counts pads from the last dimension; negative ones cut off.

    An edge is repeated even where the other end cuts off more than there is, and the edge with it.
    """
    begins, ends = [0] * x.rank, [0] * x.rank
    for position in range(len(pads) // 2):
        begins[-1 - position], ends[-1 - position] = pads[2 * position], pads[2 * position + 1]
    for dim, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        extent = x.shape[dim]
        if mode == "edge" and min(begin, end) < 0 and 0 < -min(begin, end) - extent + 1 <= max(begin, end):
            edge = part(node, x, dim, 0 if begin > 0 else extent - 1, 1)
            x = expanded(node, edge, (*x.shape[:dim], extent + begin + end, *x.shape[dim + 1 :]))
            begins[dim] = ends[dim] = 0
    if not any((*begins, *ends)):
        return x
    return node.add("Pad", x, mode=mode, pads=(*begins, *ends), value=value)


def _slice_scatter(node: Node) -> Result:
    """The tensor with a slice replaced."""
    x, source = node.operand("self"), node.typed("src")
    dim = node.dimension("dim", x.rank)
    return replaced(node, x, dim, _range(node, x.shape[dim]), source)


def _select_scatter(node: Node) -> Result:
    """The tensor with one position of a dimension replaced."""
    x = node.operand("self")
    dim = node.dimension("dim", x.rank)
    index = node.axis(node.integer("index"), x.shape[dim])
    row = reshaped(node, node.typed("src"), (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return replaced(node, x, dim, range(index, index + 1), row)


def replaced(node: Node, x: Operand, dim: int, positions: range, source: Operand) -> Operand:
    """The tensor with the elements at some positions of a dimension replaced by those of `source`."""
    if not positions:
        return x
    if positions.step != 1:
        pieces = [part(node, source, dim, i, 1) for i in range(len(positions))]
        for position, piece in zip(positions, pieces, strict=True):
            x = replaced(node, x, dim, range(position, position + 1), piece)
        return x
    before = part(node, x, dim, 0, positions.start)
    after = part(node, x, dim, positions.stop, x.shape[dim] - positions.stop)
    return concatenated(node, [piece for piece in (before, source, after) if piece.shape[dim]], dim)


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(PADS, _mirrored_pad),
    **dict.fromkeys(SPLITS, _split),
    "cat": _cat,
    "constant_pad_nd": _constant_pad,
    "narrow_copy": _narrow,
    "pad": _pad,
    "select": _select,
    "select_copy": _select,
    "select_scatter": _select_scatter,
    "slice": _slice,
    "slice_copy": _slice,
    "slice_scatter": _slice_scatter,
    "stack": _stack,
    "unbind": _unbind,
    "unbind_copy": _unbind,
}
