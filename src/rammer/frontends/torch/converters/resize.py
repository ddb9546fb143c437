"""Upsampling: one dimension after another, at positions and with weights known at compile time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted
from rammer.frontends.resampling import Floats, cubic, picked, weighted, within
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_NEAREST: Mapping[str, tuple[int, float]] = {
    **{f"upsample_nearest{rank}d": (rank, 0.0) for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d": (rank, 0.5) for rank in (1, 2, 3)},
}
"""Spatial dimensions, and where in an element its coordinate lies."""

_CUBIC_A = -0.75
_CUBIC_A_ANTIALIASED = -0.5
_SCALES = ("scales_d", "scales_h", "scales_w")
_REAL = np.dtype(np.float32)
"""What PyTorch computes coordinates in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filter:
    """An interpolation over `rank` dimensions: its reach in elements, and whether it widens where elements are lost."""

    rank: int
    reach: int
    antialiased: bool = False


_FILTERS: Mapping[str, _Filter] = {
    "upsample_linear1d": _Filter(rank=1, reach=1),
    "upsample_bilinear2d": _Filter(rank=2, reach=1),
    "upsample_trilinear3d": _Filter(rank=3, reach=1),
    "upsample_bicubic2d": _Filter(rank=2, reach=2),
    "_upsample_bilinear2d_aa": _Filter(rank=2, reach=1, antialiased=True),
    "_upsample_bicubic2d_aa": _Filter(rank=2, reach=2, antialiased=True),
}


def _nearest(node: Node) -> Result:
    rank, offset = _NEAREST[node.operator]
    x = _input(node)
    for axis in range(x.rank - rank, x.rank):
        out, step = node.shape[axis], _step(node, x, axis, rank)
        if node.operator == "upsample_nearest2d" and out in (x.shape[axis], 2 * x.shape[axis]):
            step = np.float32(x.shape[axis] / out)  # whatever the scale factor: PyTorch does so here alone
        positions = np.floor((np.arange(out, dtype=np.float32) + np.float32(offset)) * step)
        x = picked(node, x, axis, positions.astype(np.float64))
    return x


def _interpolated(node: Node) -> Result:
    shape = _FILTERS[node.operator]
    x = _input(node)
    if x.dtype is DType.UINT8:
        return _interpolated_bytes(node, x, shape)
    for axis in range(x.rank - shape.rank, x.rank):
        if x.shape[axis] != node.shape[axis] or (shape.reach > 1 and not shape.antialiased):
            x = weighted(node, x, axis, *_taps(node, x, axis, shape))
    return x


def _interpolated_bytes(node: Node, x: Operand, shape: _Filter) -> Operand:
    """From the last dimension to the first, each rounded to bytes; weights are whole numbers of 16 bits."""
    for axis in reversed(range(x.rank - shape.rank, x.rank)):
        if x.shape[axis] == node.shape[axis]:
            continue
        positions, weights = _taps(node, x, axis, shape, np.dtype(np.float64))
        places = np.clip(positions, 0, x.shape[axis] - 1)
        for tap in range(1, len(places)):  # an end that stands for several elements is rounded once
            is_same = places[tap] == places[tap - 1]
            weights[tap] += np.where(is_same, weights[tap - 1], 0)
            weights[tap - 1] = np.where(is_same, 0, weights[tap - 1])
        unit = 1 << next((p for p in range(22) if int(0.5 + weights.max() * (2 << p)) >= 1 << 15), 22)
        whole = np.trunc(weights * unit + np.copysign(0.5, weights))
        total = weighted(node, converted(node, x, DType.INT32), axis, places, whole)
        rounded = node.add("Add", total, node.scalar(unit // 2, DType.INT32))
        value = node.add("Div", rounded, node.scalar(unit, DType.INT32))
        value = node.add("Min", node.add("Max", value, node.scalar(0, DType.INT32)), node.scalar(255, DType.INT32))
        x = converted(node, value, DType.UINT8)
    return x


def _taps(node: Node, x: Operand, axis: int, shape: _Filter, real: np.dtype[Any] = _REAL) -> tuple[Floats, Floats]:
    """Positions and weights, `[taps, out]` each; the weights of an element sum to 1, or are 0 beyond all elements.

    Coordinates are rounded as PyTorch computes them, to float32 unless for bytes. Where it aligns corners and widens
    its window, corners decide the step alone. Floats beside such a window are not read for it.
    """
    extent, out = x.shape[axis], node.shape[axis]
    target = np.arange(out).astype(real)
    is_aligned = node.flag("align_corners")
    if is_aligned:
        step = real.type(extent - 1) / real.type(out - 1) if out > 1 else real.type(0)
    else:
        step = _step(node, x, axis, shape.rank, real)
    if is_aligned and not shape.antialiased:
        source = (target * step).astype(np.float64)
    else:
        source = ((target + real.type(0.5)) * step - real.type(0.5)).astype(np.float64)
        if shape.reach == 1 and not shape.antialiased:
            source = np.maximum(source, 0)
    width = max(float(step), 1.0) if shape.antialiased else 1.0
    reach = math.ceil(shape.reach * width)
    offsets = np.arange(1 - reach - shape.antialiased, reach + 1, dtype=np.float64).reshape(-1, 1)
    positions: Floats = np.floor(source) + offsets
    distance = np.abs(positions - source) / width
    if shape.reach == 1:
        weights = np.maximum(1 - distance, 0)
    else:
        weights = cubic(distance, _CUBIC_A_ANTIALIASED if shape.antialiased else _CUBIC_A)
    if not shape.antialiased:
        return positions, weights / weights.sum(axis=0)
    center, support = (target + real.type(0.5)) * step, real.type(shape.reach * width)
    start, end = (np.floor(edge.astype(np.float64) + 0.5) for edge in (center - support, center + support))
    there = (positions >= np.maximum(start, 0)) & (positions < np.minimum(end, extent))
    weights = np.where(there, weights, 0)
    total = weights.sum(axis=0)
    weights /= np.where(total == 0, 1, total)
    return within(positions, weights, there) if x.dtype.is_float else (positions, weights)


def _step(node: Node, x: Operand, axis: int, rank: int, real: np.dtype[Any] = _REAL) -> Any:
    """From one element of the result to the next, in elements of the operand."""
    scale = _scale(node, axis - x.rank, rank)
    if scale is not None:
        return real.type(1.0 / scale)
    return real.type(x.shape[axis]) / real.type(node.shape[axis])


def _scale(node: Node, from_last: int, rank: int) -> float | None:
    """The scale factor that the caller gave for a dimension."""
    if node.has("scale_factors"):
        return float(_numbers(node.arguments["scale_factors"])[from_last])
    name = "scales" if rank == 1 else _SCALES[from_last]
    return float(node.number(name)) if node.has(name) else None


def _numbers(value: object) -> list[float]:
    return [float(element) for element in value] if isinstance(value, list | tuple) else []


def _input(node: Node) -> Operand:
    return node.operand("self" if "self" in node.arguments else "input")


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_FILTERS, _interpolated),
    **dict.fromkeys(_NEAREST, _nearest),
}
