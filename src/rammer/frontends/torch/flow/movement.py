"""Operators that move elements: the dimension that is counted stays one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import bare, broadcast_count, filled, number, one_count
from rammer.frontends.counts.moves import between, in_blocks, joined, place_in, run_from
from rammer.frontends.moves import converted, part, reshaped
from rammer.frontends.torch.converters.movement import VIEWS
from rammer.frontends.torch.converters.parts import PADS, SPLITS
from rammer.frontends.torch.flow.rule import Rule, as_result, counted_axis, ordinary
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.frontends.torch.private import formula_of

_PERMUTATIONS = ("permute", "permute_copy", "t", "t_copy", "transpose", "transpose_copy")


def _view(node: Node, converter: Converter) -> Result:
    x, count = node.operand("self"), as_result(node).count
    if x.count is None or count is None:
        raise node.refusal("its shape does not say which dimension is the one that is counted")
    if node.dtype is not x.dtype:
        return converter(node)  # which says that it is not possible
    if node.operator.startswith("squeeze"):
        if not node.has("dim"):
            raise node.refusal("name the dimensions that go")
        if x.count.axis in node.dimensions("dim", x.rank):
            raise node.refusal("that dimension may not go")
    return bare(in_blocks(node, x, x.count, node.shape[: count.axis], node.shape[count.axis + 1 :]))


def _expand(node: Node, converter: Converter) -> Result:
    """A dimension that is counted stays as it is; one of a single element is repeated as often as a number says."""
    broadcast_count(node, [as_result(node), node.operand("src" if "src" in node.arguments else "self")])
    return ordinary(node, converter)


def _slice(node: Node, converter: Converter) -> Result:
    """The elements between two positions of a dimension that is counted, or by positions that are computed."""
    x, ends = node.operand("self"), [node.arguments[name] for name in ("start", "end")]
    axis = node.dimension("dim", x.rank)
    is_computed = any(isinstance(end, Operand) for end in ends)
    if counted_axis(node, "self") != axis and not is_computed:
        return ordinary(node, converter)
    if x.count is not None and x.count.axis != axis:
        raise node.refusal("another dimension is cut where the model computes")
    start, end = (_scalar(node, given, default) for given, default in zip(ends, (0, _FAR), strict=True))
    begin, stop = (node.captured[name] for name in ("start", "end"))
    wanted = None if stop is None else stop - (0 if begin is None else begin)  # type: ignore[operator]
    return _between(node, x, axis, start, end, node.integer("step"), wanted)


def _between(
    node: Node, x: Operand, axis: int, start: Operand, end: Operand, step: int, wanted: object, result: int = 0
) -> Operand:
    """The elements between two positions, as a result of the call, which has as many in PyTorch as are wanted.

    Where another number is captured, PyTorch may have taken it to be that of another operand.
    """
    made, type_ = node.made[result], node.results[result]
    assert isinstance(made, torch.Tensor)
    size = formula_of(made.shape[axis])
    is_wanted = isinstance(wanted, int | torch.SymInt) and step == 1 and formula_of(wanted) == size
    if is_wanted and type_ is not None and not node.sizes.axes(node, made):
        place = place_in(node, start, size_of(node, x, axis))
        return run_from(node, x, axis, place, 1, type_.shape[axis])
    found = between(node, x, axis, start, end, step)
    return bare(found) if is_wanted or size.operands else found


def size_of(node: Node, x: Operand, axis: int) -> Operand:
    """How many elements count along a dimension, the only one of which that may depend on the data."""
    return number(node, x.shape[axis]) if x.count is None else x.count.value


_FAR = 1 << 62
"""An end behind all others."""


def _scalar(node: Node, given: object, default: int) -> Operand:
    if isinstance(given, Operand):
        return given
    return number(node, min(given, _FAR) if isinstance(given, int) else default)


def _select(node: Node, converter: Converter) -> Result:
    """One position of a dimension, which goes; it may be computed, and counts from the end of what counts."""
    x, index = node.operand("self"), node.arguments["index"]
    axis = node.dimension("dim", x.rank)
    is_along = counted_axis(node, "self") == axis
    if isinstance(index, int) and (not is_along or index >= 0):
        return ordinary(node, converter)
    if not is_along and x.count is not None:
        raise node.refusal("another dimension is cut where the model computes")
    place = place_in(node, _scalar(node, index, 0), size_of(node, x, axis))
    return node.add("Gather", bare(x), place, axis=axis)


def _cat(node: Node, converter: Converter) -> Result:
    """One after the other; vectors without elements fit any shape, as in PyTorch."""
    parts = [x for x in node.operands("tensors") if x.count is not None or x.shape != (0,)]
    wide = [x.like(converted(node, x, node.dtype)) for x in parts]
    axis = node.dimension("dim", wide[0].rank)
    whole = bare(joined(node, wide, axis))
    return part(node, whole, axis, 0, min(node.shape[axis], whole.shape[axis]))


def _stack(node: Node, converter: Converter) -> Result:
    broadcast_count(node, node.operands("tensors"))
    return ordinary(node, converter)


def _split(node: Node, converter: Converter) -> Result:
    """Parts one after the other, whose sizes may be computed."""
    x, sizes = node.operand("self"), node.arguments.get("split_sizes")
    axis = node.dimension("dim", x.rank)
    is_computed = isinstance(sizes, list) and any(isinstance(size, Operand) for size in sizes)
    if not isinstance(sizes, list) or not (is_computed or counted_axis(node, "self") == axis):
        return _apart(node, converter)
    if x.count is not None and x.count.axis != axis:
        raise node.refusal("another dimension is cut where the model computes")
    ends = [number(node, 0)]
    for size in sizes:
        ends.append(node.add("Add", ends[-1], _scalar(node, size, 0)))
    parts = enumerate(zip(pairwise(ends), node.captured["split_sizes"], strict=True))  # type: ignore[call-overload]
    return [_between(node, x, axis, start, end, 1, size, i) for i, ((start, end), size) in parts]


def _apart(node: Node, converter: Converter) -> Result:
    """Parts along another dimension."""
    x = node.operand("self")
    if counted_axis(node, "self") == node.dimension("dim", x.rank):
        raise node.refusal("it is split along that dimension")
    return ordinary(node, converter)


def _pad(node: Node, converter: Converter) -> Result:
    x, axis = node.operand("self"), counted_axis(node, "self")
    pads = node.integers("pad" if "pad" in node.arguments else "padding")
    if axis is not None and any(pads[2 * (x.rank - 1 - axis) :][:2]):
        raise node.refusal("it is padded along that dimension")
    return ordinary(node, converter)


def _flip(node: Node, converter: Converter) -> Result:
    x = node.operand("self")
    dims, axis = node.axes(node.integers("dims"), x.rank), counted_axis(node, "self")
    if axis is None or axis not in dims:
        return ordinary(node, converter)
    end = number(node, -x.shape[axis] - 1)
    turned = between(node, x, axis, number(node, -1), end, -1)
    return ordinary(node, converter, self=turned, dims=[dim for dim in dims if dim != axis])


def _roll(node: Node, converter: Converter) -> Result:
    x = node.operand("self")
    dims = node.integers("dims")
    if not dims or counted_axis(node, "self") in node.axes(dims, x.rank):
        raise node.refusal("it is rolled along that dimension")
    return ordinary(node, converter)


def _repeat(node: Node, converter: Converter) -> Result:
    x, repeats = node.operand("self"), node.integers("repeats")
    axis = counted_axis(node, "self")
    if axis is not None and repeats[axis + len(repeats) - x.rank] != 1:
        raise node.refusal("it is repeated along that dimension")
    return ordinary(node, converter)


def _repeat_interleave(node: Node, converter: Converter) -> Result:
    """Each element several times in a row, so that what counts stays in front; as often as a tensor says, of others."""
    x, repeats = node.operand("self" if "self" in node.arguments else "repeats"), node.arguments["repeats"]
    if isinstance(repeats, Operand):
        axis = node.dimension("dim", x.rank) if node.has("dim") else 0
        if (repeats.count is not None) is not (counted_axis(node, "self") == axis) and "self" in node.arguments:
            raise node.refusal("there are not as many repetitions as elements")
        if repeats.count is not None:
            one_count(node, [x, repeats])
        return ordinary(node, converter, repeats=filled(node, repeats))
    if not node.has("dim") and counted_axis(node, "self"):
        raise node.refusal("it is flattened along that dimension")
    if not node.has("dim"):
        x = reshaped(node, bare(x), (x.type.size,))
    return ordinary(node, converter, self=x)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(_PERMUTATIONS, ordinary),
    **dict.fromkeys((*PADS, "constant_pad_nd", "pad"), _pad),
    **dict.fromkeys(("unbind", "unbind_copy"), _apart),
    **dict.fromkeys(SPLITS, _split),
    **dict.fromkeys(("copy", "expand", "expand_copy"), _expand),
    **dict.fromkeys(("select", "select_copy"), _select),
    **dict.fromkeys(("slice", "slice_copy"), _slice),
    **dict.fromkeys(("tril", "triu"), ordinary),
    "cat": _cat,
    "flip": _flip,
    "repeat": _repeat,
    "repeat_interleave": _repeat_interleave,
    "roll": _roll,
    "stack": _stack,
}
