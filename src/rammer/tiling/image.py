"""Images as warpgroups multiply them: the windows of a convolution are boxes of pixels, which tensor maps copy.

With the channels of a pixel side by side, what a tile of pixels needs for one tap of the kernel and a slab of channels
is a box of the image, shifted by the tap; what lies beyond the image is filled with zeros by the copy. So windows are
never put together in memory, and padding costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rammer.ir.expr import Axis, Load
from rammer.ir.region import Affine, affine
from rammer.ir.types import Layout, TensorType

_DIMS = 3  # of a map beside its channels
_MOST_PIXELS = 256  # of a box along a dimension
_MOST_CUTS = 16  # of a dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelDim:
    """A dimension of an image: point i of `axis` (none: of extent 1) and tap t are at pixel `first + i + dilation * t`.

    There are `extent` pixels, `stride` elements apart.
    """

    axis: Axis | None
    extent: int
    stride: int
    taps: int = 1
    dilation: int = 1
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An operand whose rows are windows: of each pixel, from `offset` of its slot on, `channels` side by side.

    Sums run over a group's `group_channels` of them, then over the taps of `dims`, the fastest first.
    """

    slot: int
    offset: int
    channels: int
    group_channels: int
    dims: tuple[PixelDim, ...]

    @property
    def taps(self) -> int:
        """Pixels of a window."""
        return math.prod(dim.taps for dim in self.dims)

    def is_box(self, sizes: Mapping[Axis, int]) -> bool:
        """Whether a copy can take a tile of these sizes."""
        return all(size <= _MOST_PIXELS for size in self.box(sizes))

    def box(self, sizes: Mapping[Axis, int]) -> tuple[int, ...]:
        """Pixels of a tile along each dimension."""
        return tuple(1 if dim.axis is None else sizes[dim.axis] for dim in self.dims)


def image_of(
    load: Load, type_: TensorType, layout: Layout, rows: Sequence[Axis], batch: Collection[Axis], inner: Sequence[Axis]
) -> Image | None:
    """A load as an image whose pixels are numbered along `rows`, and whose windows along `inner`, the fastest first.

    None where channels do not lie side by side, or windows are no boxes: strides step over single pixels only.
    """
    forms = [affine(index) for index in load.indices]
    channel = inner[0]
    if layout.panel is not None or None in forms or (load.fill is not None and load.fill.value != 0):
        return None
    offset, channels, dims = 0, 0, []
    for form, extent, stride in zip(forms, type_.shape, layout.strides, strict=True):
        assert form is not None  # as none is
        if form.coefficient(channel):
            if stride != 1 or not _is_channels(form, channel, batch):
                return None
            channels, offset = math.prod(axis.extent for axis, _ in form.terms), offset + form.offset
        elif not form.terms:
            if not 0 <= form.offset < extent:
                return None
            offset += form.offset * stride
        else:
            dim = _pixels(form, extent, stride, rows, inner)
            if dim is None:
                return None
            dims.append(dim[0])
            offset += dim[1]
    dims.sort(key=lambda dim: dim.stride)
    taps = [axis for form in forms if form for axis, _ in form.terms if axis in inner[1:]]
    is_in_order = tuple(dim.axis for dim in dims if dim.axis is not None) == tuple(rows)
    has_all = len(taps) == len(inner) - 1 and [dim.taps for dim in dims if dim.taps > 1] == [
        t.extent for t in inner[1:]
    ]
    if not channels or not is_in_order or not has_all or len(dims) > _DIMS or any(dim.taps > 1 for dim in dims[2:]):
        return None
    farthest = max((dim.stride * dim.extent for dim in dims), default=channels)
    while len(dims) < _DIMS:
        dims.append(PixelDim(axis=None, extent=1, stride=farthest))
    return Image(slot=load.slot, offset=offset, channels=channels, group_channels=channel.extent, dims=tuple(dims))


def _is_channels(form: Affine, channel: Axis, batch: Collection[Axis]) -> bool:
    """Whether an index is that of a channel within its group."""
    return form.coefficient(channel) == 1 and all(
        axis is channel or (axis in batch and coefficient == channel.extent) for axis, coefficient in form.terms
    )


def _pixels(
    form: Affine, extent: int, stride: int, rows: Sequence[Axis], inner: Sequence[Axis]
) -> tuple[PixelDim, int] | None:
    """A dimension that points and taps run along, and the elements before its first pixel."""
    points = [(axis, step) for axis, step in form.terms if axis in rows]
    taps = [(axis, step) for axis, step in form.terms if axis in inner]
    if len(points) > 1 or len(taps) > 1 or len(points) + len(taps) != len(form.terms):
        return None
    axis, step = points[0] if points else (None, 1)
    tap, dilation = taps[0] if taps else (None, 1)
    if step < 1 or dilation < 1:
        return None
    if step == 1:
        count = 1 if tap is None else tap.extent
        dim = PixelDim(axis=axis, extent=extent, stride=stride, taps=count, dilation=dilation, first=form.offset)
        return dim, 0
    if tap is not None or form.offset < 0:
        return None
    return PixelDim(axis=axis, extent=-(-(extent - form.offset) // step), stride=stride * step), form.offset * stride


def boxes(image: Image, most: int) -> list[dict[Axis, int]]:
    """Sizes of boxes of at most so many pixels, each of which covers the image in about equal parts."""
    found: list[dict[Axis, int]] = [{}]
    for dim in image.dims:
        if dim.axis is not None:
            extent = dim.axis.extent
            sizes = sorted({-(-extent // cut) for cut in range(1, min(extent, _MOST_CUTS) + 1)} | {1})
            found = [
                {**box, dim.axis: size} for box in found for size in sizes if math.prod(box.values()) * size <= most
            ]
    return found
