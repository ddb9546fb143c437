"""Operators that move elements: shapes, slices and pads become explicit, one number per dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, expanded, reshaped, split, strided, transposed
from rammer.frontends.onnx.node import Converter, Node


def _reshape(node: Node) -> Sequence[Operand]:
    """0 keeps an extent (unless `allowzero`), one -1 takes what is left."""
    x, wanted = node.operand(0), node.known_integers(1)
    keep_zeros = node.has("allowzero") and node.flag("allowzero")
    shape = list(wanted)
    for dim, extent in enumerate(wanted):
        if extent == 0 and not keep_zeros:
            if dim >= x.rank:
                raise node.invalid(f"shape {list(wanted)} keeps dimension {dim} of {x.type}")
            shape[dim] = x.shape[dim]
    if -1 in shape:
        rest = math.prod(extent for extent in shape if extent != -1)
        if rest == 0 or x.type.size % rest or shape.count(-1) > 1:
            raise node.invalid(f"{x.type} cannot have shape {list(wanted)}")
        shape[shape.index(-1)] = x.type.size // rest
    if min(shape, default=0) < 0 or math.prod(shape) != x.type.size:
        raise node.invalid(f"{x.type} cannot have shape {list(wanted)}")
    return [reshaped(node, x, shape)]


def _flatten(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    axis = flattened_from(node, x)
    return [reshaped(node, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))]


def flattened_from(node: Node, x: Operand) -> int:
    """From which dimension on the others are one, counted from the front; behind all, none are.

    Raises:
        InvalidModelError: there is no such dimension.
    """
    axis = node.integer("axis")
    if not -x.rank <= axis <= x.rank:
        raise node.invalid(f"axis {axis} of a tensor of rank {x.rank}")
    return axis + x.rank if axis < 0 else axis


def _squeeze(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    if node.optional(1) is None:
        return [reshaped(node, x, [extent for extent in x.shape if extent != 1])]
    axes = node.axes(node.known_integers(1), x.rank)
    if any(x.shape[axis] != 1 for axis in axes):
        raise node.invalid(f"dimensions {list(axes)} of {x.type} are not all of extent 1")
    return [reshaped(node, x, [extent for dim, extent in enumerate(x.shape) if dim not in axes])]


def _unsqueeze(node: Node) -> Sequence[Operand]:
    x, wanted = node.operand(0), node.known_integers(1)
    axes = node.axes(wanted, x.rank + len(wanted))
    extents = iter(x.shape)
    return [reshaped(node, x, [1 if dim in axes else next(extents) for dim in range(x.rank + len(axes))])]


def _transpose(node: Node) -> Sequence[Operand]:
    x, perm = node.operand(0), node.integers("perm")
    return [transposed(node, x, tuple(reversed(range(x.rank))) if perm is None else perm)]


def _expand(node: Node) -> Sequence[Operand]:
    """NumPy broadcasting in both directions."""
    x, shape = node.operand(0), node.known_integers(1)
    if any(extent < 0 for extent in shape):
        raise node.invalid(f"shape {list(shape)} has a negative extent")
    return [expanded(node, x, shape)]


def _slice(node: Node) -> Sequence[Operand]:
    """Starts and ends as in a Python slice, clamped to the extent."""
    x, starts, ends = node.operand(0), node.known_integers(1), node.known_integers(2)
    axes, steps = sliced_along(node, x, len(starts), len(ends))
    ranges: dict[int, range] = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        # Going backwards, ONNX clamps to the first element where Python finds nothing.
        first = max(start, -x.shape[axis])
        stop = None if step < 0 and end < -x.shape[axis] else end
        ranges[axis] = range(x.shape[axis])[first:stop:step]
    return [strided(node, x, ranges)]


def sliced_along(node: Node, x: Operand, starts: int, ends: int) -> tuple[Sequence[int], Sequence[int]]:
    """The axes of a slice with so many starts and ends, counted from the front, and its steps.

    Raises:
        InvalidModelError: they do not fit.
    """
    axes = range(starts) if node.optional(3) is None else node.known_integers(3)
    steps = (1,) * starts if node.optional(4) is None else node.known_integers(4)
    if not starts == ends == len(axes) == len(steps):
        raise node.invalid("starts, ends, axes and steps differ in length")
    if 0 in steps:
        raise node.invalid("a step is 0")
    return node.axes(axes, x.rank), steps


def _split(node: Node) -> Sequence[Operand]:
    """Into given sizes, or into equal parts of which the last may be smaller (since opset 18)."""
    x, count = node.operand(0), len(node.proto.output)
    axis = node.axis(node.integer("axis"), x.rank)
    extent = x.shape[axis]
    if node.optional(1) is not None:
        sizes: Sequence[int] = node.known_integers(1)
    else:
        parts = node.integer("num_outputs") if node.has("num_outputs") else count
        if parts != count or (extent % parts and not node.has("num_outputs")):
            raise node.invalid(f"{extent} elements for {count} output(s) do not split into {parts} equal parts")
        size = -(-extent // parts)
        sizes = [max(0, min(size, extent - start)) for start in range(0, size * parts, size)] if size else [0] * parts
    if len(sizes) != count or sum(sizes) != extent or min(sizes) < 0:
        raise node.invalid(f"parts of {list(sizes)} elements for {count} output(s) of {extent} elements")
    return split(node, x, axis, sizes)


def _concat(node: Node) -> Sequence[Operand]:
    return [concatenated(node, node.operands, node.axis(node.integer("axis"), node.operand(0).rank))]


def _pad(node: Node) -> Sequence[Operand]:
    """Pads of some axes (since opset 18) become pads of all."""
    x, wanted = node.operand(0), node.known_integers(1)
    axes = tuple(range(x.rank)) if node.optional(3) is None else node.axes(node.known_integers(3), x.rank)
    if len(wanted) != 2 * len(axes):
        raise node.invalid(f"{len(wanted)} pads for {len(axes)} dimension(s)")
    pads = [0] * (2 * x.rank)
    for position, axis in enumerate(axes):
        pads[axis], pads[x.rank + axis] = wanted[position], wanted[len(axes) + position]
    value = 0.0
    if node.optional(2) is not None:
        fill = node.known(2)
        if fill.size != 1:
            raise node.invalid(f"its constant value has {fill.size} elements, not 1")
        value = fill.item()
    return [node.add("Pad", x, mode=node.text("mode"), pads=tuple(pads), value=value)] if any(pads) else [x]


def _tile(node: Node) -> Sequence[Operand]:
    return [node.add("Tile", node.operand(0), repeats=node.known_integers(1))]


def _blocks(node: Node) -> Sequence[Operand]:
    """DepthToSpace and SpaceToDepth; the latter has a mode since opset 28."""
    mode = node.text("mode") if node.has("mode") else "DCR"
    return [node.add(node.op_type, node.operand(0), blocksize=node.integer("blocksize"), mode=mode)]


def _trilu(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    k = 0 if node.optional(1) is None else node.known_integer(1)
    return [node.add("Trilu", x, upper=node.flag("upper"), k=k)]


CONVERTERS: Mapping[str, Converter] = {
    "Concat": _concat,
    "DepthToSpace": _blocks,
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": _slice,
    "SpaceToDepth": _blocks,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Trilu": _trilu,
    "Unsqueeze": _unsqueeze,
}
