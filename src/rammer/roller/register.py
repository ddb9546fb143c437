"""The register level of a contraction: which axis runs along lanes, and how many rows and vectors a block has.

Costs are in slots: the time of one vector multiply-add at full throughput.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rammer.ir.expr import Axis, Cast, Expr, Load, TensorExpr
from rammer.ir.pattern import Contraction, borders, contraction, is_blockable, plain_load, stride_along
from rammer.ir.task import RKernel
from rammer.ir.types import Layout
from rammer.ir.vdevice import VDevice

_MAX_ROWS = 16
_MAX_VECTORS = 8
# Accumulators that hide the latency of a multiply-add.
_MIN_ACCUMULATORS = 8
# A vector of the lane operand mostly comes from the second cache level; a scalar stays in the first.
_VECTOR_LOAD_SLOTS = 2.0
_SCALAR_LOAD_SLOTS = 0.5
_CONVERTED_LOAD_SLOTS = 6.0
_LANE_SLOTS = 1.5
# Vectors of lane operands are streams far apart, often by powers of two; more of them evict each other from a cache.
_MAX_STREAMS = 8
_EVICTED_SLOTS = 2.0
# Loads that are hidden behind arithmetic still cost something: it decides between equals.
_HIDDEN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTile:
    """A block of accumulators: sizes over the spatial axes; that of axis number `lane` is whole vectors.

    `slots` is what all blocks together cost for one reduction point.
    """

    sizes: tuple[int, ...]
    lane: int
    blocks: int
    slots: float


def register_tiles(
    expr: TensorExpr, found: Contraction, layouts: Sequence[Layout], vdevice: VDevice
) -> list[RegisterTile]:
    """All register tiles that fit the register file, cheapest first."""
    tiles = []
    for lane in found.lanes:
        micro = _Micro.of(expr, found, lane, layouts, vdevice)
        vector_counts = range(1, min(_MAX_VECTORS, -(-lane.extent // micro.vector)) + 1)
        for rows, vectors in itertools.product(_row_choices(expr, found, lane), vector_counts):
            if micro.fits(rows, vectors, vdevice.vector_registers):
                sizes = {axis: rows.get(axis, 1) for axis in expr.axes} | {lane: vectors * micro.vector}
                tiles.append(
                    RegisterTile(
                        sizes=tuple(sizes.values()),
                        lane=expr.axes.index(lane),
                        blocks=math.prod(-(-axis.extent // size) for axis, size in sizes.items()),
                        slots=micro.slots(sizes),
                    )
                )
    return sorted(tiles, key=lambda tile: (tile.slots, tile.blocks))


def efficiency(kernel: RKernel, vdevice: VDevice) -> float:
    """The fraction of the peak that the micro-kernel of a contraction can reach."""
    found, tile = contraction(kernel.expr), kernel.tile
    if found is None or tile.lane is None:
        raise ValueError("only a contraction has a micro-kernel")
    micro = _Micro.of(kernel.expr, found, kernel.expr.axes[tile.lane], kernel.layouts, vdevice)
    return micro.ideal_slots / micro.slots(dict(zip(kernel.expr.axes, tile.register, strict=True)))


def _row_choices(expr: TensorExpr, found: Contraction, lane: Axis) -> Iterator[dict[Axis, int]]:
    """Rows along one axis, or along all of a short one and a second one.

    Rows at a border multiply the code by the points they unroll, so only one axis may have a border.
    """
    rows = [axis for axis in found.rows(expr.axes, lane) if is_blockable(found, axis, expr.inputs)]
    edges = [edge for group in found.groups for edge in borders([term.reduce for term in group.terms], expr.inputs)]
    bordered = {axis for edge in edges for axis in edge.axes}
    yield {}
    for axis in reversed(rows):
        for size in range(2, min(axis.extent, _MAX_ROWS) + 1):
            yield {axis: size}
    for whole, cut in itertools.permutations(reversed(rows), 2):
        if not {whole, cut} <= bordered:
            for size in range(2, min(cut.extent, _MAX_ROWS // whole.extent) + 1):
                yield {whole: whole.extent, cut: size}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """What a group of sums loads for each reduction point: slots per vector of lanes and per row."""

    sums: int
    lane_operands: int
    vector_slots: float
    row_slots: float

    def registers(self, rows: int, vectors: int) -> int:
        """Vector registers that a block takes. A lane operand that is used once comes from memory."""
        held = self.lane_operands * vectors if rows > 1 else 0
        return self.sums * rows * vectors + held + 2

    def slots(self, rows: int, vectors: int) -> float:
        """The cost of one reduction point of a block."""
        arithmetic = self.sums * rows * vectors
        evicted = _EVICTED_SLOTS * max(0, self.lane_operands * vectors - _MAX_STREAMS)
        loads = self.vector_slots * vectors + self.row_slots * rows + evicted
        return max(arithmetic, loads, _MIN_ACCUMULATORS) + _HIDDEN * loads


@dataclass(frozen=True, slots=True, kw_only=True)
class _Micro:
    """A contraction along one lane axis."""

    expr: TensorExpr
    lane: Axis
    vector: int
    groups: tuple[_Group, ...]

    @classmethod
    def of(
        cls, expr: TensorExpr, found: Contraction, lane: Axis, layouts: Sequence[Layout], vdevice: VDevice
    ) -> _Micro:
        """The costs of a contraction's loads."""
        vector = vdevice.vector_bytes // found.terms[0].reduce.dtype.itemsize_bytes
        groups = []
        for group in found.groups:
            edges = borders([term.reduce for term in group.terms], expr.inputs)
            leaving = [border.load for border in edges if lane in border.axes]
            operands = dict.fromkeys(found.split(term, lane)[0] for term in group.terms)
            others = dict.fromkeys(found.split(term, lane)[1] for term in group.terms)
            groups.append(
                _Group(
                    sums=len(group.terms),
                    lane_operands=len(operands),
                    vector_slots=sum(_vector_slots(operand, lane, leaving, layouts, vector) for operand in operands),
                    row_slots=_SCALAR_LOAD_SLOTS * len(others),
                )
            )
        return cls(expr=expr, lane=lane, vector=vector, groups=tuple(groups))

    @property
    def ideal_slots(self) -> float:
        """Multiply-adds of whole vectors for one reduction point, over the domain."""
        points = math.prod(axis.extent for axis in self.expr.axes)
        return sum(group.sums for group in self.groups) * points / self.vector

    def fits(self, rows: Mapping[Axis, int], vectors: int, registers: int) -> bool:
        """Whether a block stays in the register file."""
        return all(group.registers(math.prod(rows.values()), vectors) <= registers for group in self.groups)

    def slots(self, sizes: Mapping[Axis, int]) -> float:
        """The cost of all blocks for one reduction point; incomplete ones have fewer rows or vectors."""
        row_blocks = [(1, 1)]
        for axis in self.expr.axes:
            if axis is not self.lane:
                pieces = _pieces(axis.extent, sizes[axis])
                row_blocks = [(n * m, r * s) for n, r in row_blocks for m, s in pieces]
        lane_blocks = _pieces(-(-self.lane.extent // self.vector), sizes[self.lane] // self.vector)
        return sum(
            row_count * lane_count * group.slots(rows, vectors)
            for group in self.groups
            for row_count, rows in row_blocks
            for lane_count, vectors in lane_blocks
        )


def _vector_slots(operand: Expr, lane: Axis, leaving: Sequence[Load], layouts: Sequence[Layout], vector: int) -> float:
    """The cost of a vector of a lane operand: lanes that lie apart, or may be padding, are gathered one by one."""
    load = plain_load(operand)
    if load is None or load in leaving or stride_along(load.indices, layouts[load.slot], lane) != 1:
        return _LANE_SLOTS * vector
    return _CONVERTED_LOAD_SLOTS if isinstance(operand, Cast) else _VECTOR_LOAD_SLOTS


def _pieces(extent: int, size: int) -> list[tuple[int, int]]:
    """(how many, size) of the whole pieces and of the rest."""
    whole, rest = divmod(extent, size)
    return [(count, length) for count, length in ((whole, size), (1, rest)) if count and length]
