"""Shapes and orders: views, permutations, expansions, tiles, pixel shuffles."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import counted, taken
from rammer.frontends.moves import converted, expanded, part, repeated, reshaped, strided, transposed
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.graph import Array
from rammer.ir.types import DType

VIEWS = (
    *("_unsafe_view", "flatten", "reshape", "squeeze", "squeeze_copy", "unflatten"),
    *("unsqueeze", "unsqueeze_copy", "view", "view_copy"),
)
"""Operators that keep the order of the elements; the result's shape says all."""


def _view(node: Node) -> Result:
    if node.dtype is not node.operand("self").dtype:
        raise node.unsupported("a view of the same bytes as another element type", "convert the elements with to()")
    return reshaped(node, node.operand("self"), node.shape)


def _permute(node: Node) -> Result:
    x = node.operand("self")
    return transposed(node, x, node.axes(node.integers("dims"), x.rank))


def _transpose(node: Node) -> Result:
    x = node.operand("self")
    order = list(range(x.rank))
    if x.rank:
        first, second = node.dimension("dim0", x.rank), node.dimension("dim1", x.rank)
        order[first], order[second] = order[second], order[first]
    return transposed(node, x, order)


def _matrix_transpose(node: Node) -> Result:
    x = node.operand("self")
    return transposed(node, x, tuple(reversed(range(x.rank))))


def _expand(node: Node) -> Result:
    return expanded(node, node.operand("self"), node.shape)


def _copy(node: Node) -> Result:
    """The source in the target's type and shape."""
    return expanded(node, converted(node, node.operand("src"), node.dtype), node.shape)


def _repeat(node: Node) -> Result:
    """The tensor several times along each dimension, of which it may get new ones."""
    x, repeats = node.operand("self"), node.integers("repeats")
    x = reshaped(node, x, (*(1 for _ in repeats[x.rank :]), *x.shape))
    return x if set(repeats) <= {1} else node.add("Tile", x, repeats=repeats)


def _repeat_interleave(node: Node) -> Result:
    """Each element several times in a row, as often as a number says, or a number for each."""
    repeats = node.arguments["repeats"]
    if "self" not in node.arguments:
        return _places(node, node.operand("repeats"), 0)
    x = node.operand("self")
    if not node.has("dim"):
        x = reshaped(node, x, (x.type.size,))
    dim = node.dimension("dim", x.rank) if node.has("dim") else 0
    if not isinstance(repeats, Operand):
        return repeated(node, x, dim, node.integer("repeats"))
    places = _places(node, expanded(node, repeats, (x.shape[dim],)), dim)
    return places_along(node, x, places, dim)


def places_along(node: Node, x: Operand, places: Operand, axis: int) -> Operand:
    """Elements at places along a dimension, of which as many count."""
    picked = taken(node, x, places, axis)
    return picked if places.count is None else counted(node, picked, axis, places.count.value)


def _places(node: Node, repeats: Operand, dim: int) -> Operand:
    """The place of each number of a vector, as often as it says."""
    most = node.sizes.bound(node, node.made[0], dim)
    ends = node.add("CumSum", converted(node, repeats, DType.INT64), axis=0, exclusive=False, reverse=False)
    numbers = node.constant(np.arange(most, dtype=np.int64).reshape(-1, 1))
    before = converted(node, node.add("LessOrEqual", reshaped(node, ends, (1, ends.shape[0])), numbers), DType.INT64)
    places = node.add("ReduceSum", before, axes=(1,), keepdims=False)
    places = node.add("Min", places, node.scalar(ends.shape[0] - 1, DType.INT64))
    if isinstance(node.arguments["output_size"], int):
        return places
    return counted(node, places, 0, reshaped(node, part(node, ends, 0, ends.shape[0] - 1, 1), ()))


def _flip(node: Node) -> Result:
    x = node.operand("self")
    dims = node.axes(node.integers("dims"), x.rank) if x.rank else ()
    return strided(node, x, {dim: range(x.shape[dim])[::-1] for dim in dims})


