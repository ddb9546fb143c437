"""Fourier transforms, the weights of mel spectra, and determinants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.fourier import Complex, mirrored, transform
from rammer.frontends.moves import concatenated, converted, part, reshaped, transposed
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.tensors import dtype_of

_MOST_ROWS = 64
"""A determinant takes three operators for each row."""


def _dft(node: Node) -> Sequence[Operand]:
    """The axis is an attribute before opset 20. The last dimension holds the parts of complex numbers."""
    x = node.operand(0)
    if node.has("axis"):
        axis = node.integer("axis")
    else:
        axis = -2 if node.optional(2) is None else node.known_integer(2)
    axis = node.axis(axis, x.rank)
    inverse, onesided = node.flag("inverse"), node.flag("onesided")
    if axis == x.rank - 1 or x.shape[-1] not in (1, 2):
        raise node.invalid(f"a transform of {x.type} along dimension {axis}, the last one being that of the parts")
    extent = x.shape[axis]
    length = 2 * (extent - 1) if inverse and onesided else extent
    if node.optional(1) is not None:
        length = node.known_integer(1)
    return [_along(node, x, axis, length, inverse=inverse, onesided=onesided)]


def _along(node: Node, x: Operand, axis: int, length: int, *, inverse: bool, onesided: bool) -> Operand:
    """The transform of `length` elements along a dimension, padded by zeros or cut."""
    if length < 1:
        raise node.invalid(f"a transform of {length} elements")
    dtype, order = x.dtype, [*(dim for dim in range(x.rank - 1) if dim != axis), axis, x.rank - 1]
    outer = tuple(x.shape[dim] for dim in order[:-2])
    given = length // 2 + 1 if inverse and onesided else length
    lines = _resized(node, transposed(node, converted(node, x, dtype.compute), order), x.rank - 2, given)
    sides = [reshaped(node, part(node, lines, x.rank - 1, s, 1), (math.prod(outer), given)) for s in range(x.shape[-1])]
    number = Complex(sides[0], sides[1] if len(sides) == 2 else None)
    if inverse and onesided:
        number = mirrored(node, number, length)
    result = transform(node, number, inverse=inverse)
    parts = [result.real] if inverse and onesided else [result.real, result.imaginary]
    kept = length // 2 + 1 if onesided and not inverse else length
    columns = []
    for side in parts:
        if side is None:
            raise ValueError("a transform has imaginary parts")
        scaled = node.add("Div", side, node.constant(np.array(length, side.dtype.numpy))) if inverse else side
        columns.append(reshaped(node, part(node, scaled, 1, 0, kept), (*outer, kept, 1)))
    joined = concatenated(node, columns, len(outer) + 1)
    back = sorted(range(x.rank), key=order.__getitem__)
    return converted(node, transposed(node, joined, back), dtype)


def _resized(node: Node, x: Operand, axis: int, extent: int) -> Operand:
    """The first elements along a dimension, with zeros behind if there are too few."""
    missing = extent - x.shape[axis]
    if missing <= 0:
        return part(node, x, axis, 0, extent)
    pads = [0] * (2 * x.rank)
    pads[x.rank + axis] = missing
    return node.add("Pad", x, mode="constant", pads=tuple(pads), value=0.0)


def _stft(node: Node) -> Sequence[Operand]:
    """Transforms of frames that begin a step apart, each element times the window's."""
    x, step, window = node.operand(0), node.known_integer(1), node.optional(2)
    if x.rank == 2:  # of real numbers, which ONNX Runtime takes so, too
        x = reshaped(node, x, (*x.shape, 1))
    if x.rank != 3 or x.shape[2] not in (1, 2):
        raise node.invalid(f"{x.type} does not hold signals")
    if node.optional(3) is not None:
        length = node.known_integer(3)
    else:
        length = x.shape[1] if window is None else window.type.size
    if step < 1 or not 0 < length <= x.shape[1] or (window is not None and window.shape != (length,)):
        raise node.invalid(f"frames of {length} elements, {step} apart, of {x.type}")
    count = 1 + (x.shape[1] - length) // step
    positions = np.arange(count, dtype=np.int64).reshape(-1, 1) * step + np.arange(length)
    frames = node.add("Gather", x, node.constant(positions), axis=1)
    if window is not None:
        frames = node.add("Mul", frames, reshaped(node, converted(node, window, x.dtype), (length, 1)))
    return [_along(node, frames, 2, length, inverse=False, onesided=node.flag("onesided"))]


def _mel_weight_matrix(node: Node) -> Sequence[Operand]:
    """Triangles over the frequencies of a transform, their corners at equal distances on the mel scale."""
    bins, length, rate, lowest, highest = (node.known(position).item() for position in range(5))
    if bins < 1 or length < 1 or rate <= 0 or not 0 <= lowest < highest:
        raise node.invalid(f"{bins} bins from {lowest} to {highest} Hz at {rate} Hz")
    low, high = (2595 * math.log10(1 + edge / 700) for edge in (lowest, highest))
    corners = 700 * (10 ** ((np.arange(bins + 2) * (high - low) / (bins + 2) + low) / 2595) - 1)
    corners = ((length + 1) * corners // rate).astype(np.int64)
    left, center, right = (corners[start : start + bins] for start in range(3))
    row = np.arange(length // 2 + 1).reshape(-1, 1)
    rising = np.where(center > left, (row - left) / np.maximum(center - left, 1), 1.0)
    falling = (right - row) / np.maximum(right - center, 1)
    weights = np.where((row >= left) & (row <= center), rising, 0.0)
    weights = np.where((row >= center) & (row < right), falling, weights)
    dtype = dtype_of(node.integer("output_datatype"), str(node.location))
    return [node.constant(weights.astype(dtype.numpy))]


def _det(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not x.shape[-1]:
        raise node.invalid(f"{x.type} does not hold square matrices")
    if x.shape[-1] > _MOST_ROWS:
        raise node.unsupported(f"the determinant of {x.shape[-1]} rows; {_MOST_ROWS} are possible")
    outer = x.shape[:-2]
    result = node.add("Det", reshaped(node, x, (math.prod(outer), *x.shape[-2:])))
    return [reshaped(node, result, outer)]


CONVERTERS: Mapping[str, Converter] = {
    "DFT": _dft,
    "Det": _det,
    "MelWeightMatrix": _mel_weight_matrix,
    "STFT": _stft,
}
