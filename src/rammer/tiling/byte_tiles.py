"""Products of bytes as tiles multiply them: 16 rows by 16 lanes of int32, up to 64 bytes of the sums at a time (AMX).

Weights in quads lie as a tile wants them: in a panel of 16 lanes each quad is a row of 64 bytes. Rows that lie evenly
in memory are loaded as they are, for one tap of a convolution after the other; others are copied.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, Load, TensorExpr
from rammer.ir.region import affine
from rammer.ir.types import Layout
from rammer.ir.vdevice import ByteProducts
from rammer.tiling.borders import Border, borders, borders_of
from rammer.tiling.pattern import (
    QUAD,
    Contraction,
    Group,
    Term,
    broadcast_loads,
    contraction,
    lies_in_quads,
    reduction_order,
    stride_along,
)

TILE_ROWS = 16
TILE_LANES = 16
TILE_QUADS = 16
TILES = 2
"""So many beside each other of a block's rows, and of its lanes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TileProduct:
    """A product along a lane: `row_load` has its rows, `lane_load` its lanes.

    Sums run over the axes in `order`, the quads of bytes that lie side by side last.
    """

    found: Contraction
    lane: Axis
    row_load: Load
    lane_load: Load
    order: tuple[Axis, ...]

    @property
    def group(self) -> Group:
        """All there is."""
        return self.found.groups[0]

    @property
    def term(self) -> Term:
        """The only sum."""
        return self.group.terms[0]

    @property
    def steps(self) -> Steps:
        """Along the last axis that is summed over."""
        return Steps.of(self.order[-1].extent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """How neighbouring quads are multiplied: `whole` times `quads` of them, then `rest`.

    Tiles keep their shapes, so that the rest is multiplied as the end of a whole step, with zeros before it.
    """

    quads: int
    whole: int
    rest: int

    @classmethod
    def of(cls, extent: int) -> Steps:
        """Equal steps, as few as there have to be, or else full ones."""
        count = -(-extent // TILE_QUADS)
        if extent % count == 0:
            return cls(quads=extent // count, whole=count, rest=0)
        return cls(quads=TILE_QUADS, whole=extent // TILE_QUADS, rest=extent % TILE_QUADS)


@lru_cache(maxsize=1024)
def tile_product(expr: TensorExpr, layouts: tuple[Layout, ...]) -> TileProduct | None:
    """An expression as a product of bytes by tiles; None where it is none, or its operands lie otherwise."""
    found = contraction(expr, ByteProducts.QUADS)
    if found is None or len(found.terms) > 1 or found.terms[0].quad is None:
        return None
    for lane in found.lanes:
        product = _along(expr, layouts, found, lane)
        if product is not None:
            return product
    return None


def _along(expr: TensorExpr, layouts: Sequence[Layout], found: Contraction, lane: Axis) -> TileProduct | None:
    (group,) = found.groups
    lanes, rows = found.split(group.terms[0], lane)
    summed = reduction_order(broadcast_loads(found, group, lane), group.axes, layouts)
    order = tuple(axis for axis in summed if axis is not group.quad)
    if not isinstance(lanes, Load) or not isinstance(rows, Load) or not order or group.quad is None:
        return None
    steps = [stride_along(rows.indices, layouts[rows.slot], axis) for axis in (order[-1], group.quad)]
    are_plain = layouts[rows.slot].panel is None and all(affine(index) is not None for index in rows.indices)
    if not are_plain or steps != [QUAD, 1] or not _is_panel(lanes, lane, group.quad, order[-1], layouts):
        return None
    edges = borders_of([rows], expr.inputs)
    if edges != borders([group.terms[0].reduce], expr.inputs) or not _are_of_taps(edges, order):
        return None
    return TileProduct(found=found, lane=lane, row_load=rows, lane_load=lanes, order=order)


def _are_of_taps(edges: Sequence[Border], order: Sequence[Axis]) -> bool:
    """Whether what is padding can be left out tap by tap, never within what is multiplied together."""
    taps = [[axis for axis in edge.axes if axis in order] for edge in edges]
    crossed = [axis for of_edge in taps for axis in of_edge]
    return all(taps) and len(set(crossed)) == len(crossed) and order[-1] not in crossed


def _is_panel(load: Load, lane: Axis, quad: Axis, inner: Axis, layouts: Sequence[Layout]) -> bool:
    """Whether quads that follow each other are the rows of a tile."""
    layout = layouts[load.slot]
    if layout.panel is None or layout.panel.width != TILE_LANES or not lies_in_quads(load, lane, quad, layouts):
        return False
    form = affine(load.indices[layout.panel.dim])
    if form is None or form.coefficient(lane) != 1:
        return False
    others = [coefficient for axis, coefficient in form.terms if axis is not lane]
    starts = all(step % TILE_LANES == 0 for step in (*others, form.offset))
    return starts and stride_along(load.indices, layout, inner) == TILE_LANES * QUAD


def row_step(load: Load, layout: Layout, rows: Sequence[Axis], offsets: Sequence[Sequence[int]]) -> int | None:
    """The bytes from each of some points along `rows` to the next; None where they do not lie evenly."""
    strides = [stride_along(load.indices, layout, axis) for axis in rows]
    places = [sum(i * stride for i, stride in zip(point, strides, strict=True)) for point in offsets]
    steps = {after - before for before, after in itertools.pairwise(places)}
    return None if len(steps) > 1 else max(steps, default=0)


def halves(sizes: Mapping[Axis, int], rows: Sequence[Axis]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The points of a block along its row axes, for one tile after the other.

    Whole lines where as few tiles have room for them: what lies evenly then is in one tile.
    """
    points = tuple(itertools.product(*(range(sizes[axis]) for axis in rows)))
    line = sizes[rows[-1]] if rows else 1
    lines = TILE_ROWS // line * line
    size = lines if lines and -(-len(points) // lines) <= TILES else TILE_ROWS
    return tuple(points[first : first + size] for first in range(0, len(points), size))