def _roll(node: Node) -> Result:
    """Elements that leave at one end come back at the other."""
    x, shifts = node.operand("self"), node.integers("shifts")
    dims = node.integers("dims")
    if not dims:
        flat = reshaped(node, x, (x.type.size,))
        return reshaped(node, _rolled(node, flat, 0, shifts[0]), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(node, x, node.axis(dim, x.rank), shift)
    return x


def _rolled(node: Node, x: Operand, axis: int, shift: int) -> Operand:
    extent = x.shape[axis]
    cut = -shift % extent if extent else 0
    if cut == 0:
        return x
    return node.add("Concat", part(node, x, axis, cut, extent - cut), part(node, x, axis, 0, cut), axis=axis)


def _diagonal(node: Node) -> Result:
    """The diagonal of two dimensions becomes the last one: in the flattened matrix it has a constant step."""
    x = node.operand("self")
    first, second = node.dimension("dim1", x.rank), node.dimension("dim2", x.rank)
    others = [dim for dim in range(x.rank) if dim not in (first, second)]
    rows, columns, offset = x.shape[first], x.shape[second], node.integer("offset")
    matrix = transposed(node, x, [*others, first, second])
    flat = reshaped(node, matrix, (*(x.shape[dim] for dim in others), rows * columns))
    start = offset if offset >= 0 else -offset * columns
    length = node.shape[-1]
    return strided(node, flat, {flat.rank - 1: range(start, start + length * (columns + 1), columns + 1)})


def _triangle(node: Node) -> Result:
    k = node.integer("diagonal")
    return node.add("Trilu", node.operand("self"), upper=node.operator == "triu", k=k)


def _unfold(node: Node) -> Result:
    """Windows of `size` elements along a dimension, `step` apart; the elements of one become the last dimension."""
    x, size, step = node.operand("self"), node.integer("size"), node.integer("step")
    dim = node.dimension("dimension", x.rank)
    if x.rank == 0:
        return part(node, reshaped(node, x, (1,)), 0, 0, size)
    if step == size and x.shape[dim] % size == 0:
        windows = reshaped(node, x, (*x.shape[:dim], x.shape[dim] // size, size, *x.shape[dim + 1 :]))
    else:
        positions = np.arange(node.shape[dim])[:, None] * step + np.arange(size)
        windows = node.add("Gather", x, node.constant(positions.astype(np.int64)), axis=dim)
    order = list(range(windows.rank))
    order.append(order.pop(dim + 1))
    return transposed(node, windows, order)


def _as_strided(node: Node) -> Result:
    """Elements by their place in memory, as PyTorch would have laid the operand out."""
    x = node.operand("self")
    size, stride = node.integers("size"), node.integers("stride")
    if not node.arguments.get("storage_offset") and size == x.shape and _alike(size, stride, _captured_strides(node)):
        return x
    places = strided_places(node, x)
    return node.add("Gather", reshaped(node, x, (x.type.size,)), node.constant(places), axis=0)


def strided_places(node: Node, x: Operand) -> Array:
    """The elements of a view by their numbers in the operand, as `size`, `stride` and `storage_offset` say.

    PyTorch counts the offset from where the memory begins of which the operand may be a part.
    """
    size, stride = node.integers("size"), node.integers("stride")
    captured = node.captured["self"]
    order = _order_in_memory(captured)
    if order is None or not isinstance(captured, torch.Tensor):
        raise node.unsupported("as_strided of a tensor that leaves gaps", "call contiguous() before it")
    offset = node.integer("storage_offset") - captured.storage_offset() if node.has("storage_offset") else 0
    places = np.full((1,) * len(size), offset, dtype=np.int64)
    for dim, (extent, step) in enumerate(zip(size, stride, strict=True)):
        shape = [-1 if other == dim else 1 for other in range(len(size))]
        places = places + np.arange(extent, dtype=np.int64).reshape(shape) * step
    if places.size and (places.min() < 0 or places.max() >= x.type.size):
        raise node.unsupported(
            "as_strided of what lies in memory beside its operand", "call it on the whole tensor, or index that"
        )
    numbers = np.arange(x.type.size).reshape(x.shape).transpose(order).reshape(-1)  # of the elements, in memory's order
    found: Array = numbers[places.reshape(size)] if x.type.size else places.reshape(size)
    return found


def _order_in_memory(captured: object) -> tuple[int, ...] | None:
    """The dimensions of a tensor as it was captured, the one that varies slowest first; None if it leaves gaps."""
    if not isinstance(captured, torch.Tensor):
        return None
    order = tuple(sorted(range(captured.dim()), key=lambda dim: (-captured.stride(dim), dim)))
    return order if captured.permute(order).is_contiguous() else None


def _captured_strides(node: Node) -> tuple[int, ...]:
    captured = node.captured["self"]
    strides: Sequence[int] = captured.stride() if hasattr(captured, "stride") else ()
    return tuple(int(stride) for stride in strides)


def _alike(size: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    return all(extent <= 1 or a == b for extent, a, b in zip(size, one, other, strict=True))


def _pixel_shuffle(node: Node) -> Result:
    """Channels to space; dimensions before the channels are a batch."""
    x = node.operand("self")
    batched = reshaped(node, x, (math.prod(x.shape[:-3]), *x.shape[-3:]))
    factor = node.integer("upscale_factor")
    return reshaped(node, node.add("DepthToSpace", batched, blocksize=factor, mode="CRD"), node.shape)


def _pixel_unshuffle(node: Node) -> Result:
    x = node.operand("self")
    batched = reshaped(node, x, (math.prod(x.shape[:-3]), *x.shape[-3:]))
    factor = node.integer("downscale_factor")
    return reshaped(node, node.add("SpaceToDepth", batched, blocksize=factor, mode="CRD"), node.shape)


def _channel_shuffle(node: Node) -> Result:
    """The channels of each group in turn."""
    x, groups = node.operand("self"), node.integer("groups")
    split = reshaped(node, x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    return reshaped(node, transposed(node, split, [0, 2, 1, *range(3, split.rank)]), x.shape)


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(VIEWS, _view),
    "as_strided": _as_strided,
    "as_strided_copy": _as_strided,
    "channel_shuffle": _channel_shuffle,
    "copy": _copy,
    "diagonal": _diagonal,
    "diagonal_copy": _diagonal,
    "expand": _expand,
    "expand_copy": _expand,
    "flip": _flip,
    "native_channel_shuffle": _channel_shuffle,
    "permute": _permute,
    "permute_copy": _permute,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "repeat": _repeat,
    "repeat_interleave": _repeat_interleave,
    "roll": _roll,
    "t": _matrix_transpose,
    "t_copy": _matrix_transpose,
    "transpose": _transpose,
    "transpose_copy": _transpose,
    "tril": _triangle,
    "triu": _triangle,
    "unfold": _unfold,
    "unfold_copy": _unfold,
}
