"""Patches: the part of an image that the windows of an rTask reach, padding included, in shared memory.

Neighbouring points read windows that overlap. A block copies their patch once, and reads each window from there.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, Const, Load, TensorExpr
from rammer.ir.kernel_form import Instruction
from rammer.ir.region import affine
from rammer.ir.types import Layout
from rammer.tiling.addresses import Accesses
from rammer.tiling.gemm import INSTRUCTION_TILES, gemm_axes, group_order, instruction_of, staged_operand
from rammer.tiling.pattern import contraction, stride_along

CHUNK_BYTES = 16  # that one instruction copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A dimension of the image along which windows slide: point `axis` has element `stride * axis + dilation * tap`.

    Without an axis the image has one window there, without a tap windows of one element.
    """

    dim: int
    axis: Axis | None
    stride: int
    tap: Axis | None
    dilation: int
    offset: int

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return 1 if self.tap is None else self.tap.extent

    def reach(self, points: int) -> int:
        """Elements from the first to the last of so many neighbouring windows."""
        return (points - 1) * self.stride + (self.taps - 1) * self.dilation + 1


def windows_of(image: Load, channel: Axis, layout: Layout, taps: Collection[Axis]) -> tuple[Window, ...]:
    """The dimensions of an image beside its channels, as they lie in memory, outermost first.

    None unless channels lie side by side along a dimension of their own, and each other axis goes along one dimension
    alone, upwards; those that are `taps` are of a window.
    """
    if layout.panel is not None or stride_along(image.indices, layout, channel) != 1:
        return ()
    seen: list[Axis] = []
    found = []
    for dim, index in enumerate(image.indices):
        form = affine(index)
        if form is None or any(coefficient < 1 for _, coefficient in form.terms):
            return ()
        if not form.terms:
            continue
        seen.extend(axis for axis, _ in form.terms)
        if form.coefficient(channel):
            if len(form.terms) > 1:
                return ()
            continue
        points, of_window = ([term for term in form.terms if (term[0] in taps) is is_tap] for is_tap in (False, True))
        if len(points) > 1 or len(of_window) > 1:
            return ()
        axis, stride = points[0] if points else (None, 1)
        tap, dilation = of_window[0] if of_window else (None, 1)
        found.append(Window(dim=dim, axis=axis, stride=stride, tap=tap, dilation=dilation, offset=form.offset))
    if len(seen) != len(set(seen)):
        return ()
    return tuple(sorted(found, key=lambda one: -layout.strides[one.dim]))


def extents(windows: Sequence[Window], sizes: Mapping[Axis, int]) -> tuple[int, ...]:
    """The extents of the patch of an rTask of these sizes, by window."""
    return tuple(window.reach(1 if window.axis is None else sizes[window.axis]) for window in windows)


def patch_load(image: Load, windows: Sequence[Window], axes: Sequence[Axis]) -> Load:
    """The load of a patch's element at the positions along `axes`, one for each window; beyond the image it is 0."""
    indices = list(image.indices)
    for window, axis in zip(windows, axes, strict=True):
        indices[window.dim] = axis + window.offset
    return Load(image.slot, tuple(indices), image.type, Const(0.0, image.type))


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowProduct:
    """A product by tensor cores whose rows are windows of an image. Its sums run over channels first, side by side.

    `taps` are the other axes of its sums, fastest first; `chunk` channels are one copy. Pixels of a patch lie `pitch`
    elements apart.
    """

    image: Load
    channel: Axis
    windows: tuple[Window, ...]
    taps: tuple[Axis, ...]
    chunk: int
    pitch: int

    def pixels(self, sizes: Mapping[Axis, int]) -> int:
        """Of the patch of an rTask of these sizes."""
        return math.prod(extents(self.windows, sizes))

    def patch_bytes(self, sizes: Mapping[Axis, int]) -> int:
        """Shared memory that it takes."""
        return self.pixels(sizes) * self.pitch * self.image.type.itemsize_bytes


@lru_cache(maxsize=1024)
def window_product(
    expr: TensorExpr, layouts: tuple[Layout, ...], alignments: tuple[int, ...], lane: int | None
) -> WindowProduct | None:
    """An expression as a product of windows with a matrix; None if it is none, or of other elements than 16 bits."""
    found = contraction(expr)
    if found is None or lane is None or len(found.terms) != 1 or expr.guards:
        return None
    (group,), (term,), axes = found.groups, found.terms, gemm_axes(expr, lane)
    instruction = instruction_of(found)
    if axes.batch or instruction not in (Instruction.MMA_F16, Instruction.MMA_BF16):
        return None
    if any(layout.tagged for layout in layouts[: len(expr.inputs)]):
        return None
    _, of_row = found.split(term, expr.axes[lane])
    image = staged_operand(of_row, instruction)
    if not isinstance(image, Load) or (image.fill is not None and image.fill.value != 0):
        return None
    *outer, channel = group_order(group, layouts)
    windows = windows_of(image, channel, layouts[image.slot], outer)
    chunk = CHUNK_BYTES // image.type.itemsize_bytes
    if (
        not outer
        or {one.axis for one in windows} - {None} != {*axes.m}
        or {one.tap for one in windows} - {None} != {*outer}
    ):
        return None
    if channel.extent % INSTRUCTION_TILES[instruction].least_k:
        return None
    if not Accesses(expr, layouts).lies_in_groups(image, channel, chunk, alignments):
        return None
    return WindowProduct(
        image=image,
        channel=channel,
        windows=windows,
        taps=tuple(outer[::-1]),
        chunk=chunk,
        pitch=channel.extent + INSTRUCTION_TILES[instruction].padding,
    )
