"""Pooling over one to three spatial dimensions, with or without a batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, expanded, part, reshaped
from rammer.frontends.resampling import Floats, times_along
from rammer.frontends.torch.converters.convolution import per_dimension
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.graph import Attribute
from rammer.ir.types import DType

_Places = npt.NDArray[np.int64]

_MAX: Mapping[str, int] = {
    **{f"max_pool{rank}d": rank for rank in (1, 2, 3)},
    **{f"max_pool{rank}d_with_indices": rank for rank in (1, 2, 3)},
}
_AVERAGE: Mapping[str, int] = {f"avg_pool{rank}d": rank for rank in (1, 2, 3)}
_ADAPTIVE: Mapping[str, int] = {
    **{f"adaptive_avg_pool{rank}d": rank for rank in (1, 2, 3)},
    **{f"_adaptive_avg_pool{rank}d": rank for rank in (1, 2, 3)},
}
_ADAPTIVE_MAX: Mapping[str, int] = {f"adaptive_max_pool{rank}d": rank for rank in (1, 2, 3)}
_FRACTIONAL: Mapping[str, tuple[int, ...]] = {"fractional_max_pool2d": (1, 0), "fractional_max_pool3d": (0, 1, 2)}
"""Which of a channel's samples each dimension has."""


def _max_pool(node: Node) -> Result:
    count = _MAX[node.operator]
    own = {"dilations": per_dimension(node, "dilation", count)}
    return _with_positions(node, lambda kind: _pooled(node, kind, count, own))


def _with_positions(node: Node, pooled: Callable[[str], Operand]) -> Result:
    """The values; a call that also gives their positions has two results."""
    y = pooled("MaxPool")
    if len(node.results) == 1:
        return y
    return [y, pooled("MaxPoolPositions") if node.used[1] else None]


def _average_pool(node: Node) -> Result:
    """The mean of each window; `divisor_override` divides the sum by another number."""
    count = _AVERAGE[node.operator]
    padded: dict[str, Attribute] = {"dilations": (1,) * count, "count_include_pad": node.flag("count_include_pad")}
    if not node.has("divisor_override"):
        return _pooled(node, "AveragePool", count, padded)
    if not node.dtype.is_float:
        raise node.unsupported("divisor_override of integers", "convert them to floats")
    kernel = per_dimension(node, "kernel_size", count)
    strides = per_dimension(node, "stride", count) or kernel
    begins = per_dimension(node, "padding", count)
    geometry = zip(node.shape[-count:], strides, kernel, node.operand("self").shape[-count:], begins, strict=True)
    ends = tuple(max((out - 1) * step + size - extent - begin, 0) for out, step, size, extent, begin in geometry)
    padded |= {"count_include_pad": True, "pads": (*begins, *ends)}  # so that each window counts its whole kernel
    mean = _pooled(node, "AveragePool", count, padded)
    return node.add("Mul", mean, node.scalar(math.prod(kernel) / node.integer("divisor_override"), mean.dtype))


def _pooled(node: Node, kind: str, count: int, own: Mapping[str, Attribute]) -> Operand:
    x = node.operand("self")
    channels = reshaped(node, x, (1, *x.shape)) if x.rank == count + 1 else x
    kernel = per_dimension(node, "kernel_size", count)
    y = node.add(
        kind,
        channels,
        kernel=kernel,
        strides=per_dimension(node, "stride", count) or kernel,
        out_shape=node.shape[-count:],
        **{"pads": per_dimension(node, "padding", count) * 2, **own},
    )
    return reshaped(node, y, node.shape)


def _adaptive_average_pool(node: Node) -> Result:
    """Windows that share out each dimension; where they differ in size, one dimension after another."""
    count = _ADAPTIVE[node.operator]
    x = node.operand("self")
    out = node.shape[-count:]
    if set(out) == {1}:
        return node.add("ReduceMean", x, axes=tuple(range(x.rank - count, x.rank)), keepdims=True)
    extents = x.shape[-count:]
    if all(extent % size == 0 for extent, size in zip(extents, out, strict=True)):
        return _even(node, "AveragePool", x, count, {"count_include_pad": True})
    for dim, (extent, size) in enumerate(zip(extents, out, strict=True), start=x.rank - count):
        if extent != size:
            x = times_along(node, x, dim, shares_of_adaptive(extent, size))
    return x


def shares_of_adaptive(extent: int, size: int) -> Floats:
    """The weight `[extent, size]` of each element in each of `size` windows, which may differ in length and overlap."""
    shares = np.zeros((extent, size))
    for window in range(size):
        start, end = window * extent // size, -(-(window + 1) * extent // size)
        shares[start:end, window] = 1 / (end - start)
    return shares


