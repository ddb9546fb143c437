"""Resize: one dimension after another, each as gathers at positions and with weights known at compile time.

Coordinates, rounding and filters are those of the operator Resize in the ONNX specification.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.resampling import Floats, cubic, picked, weighted, within
from rammer.ir.types import DType

_REGION = "tf_crop_and_resize"
_WHOLE = (0.0, 1.0)

_MOST_ELEMENTS = 1 << 24
"""A resized dimension, and the weights of a filter for all of it, may not have more elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dimension:
    """A dimension that is resized from `extent` to `out` elements; `scale` may not be their exact ratio."""

    axis: int
    extent: int
    out: int
    scale: float
    region: tuple[float, float]


def _resize(node: Node) -> Sequence[Operand]:
    with np.errstate(all="ignore"):  # extreme scales give extents that are refused
        dimensions = [
            d for d in _dimensions(node, node.operand(0)) if d.out != d.extent or d.scale != 1 or d.region != _WHOLE
        ]
        return [_resized(node, node.operand(0), dimensions)]


def _resized(node: Node, x: Operand, dimensions: Sequence[_Dimension]) -> Operand:
    """The operand with its dimensions resized; interpolation is computed in floating point."""
    outs = {d.axis: d.out for d in dimensions}
    shape = tuple(outs.get(axis, extent) for axis, extent in enumerate(x.shape))
    if 0 in shape:
        return node.constant(np.zeros(shape, x.dtype.numpy))
    if x.type.size == 0:
        raise node.invalid(f"{x.type} has no elements to interpolate between")
    if node.text("mode") == "nearest":
        result = x
        for dimension in dimensions:
            result = _picked(node, result, dimension)
        return _extrapolated(node, result, dimensions)
    result = converted(node, x, x.dtype.compute if x.dtype.is_float else DType.FLOAT32)
    for dimension in dimensions:
        result = weighted(node, result, dimension.axis, *_taps(node, dimension))
    return _extrapolated(node, converted(node, result, x.dtype), dimensions)


def _extrapolated(node: Node, x: Operand, dimensions: Sequence[_Dimension]) -> Operand:
    """The result with `extrapolation_value` where a region reaches beyond the operand."""
    if node.text("coordinate_transformation_mode") != _REGION:
        return x
    for dim in dimensions:
        source = _source(node, dim)
        beyond = (source < 0) | (source > dim.extent - 1)
        if beyond.any():
            column = node.constant(beyond.reshape(-1, *(1 for _ in x.shape[dim.axis + 1 :])))
            value = np.array(node.number("extrapolation_value")).astype(x.dtype.numpy)
            x = node.add("Where", column, node.constant(value), x)
    return x


def _dimensions(node: Node, x: Operand) -> list[_Dimension]:
    """The named dimensions (all, before opset 18) with their new extents, from `scales` or `sizes`."""
    named = node.integers("axes")
    axes = tuple(range(x.rank)) if named is None else node.axes(named, x.rank)
    extents = [x.shape[axis] for axis in axes]
    given = {
        name: node.known(position) for name, position in (("scales", 2), ("sizes", 3)) if _is_given(node, position)
    }
    if len(given) != 1 or any(values.shape != (len(axes),) for values in given.values()):
        raise node.invalid(f"it needs scales or sizes, not both, for {len(axes)} dimension(s)")
    if "scales" in given:
        scales = _positive(node, [float(scale) for scale in given["scales"]])
        exact = [np.float32(extent) * np.float32(scale) for extent, scale in zip(extents, scales, strict=True)]
        outs = [math.floor(min(float(out), _MOST_ELEMENTS + 1)) for out in exact]
    else:
        outs = [int(size) for size in given["sizes"]]
        scales = _positive(node, [out / max(extent, 1) for extent, out in zip(extents, outs, strict=True)])
        policy = node.text("keep_aspect_ratio_policy") if node.has("keep_aspect_ratio_policy") else "stretch"
        if policy != "stretch":
            scales = [min(scales) if policy == "not_larger" else max(scales)] * len(scales)
            outs = [math.floor(extent * scale + 0.5) for extent, scale in zip(extents, scales, strict=True)]
    if not all(0 <= out <= _MOST_ELEMENTS for out in outs):
        raise node.invalid(f"extents {outs} are not possible")
    return [
        _Dimension(axis=axis, extent=extent, out=out, scale=scale, region=region)
        for axis, extent, out, scale, region in zip(axes, extents, outs, scales, _regions(node, len(axes)), strict=True)
    ]


