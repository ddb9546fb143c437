"""Blocks of products of bytes that are kept in tiles (`tiling.byte_tiles`), and how long they take.

Costs are in slots: the time that a tile takes to multiply a row, of up to 64 bytes, by its lanes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from rammer.devices.vector.register import RegisterTile, pieces, row_choices
from rammer.ir.expr import Axis, TensorExpr
from rammer.ir.kernel_form import Instruction, Skeleton
from rammer.ir.task import RKernel
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import VDevice
from rammer.tiling.borders import borders_of
from rammer.tiling.byte_tiles import (
    TILE_LANES,
    TILE_QUADS,
    TILE_ROWS,
    TILES,
    TileProduct,
    halves,
    row_step,
    tile_product,
)
from rammer.tiling.pattern import MAX_UNROLLED_POINTS, product_skeleton

# Rows come from the first cache level, weights mostly from the second.
_ROW_SLOTS = 0.7
_QUAD_SLOTS = 1.5
_COPY_SLOTS = 2.0
# A tile of sums: set to zero, stored, loaded again by the epilogue.
_SUMS_SLOTS = 40.0
# Other shapes than the block before.
_SHAPES_SLOTS = 200.0
# Loads that are hidden behind arithmetic still cost something.
_HIDDEN = 0.3


def byte_tiles(expr: TensorExpr, layouts: Sequence[Layout], vdevice: VDevice) -> list[RegisterTile]:
    """All blocks that tiles have room for, cheapest first; none where an expression or a vDevice has no such products.

    A single row is left to vectors: tiles would wait for weights all the time.
    """
    product = tile_product(expr, tuple(layouts))
    if product is None or vdevice.tile_flops_per_us is None:
        return []
    found, lane = product.found, product.lane
    if product_skeleton(found, lane) is Skeleton.GEMV:
        return []
    tiles = []
    for rows, vectors in itertools.product(
        row_choices(expr, found, lane, TILES * TILE_ROWS, MAX_UNROLLED_POINTS), range(1, TILES + 1)
    ):
        if vectors > -(-lane.extent // TILE_LANES):
            continue
        sizes = {axis: rows.get(axis, 1) for axis in expr.axes} | {lane: vectors * TILE_LANES}
        tiles.append(
            RegisterTile(
                sizes=tuple(sizes.values()),
                lane=expr.axes.index(lane),
                blocks=math.prod(-(-axis.extent // size) for axis, size in sizes.items()),
                slots=_slots(expr, layouts, product, sizes),
                vector=vdevice.vector_bytes // DType.INT32.itemsize_bytes,
                scratch_bytes=math.prod(sizes.values()) * DType.INT32.itemsize_bytes,
                instruction=Instruction.TDPBUSD,
            )
        )
    return sorted(tiles, key=lambda tile: (tile.slots, tile.blocks))


def byte_tiles_us(kernel: RKernel, register: Sequence[int], vdevice: VDevice) -> float:
    """The time of the products of one full rTask whose blocks of these sizes are kept in tiles."""
    product, expr = tile_product(kernel.expr, kernel.layouts), kernel.expr
    if product is None or vdevice.tile_flops_per_us is None:
        raise ValueError("only products of bytes have tiles, on units with tiles")
    slots = _slots(expr, kernel.layouts, product, dict(zip(expr.axes, register, strict=True)))
    share = math.prod(kernel.tile.task) / math.prod(axis.extent for axis in expr.axes)
    slot_us = 2 * TILE_LANES * TILE_QUADS * 4 / vdevice.tile_flops_per_us.value
    return slots * share * slot_us


def _slots(expr: TensorExpr, layouts: Sequence[Layout], product: TileProduct, sizes: Mapping[Axis, int]) -> float:
    """The cost of all blocks; incomplete ones have fewer rows or vectors."""
    rows = product.found.rows(expr.axes, product.lane)
    blocks, repeats = [(1, 1)], 1
    for axis in expr.axes:
        if axis in rows:
            blocks = [(n * m, r * s) for n, r in blocks for m, s in pieces(axis.extent, sizes[axis])]
        elif axis is not product.lane:
            repeats *= axis.extent
    lanes = pieces(-(-product.lane.extent // TILE_LANES), sizes[product.lane] // TILE_LANES)
    copied = _copied(expr, layouts, product, sizes)
    reshaped = 2 * _SHAPES_SLOTS * (sum(count for count, _ in blocks) - max(count for count, _ in blocks))
    return repeats * sum(
        lane_count
        * (reshaped + sum(count * _block_slots(product, height, vectors, copied) for count, height in blocks))
        for lane_count, vectors in lanes
    )


def _block_slots(product: TileProduct, rows: int, vectors: int, copied: float) -> float:
    """The cost of one block, of whose rows a share is copied before it is loaded."""
    steps = product.steps
    count = math.prod(axis.extent for axis in product.order[:-1]) * (steps.whole + (steps.rest > 0))
    arithmetic = rows * vectors
    loads = rows * (_ROW_SLOTS + _COPY_SLOTS * copied) + vectors * steps.quads * _QUAD_SLOTS
    tiles = -(-rows // TILE_ROWS) * vectors
    return count * (max(arithmetic, loads) + _HIDDEN * loads) + tiles * _SUMS_SLOTS


def _copied(expr: TensorExpr, layouts: Sequence[Layout], product: TileProduct, sizes: Mapping[Axis, int]) -> float:
    """The share of rows that are copied.

    All where they lie unevenly, else those of a tile that a tap moves over a border, or of a last step that is not
    whole.
    """
    blocked = [axis for axis in product.found.rows(expr.axes, product.lane) if sizes[axis] > 1]
    load = product.row_load
    first, *_ = halves(sizes, blocked)
    if row_step(load, layouts[load.slot], blocked, first) is None:
        return 1.0
    share = 1.0 / (product.steps.whole + 1) if product.steps.rest else 0.0
    for border in borders_of([load], expr.inputs):
        for axis in border.axes:
            if axis in blocked:
                taps = math.prod(other.extent for other in border.axes if other is not axis)
                share += (taps - 1) / (taps * -(-axis.extent // TILE_ROWS))
    return min(share, 1.0)