def _adaptive_max_pool(node: Node) -> Result:
    count = _ADAPTIVE_MAX[node.operator]
    x = node.operand("self")
    extents, out = x.shape[-count:], node.shape[-count:]
    if all(extent % size == 0 for extent, size in zip(extents, out, strict=True)):
        return _with_positions(node, lambda kind: _even(node, kind, x, count, {}))
    places = _row_by_row([_windows_of(extent, size) for extent, size in zip(extents, out, strict=True)], extents)
    flat = reshaped(node, x, (*x.shape[:-count], math.prod(extents)))
    windows = node.add("Gather", flat, node.constant(places), axis=flat.rank - 1)
    return _greatest(node, windows, node.constant(places))


def _windows_of(extent: int, size: int) -> _Places:
    """The elements `[size, longest]` of windows that share out a dimension; shorter ones repeat their last."""
    starts = [window * extent // size for window in range(size)]
    ends = [-(-(window + 1) * extent // size) for window in range(size)]
    longest = max((end - start for start, end in zip(starts, ends, strict=True)), default=0)
    found: _Places = np.minimum(np.array(starts)[:, None] + np.arange(longest), np.array(ends)[:, None] - 1)
    return found


def _row_by_row(places: Sequence[_Places], extents: Sequence[int]) -> _Places:
    """Numbers `[windows, elements]` of a channel's elements, of places along each dimension of as many."""
    total: _Places = np.zeros((1, 1), np.int64)
    for each, extent in zip(places, extents, strict=True):
        number = total[:, None, :, None] * extent + each[None, :, None, :]
        total = number.reshape(total.shape[0] * each.shape[0], -1)
    return total


def _greatest(node: Node, windows: Operand, places: Operand) -> Result:
    """The greatest of each window `[..., windows, elements]`, and which of the places that broadcast to it it has."""
    last = windows.rank - 1
    y = reshaped(node, node.add("ReduceMax", windows, axes=(last,), keepdims=False), node.shape)
    if not node.used[1]:
        return [y, None]
    which = node.add("ArgMax", windows, axis=last, keepdims=True, select_last_index=False)
    found = node.add("GatherElements", expanded(node, places, windows.shape), which, axis=last)
    return [y, reshaped(node, found, node.shape)]


def _fractional_max_pool(node: Node) -> Result:
    """Windows of one size that begin where a sample for each channel says."""
    order = _FRACTIONAL[node.operator]
    count = len(order)
    x, samples, kernel = node.operand("self"), node.operand("random_samples"), per_dimension(node, "kernel_size", count)
    extents, batch = x.shape[-count:], (math.prod(x.shape[: -count - 1]), x.shape[-count - 1])
    places = node.constant(np.zeros((1, 1, 1, 1), np.int64))
    for which, extent, size, out in zip(order, extents, kernel, node.shape[-count:], strict=True):
        sample = reshaped(node, part(node, samples, 2, which, 1), (*batch, 1))
        starts = reshaped(node, _fractional_starts(node, sample, extent - size, out), (*batch, 1, out, 1, 1))
        own = node.add("Add", starts, node.constant(np.arange(size)))
        before = reshaped(node, places, (*places.shape[:2], places.shape[2], 1, places.shape[3], 1))
        joint = node.add("Add", node.add("Mul", before, node.constant(np.array(extent))), own)
        places = reshaped(node, joint, (*batch, places.shape[2] * out, places.shape[3] * size))
    flat = reshaped(node, x, (*batch, math.prod(extents)))
    numbers = reshaped(node, places, (*batch, places.shape[2] * places.shape[3]))
    windows = node.add("GatherElements", flat, numbers, axis=2)
    return _greatest(node, reshaped(node, windows, places.shape), places)


def _fractional_starts(node: Node, sample: Operand, last: int, out: int) -> Operand:
    """Where `out` windows begin: the last at `last`, those before in steps whose fractions add to the sample."""
    step = node.scalar(last / max(out - 1, 1), sample.dtype)
    numbers = np.arange(out)
    shifted = node.add("Add", sample, node.constant(numbers.astype(sample.dtype.numpy)))
    there, first = (converted(node, node.add("Mul", each, step), DType.INT64) for each in (shifted, sample))
    is_last = node.constant(numbers == out - 1)
    return node.add("Where", is_last, node.scalar(last, DType.INT64), node.add("Sub", there, first))


def _even(node: Node, kind: str, x: Operand, count: int, own: Mapping[str, Attribute]) -> Operand:
    """Windows of equal size, side by side."""
    out = node.shape[-count:]
    kernel = tuple(extent // size for extent, size in zip(x.shape[-count:], out, strict=True))
    channels = reshaped(node, x, (1, *x.shape)) if x.rank == count + 1 else x
    ones, zeros = (1,) * count, (0,) * (2 * count)
    y = node.add(kind, channels, kernel=kernel, strides=kernel, dilations=ones, pads=zeros, out_shape=out, **own)
    return reshaped(node, y, node.shape)


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_ADAPTIVE, _adaptive_average_pool),
    **dict.fromkeys(_ADAPTIVE_MAX, _adaptive_max_pool),
    **dict.fromkeys(_AVERAGE, _average_pool),
    **dict.fromkeys(_FRACTIONAL, _fractional_max_pool),
    **dict.fromkeys(_MAX, _max_pool),
}