def _regions(node: Node, count: int) -> list[tuple[float, float]]:
    """The part of each dimension that is resized, from 0 to 1."""
    if node.text("coordinate_transformation_mode") != _REGION:
        return [_WHOLE] * count
    bounds = node.known(1).reshape(-1)
    if bounds.size != 2 * count or not np.isfinite(bounds.astype(np.float64)).all():
        raise node.invalid(f"a region of {bounds.size} bounds for {count} dimension(s)")
    return [(float(bounds[dim]), float(bounds[count + dim])) for dim in range(count)]


def _positive(node: Node, scales: list[float]) -> list[float]:
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        raise node.invalid(f"the scales {scales} are not all positive")
    return scales


def _is_given(node: Node, position: int) -> bool:
    operand = node.optional(position)
    return operand is not None and operand.type.size > 0


def _picked(node: Node, x: Operand, dim: _Dimension) -> Operand:
    """The nearest element for each element of the result."""
    source = _source(node, dim)
    mode = node.text("nearest_mode")
    match mode:
        case "round_prefer_floor":
            rounded = np.ceil(source - 0.5)
        case "round_prefer_ceil":
            rounded = np.floor(source + 0.5)
        case "floor":
            rounded = np.floor(source)
        case "ceil":
            rounded = np.ceil(source)
        case _:
            raise node.invalid(f"nearest_mode '{mode}' does not exist")
    return picked(node, x, dim.axis, rounded)


def _taps(node: Node, dim: _Dimension) -> tuple[Floats, Floats]:
    """Positions (which may lie outside) and weights, `[taps, out]` each; the weights of an element sum to 1.

    With antialiasing the filter is as much wider as the elements are closer. It ends where its weights are 0: what
    lies beyond may be infinite.
    """
    mode = node.text("mode")
    if mode not in ("linear", "cubic"):
        raise node.invalid(f"mode '{mode}' does not exist")
    antialias = node.has("antialias") and node.flag("antialias")
    width = min(dim.scale, 1.0) if antialias else 1.0
    reach = math.floor((1 if mode == "linear" else 2) / width - 1e-9) + 1
    if 2 * reach * max(dim.out, 1) > _MOST_ELEMENTS:
        raise node.unsupported(f"a filter of {2 * reach} elements")
    source = _source(node, dim)
    base = np.ceil(source) - 1  # an element at the coordinate itself counts as the right neighbour
    positions = base + np.arange(1 - reach, reach + 1, dtype=np.float64).reshape(-1, 1)
    distance = np.abs(positions - source) * width
    weights = np.maximum(1 - distance, 0) if mode == "linear" else cubic(distance, node.number("cubic_coeff_a"))
    if node.flag("exclude_outside"):
        weights = np.where((positions >= 0) & (positions < dim.extent), weights, 0)
    begun, going_on = (np.logical_or.accumulate(half, axis=0) for half in (weights != 0, weights[::-1] != 0))
    return within(positions, weights / weights.sum(axis=0), begun & going_on[::-1])


def _source(node: Node, dim: _Dimension) -> Floats:
    """The operand's coordinate for each element of the result."""
    mode = node.text("coordinate_transformation_mode")
    target = np.arange(dim.out, dtype=np.float64)
    resized = dim.scale * dim.extent
    match mode:
        case "align_corners":
            return target * (dim.extent - 1) / (resized - 1) if resized != 1 else target * 0
        case "asymmetric":
            return target / dim.scale
        case "tf_crop_and_resize":
            start, end = dim.region
            last = dim.extent - 1
            step = (end - start) * last
            return start * last + (target * step / (dim.out - 1) if dim.out > 1 else target + step / 2)
        case "half_pixel":
            return (target + 0.5) / dim.scale - 0.5
        case "pytorch_half_pixel":
            return (target + 0.5) / dim.scale - 0.5 if resized != 1 else target * 0 - 0.5
        case "half_pixel_symmetric":
            shift = dim.extent / 2 * (1 - dim.out / resized)
            return shift + (target + 0.5) / dim.scale - 0.5
        case _:
            raise node.unsupported(f"coordinate_transformation_mode '{mode}'")


CONVERTERS: Mapping[str, Converter] = {"Resize": _resize}
