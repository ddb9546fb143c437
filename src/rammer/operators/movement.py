"""Operators that only move elements: each is a load with computed indices. They take any element type."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.ir.expr import Axis, Expr, Scalar, ScalarFn, TensorExpr, call, const, load
from rammer.ir.graph import Attributes
from rammer.ir.region import reshape_groups
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import flag, integer, integers, text
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.scalars import choose, clamp, less, maximum, minimum
from rammer.operators.shapes import (
    broadcast_load,
    broadcast_shape,
    check_axis,
    check_operands,
    padded_load,
    plain_result,
    spatial_axes,
)


def reshape(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The same elements in row-major order seen with another `shape` of equal size.

    Dimensions that stay, or that are split, have affine indices; those that are merged need quotients.

    Raises:
        InvalidModelError: the sizes differ.
    """
    check_operands("Reshape", inputs, (1, 1))
    (x,) = inputs
    shape = integers(attributes, "shape")
    require(x.size == math.prod(shape), f"Reshape of {x} to {list(shape)}: the numbers of elements differ")
    axes = spatial_axes(shape)
    indices: list[Expr] = [const(0, DType.INT64)] * x.rank
    if x.size:
        for source, target in reshape_groups(x.shape, shape):
            flat = _flatten([axes[dim] for dim in target])
            inner = math.prod(x.shape[dim] for dim in source)
            outermost = True
            for dim in (dim for dim in source if x.shape[dim] != 1):
                inner //= x.shape[dim]
                indices[dim] = flat // inner if outermost else flat // inner % x.shape[dim]
                outermost = False
    return plain_result(inputs, x.dtype, axes, load(0, x, indices))


def _flatten(axes: Sequence[Axis]) -> Expr:
    """The row-major position of a point of `axes`."""
    flat: Expr = const(0, DType.INT64)
    for axis in axes:
        if axis.extent != 1:
            flat = flat * axis.extent + axis
    return flat


