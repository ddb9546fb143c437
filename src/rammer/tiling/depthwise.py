"""Depthwise convolutions as a block of a GPU computes them: sums over windows of an image, channel by channel.

Neighbouring points of a channel read windows that overlap. So an rTask's part of the image (a *patch*: all that its
windows reach, padding included) and its weights are copied into shared memory once, and a thread takes several
neighbouring points of a few channels, for which it reads each row of the patch once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, Expr, Load, Reduce, TensorExpr, nodes
from rammer.ir.kernel_form import DepthwiseForm
from rammer.ir.task import RTile
from rammer.ir.types import Layout
from rammer.tiling.addresses import accesses_of
from rammer.tiling.patches import Window, extents, windows_of
from rammer.tiling.pattern import Term, contraction, free_axes
from rammer.tiling.rows import outer_reductions

CHANNELS = 2  # neighbours of a thread
_COPIES_BYTES = (16, 8, 4)  # that one instruction copies
_ALIGNMENT_BYTES = 16
_UNROLLED = 16  # elements of a window, at most, whose rows are unrolled


@dataclass(frozen=True, slots=True, kw_only=True)
class Depthwise:
    """An expression whose only outer reduction is a sum over windows of `image`, times `weight`.

    Attributes:
        reduce: the sum.
        image: what windows slide over. `of_image` is the factor that is computed of it, elementwise.
        weight: what depends on the channel and the tap alone. `of_weight` is its factor.
        channel: the axis that both have.
        windows: of the image's other dimensions, as they lie in memory, outermost first. Threads have neighbouring
            points along the last.
    """

    reduce: Reduce
    image: Load
    of_image: Expr
    weight: Load
    of_weight: Expr
    channel: Axis
    windows: tuple[Window, ...]

    @property
    def run(self) -> Window:
        """The window whose neighbouring points a thread has."""
        return self.windows[-1]

    @property
    def along(self) -> Axis:
        """The axis of these points."""
        assert self.run.axis is not None  # of windows without one, there is no last
        return self.run.axis

    @property
    def taps(self) -> tuple[Axis, ...]:
        """The axes of the sum, as weights lie in shared memory: those of `windows` in their order."""
        return tuple(window.tap for window in self.windows if window.tap is not None)

    def patch(self, sizes: Mapping[Axis, int]) -> tuple[int, ...]:
        """The extents of the patch of an rTask of these sizes, by window."""
        return extents(self.windows, sizes)

    def image_bytes(self, sizes: Mapping[Axis, int]) -> int:
        """Shared memory that a patch takes."""
        size_bytes = math.prod(self.patch(sizes)) * sizes[self.channel] * self.image.type.itemsize_bytes
        return -(-size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES

    def weight_bytes(self, sizes: Mapping[Axis, int]) -> int:
        """Shared memory that weights take."""
        taps = math.prod(window.taps for window in self.windows)
        return taps * sizes[self.channel] * self.weight.type.itemsize_bytes


@lru_cache(maxsize=1024)
def depthwise(expr: TensorExpr, layouts: tuple[Layout, ...], alignments: tuple[int, ...]) -> Depthwise | None:
    """An expression as a depthwise convolution whose channels lie side by side; None if it is none."""
    found, (reductions, _) = contraction(expr), outer_reductions(expr)
    if found is None or len(found.terms) != 1 or len(reductions) != 1 or not alignments or expr.guards:
        return None
    if any(layout.tagged for layout in layouts):
        return None
    (term,) = found.terms
    for channel in found.shared:
        split = _split(term, channel, expr)
        if split is None:
            continue
        (of_image, image), (of_weight, weight) = split
        windows = _windows(image, channel, expr, layouts[image.slot], term.reduce)
        result = Depthwise(
            reduce=term.reduce,
            image=image,
            of_image=of_image,
            weight=weight,
            of_weight=of_weight,
            channel=channel,
            windows=windows,
        )
        if windows and chunks(result, expr, layouts, alignments) is not None:
            return result
    return None


@lru_cache(maxsize=512)
def chunks(
    found: Depthwise, expr: TensorExpr, layouts: tuple[Layout, ...], alignments: tuple[int, ...]
) -> tuple[int, int] | None:
    """Channels of the image and of weights that one instruction copies; None where they do not lie so."""
    accesses = accesses_of(expr, layouts)
    sizes = []
    for one in (found.image, found.weight):
        of_size = (size_bytes // one.type.itemsize_bytes for size_bytes in _COPIES_BYTES)
        fitting = (
            size
            for size in of_size
            if size
            and found.channel.extent % max(size, CHANNELS) == 0
            and accesses.lies_in_groups(one, found.channel, size, alignments)
        )
        sizes.append(next(fitting, 0))
    return (sizes[0], sizes[1]) if min(sizes) >= 1 else None


def _split(term: Term, channel: Axis, expr: TensorExpr) -> tuple[tuple[Expr, Load], tuple[Expr, Load]] | None:
    """The factors of a sum of products with the load that each is computed of, the image's first."""
    free = free_axes(term.reduce)
    pairs = []
    for operand in sorted(term.operands, key=lambda one: -len(free[one])):
        loads = [node for node in nodes(operand) if isinstance(node, Load)]
        if len(loads) != 1 or not _is_elementwise(operand, loads[0]):
            return None
        pairs.append((operand, loads[0]))
    (_, image), (of_weight, weight) = pairs
    if weight.fill is not None or (image.fill is not None and image.fill.value != 0):
        return None
    points = set(expr.axes) - {channel}
    if channel not in free[image] or channel not in free[weight] or not free[of_weight].isdisjoint(points):
        return None
    return pairs[0], pairs[1]


def _is_elementwise(operand: Expr, of: Load) -> bool:
    """Whether a factor is computed of one load and of numbers alone, not of positions."""
    stack = [operand]
    while stack:
        node = stack.pop()
        if isinstance(node, Axis | Reduce):
            return False
        if node is not of:
            stack.extend(node.children)
    return True


def _windows(image: Load, channel: Axis, expr: TensorExpr, layout: Layout, reduce: Reduce) -> tuple[Window, ...]:
    """The windows of an image, the one that slides along the nearest points last; none unless all axes are of them."""
    found = windows_of(image, channel, layout, reduce.axes)
    seen = {axis for window in found for axis in (window.axis, window.tap) if axis is not None}
    if seen | {channel} != {*expr.axes, *reduce.axes}:
        return ()
    slides_last = sorted(found, key=lambda one: one.axis is not None and one.tap is not None)
    return tuple(slides_last) if slides_last[-1].axis is not None and slides_last[-1].tap is not None else ()


def depthwise_form(
    found: Depthwise, expr: TensorExpr, tile: RTile, threads: int, points: int, room_bytes: int
) -> DepthwiseForm | None:
    """The form of rTasks of a tile whose threads have so many points; None where the patch is too large.

    Args:
        found: the expression as a depthwise convolution.
        expr: the expression.
        tile: what an rTask computes.
        threads: of a block.
        points: neighbouring ones of a thread, a divisor of what the tile has along their axis.
        room_bytes: shared memory for the patch and the weights.
    """
    sizes = dict(zip(expr.axes, tile.task, strict=True))
    scratch_bytes = found.image_bytes(sizes) + found.weight_bytes(sizes)
    if scratch_bytes > room_bytes:
        return None
    unrolled = math.prod(window.taps for window in found.windows) <= _UNROLLED
    return DepthwiseForm(
        threads=threads, scratch_bytes=scratch_bytes, vector=CHANNELS, points=points, unrolled=unrolled
    )