def transpose(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Dimension d of the result is dimension `perm[d]` of the operand.

    Raises:
        InvalidModelError: `perm` is not a permutation of the dimensions.
    """
    check_operands("Transpose", inputs, (1, 1))
    (x,) = inputs
    perm = integers(attributes, "perm")
    require(sorted(perm) == list(range(x.rank)), f"Transpose of {x}: {list(perm)} does not permute its dimensions")
    axes = spatial_axes([x.shape[dim] for dim in perm])
    return plain_result(inputs, x.dtype, axes, load(0, x, [axes[perm.index(dim)] for dim in range(x.rank)]))


def slice_(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Element `starts + i * steps` for each i below `sizes`; one of each per dimension, steps may be negative.

    Raises:
        InvalidModelError: an element lies outside the operand.
    """
    check_operands("Slice", inputs, (1, 1))
    (x,) = inputs
    starts, steps, sizes = (integers(attributes, name) for name in ("starts", "steps", "sizes"))
    require(len(starts) == len(steps) == len(sizes) == x.rank, f"Slice of {x} names another number of dimensions")
    for start, step, size, extent in zip(starts, steps, sizes, x.shape, strict=True):
        inside = 0 <= start < extent and 0 <= start + (size - 1) * step < extent
        require(size == 0 or (size > 0 and inside), f"Slice of {x}: {size} from {start} by {step} lies outside")
    axes = spatial_axes(sizes)
    indices = [axis * step + start for axis, start, step in zip(axes, starts, steps, strict=True)]
    return plain_result(inputs, x.dtype, axes, load(0, x, indices))


def expand(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The operand broadcast against `shape`, by NumPy's rules in both directions.

    Raises:
        InvalidModelError: they do not broadcast together.
    """
    check_operands("Expand", inputs, (1, 1))
    (x,) = inputs
    axes = spatial_axes(broadcast_shape("Expand", x.shape, integers(attributes, "shape")))
    return plain_result(inputs, x.dtype, axes, broadcast_load(0, x, axes))


def concat(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The operands one after the other along `axis`.

    Each load has a fill, because outside its own part of the result its index leaves the operand.

    Raises:
        InvalidModelError: the operands differ in rank, element type or another extent.
    """
    check_operands("Concat", inputs, (1, None))
    first = inputs[0]
    axis = integer(attributes, "axis")
    check_axis("Concat", first, axis)
    for type_ in inputs:
        fits = type_.rank == first.rank and all(
            dim == axis or extent == first.shape[dim] for dim, extent in enumerate(type_.shape)
        )
        require(fits, f"Concat along dimension {axis}: {type_} does not fit {first}")
    total = sum(type_.shape[axis] for type_ in inputs)
    axes = spatial_axes([total if dim == axis else extent for dim, extent in enumerate(first.shape)])
    parts: list[tuple[int, Expr]] = []
    end = 0
    for slot, type_ in enumerate(inputs):
        if type_.shape[axis] or not total:
            position = axes[axis] - end
            end += type_.shape[axis]
            parts.append((end, padded_load(slot, type_, [*axes[:axis], position, *axes[axis + 1 :]], fill=0)))
    *rest, (_, body) = parts
    for end, part in reversed(rest):
        body = choose(less(axes[axis], end), part, body)
    return plain_result(inputs, first.dtype, axes, body)


def pad(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The operand with elements added (or, where `pads` is negative, cut off) at both ends of each dimension.

    Attributes: mode, "constant" (of `value`), "edge", "reflect" (without the edge) or "wrap"; pads, all begins and
    then all ends. Elements are cut off before others are added.

    Raises:
        InvalidModelError: the pads do not fit the operand, or the mode is unknown.
    """
    check_operands("Pad", inputs, (1, 1))
    (x,) = inputs
    mode, pads = text(attributes, "mode"), integers(attributes, "pads")
    require(len(pads) == 2 * x.rank, f"Pad of {x}: {len(pads)} pads, not two per dimension")
    require(mode in ("constant", "edge", "reflect", "wrap"), f"Pad: unknown mode '{mode}'")
    begins, ends = pads[: x.rank], pads[x.rank :]
    shape = [extent + begin + end for extent, begin, end in zip(x.shape, begins, ends, strict=True)]
    require(min(shape, default=0) >= 0, f"Pad of {x}: {list(pads)} cut off more than there is")
    axes = spatial_axes(shape)
    if mode == "constant":
        shifted = [axis - begin for axis, begin in zip(axes, begins, strict=True)]
        return plain_result(inputs, x.dtype, axes, padded_load(0, x, shifted, fill=_scalar(attributes, "value")))
    indices: list[Expr] = []
    for dim, (axis, begin, end) in enumerate(zip(axes, begins, ends, strict=True)):
        cut = max(-begin, 0)
        left = x.shape[dim] - cut - max(-end, 0)
        padding = (max(begin, 0), max(end, 0))
        require(left > 0 or axis.extent == 0, f"Pad of {x}: nothing is left of dimension {dim} to repeat")
        require(
            mode != "reflect" or max(padding) < max(left, 1),
            f"Pad of {x}: reflects more of dimension {dim} than it has",
        )
        position = axis - padding[0]
        indices.append((_inner_position(mode, position, left) if any(padding) else position) + cut)
    return plain_result(inputs, x.dtype, axes, load(0, x, indices))


def _inner_position(mode: str, position: Expr, extent: int) -> Expr:
    """Which of `extent` elements a position outside of them repeats."""
    if mode == "edge":
        return clamp(position, 0, extent - 1)
    if mode == "wrap":
        return position % extent
    distance = maximum(position, 0 - position)
    return minimum(distance, 2 * (extent - 1) - distance)


def _scalar(attributes: Attributes, name: str) -> Scalar:
    value = attributes[name]
    if not isinstance(value, bool | int | float):
        raise TypeError(f"attribute {name} is {value!r}, not a number")
    return value


def tile(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The operand `repeats` times along each dimension.

    Raises:
        InvalidModelError: there is not one non-negative count per dimension.
    """
    check_operands("Tile", inputs, (1, 1))
    (x,) = inputs
    repeats = integers(attributes, "repeats")
    require(len(repeats) == x.rank and min(repeats, default=0) >= 0, f"Tile of {x} by {list(repeats)}")
    axes = spatial_axes([extent * count for extent, count in zip(x.shape, repeats, strict=True)])
    return plain_result(inputs, x.dtype, axes, load(0, x, [i % n for i, n in zip(axes, x.shape, strict=True)]))


def depth_to_space(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Blocks of channels `[n, c * b * b, h, w]` laid out in space `[n, c, h * b, w * b]`, b being `blocksize`.

    `mode` says whether the channel varies fastest ("DCR") or slowest ("CRD") in the operand's channels.

    Raises:
        InvalidModelError: the operand does not fit.
    """
    x, block, last = _blocks("DepthToSpace", inputs, attributes)
    n, depth, height, width = x.shape
    require(depth % (block * block) == 0, f"DepthToSpace of {x}: the channels do not divide into {block}x{block}")
    axes = spatial_axes((n, depth // (block * block), height * block, width * block))
    batch, c, h, w = axes
    inner = h % block * block + w % block
    channel = inner * c.extent + c if last else c * (block * block) + inner
    return plain_result(inputs, x.dtype, axes, load(0, x, (batch, channel, h // block, w // block)))


def space_to_depth(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The inverse of `depth_to_space` with the same attributes.

    Raises:
        InvalidModelError: the operand does not fit.
    """
    x, block, last = _blocks("SpaceToDepth", inputs, attributes)
    n, depth, height, width = x.shape
    fits = height % block == 0 and width % block == 0
    require(fits, f"SpaceToDepth of {x}: the extents do not divide by {block}")
    axes = spatial_axes((n, depth * block * block, height // block, width // block))
    batch, c, h, w = axes
    inner, channel = (c // depth, c % depth) if last else (c % (block * block), c // (block * block))
    indices = (batch, channel, h * block + inner // block, w * block + inner % block)
    return plain_result(inputs, x.dtype, axes, load(0, x, indices))


def _blocks(kind: str, inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, int, bool]:
    check_operands(kind, inputs, (1, 1))
    (x,) = inputs
    block, mode = integer(attributes, "blocksize"), text(attributes, "mode")
    require(x.rank == 4 and block > 0, f"{kind} of {x} with blocks of {block}")
    require(mode in ("DCR", "CRD"), f"{kind}: unknown mode '{mode}'")
    return x, block, mode == "DCR"


def trilu(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """The triangle of the last two dimensions above (`upper`) or below diagonal `k`, itself included; 0 elsewhere.

    Raises:
        InvalidModelError: the operand has no two dimensions.
    """
    check_operands("Trilu", inputs, (1, 1))
    (x,) = inputs
    require(x.rank >= 2, f"Trilu of {x}, which is not a matrix")
    axes = spatial_axes(x.shape)
    diagonal, column = axes[-2] + integer(attributes, "k"), axes[-1]
    ends = (diagonal, column) if flag(attributes, "upper") else (column, diagonal)
    body = choose(call(ScalarFn.LE, *ends), load(0, x, axes), 0)
    return plain_result(inputs, x.dtype, axes, body)


register(OperatorDef(kind="Reshape", build=reshape))
register(OperatorDef(kind="Transpose", build=transpose))
register(OperatorDef(kind="Slice", build=slice_))
register(OperatorDef(kind="Expand", build=expand))
register(OperatorDef(kind="Concat", build=concat))
register(OperatorDef(kind="Pad", build=pad))
register(OperatorDef(kind="Tile", build=tile))
register(OperatorDef(kind="DepthToSpace", build=depth_to_space))
register(OperatorDef(kind="SpaceToDepth", build=space_to_depth))
register(OperatorDef(kind="Trilu", build=trilu))
