"""The register level of a contraction: which axis runs along lanes, and how many rows and vectors a block has.

Costs are in slots: the time of one vector multiply-add at full throughput.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rammer.ir.expr import Axis, Expr, Load, TensorExpr
from rammer.ir.kernel_form import Instruction, MicroKernelForm, Skeleton
from rammer.ir.task import RKernel
from rammer.ir.types import DType, Layout
from rammer.ir.vdevice import ByteProducts, VDevice
from rammer.tiling.borders import borders, is_blockable
from rammer.tiling.packing import pack_points, packed_operands, scattered_operands
from rammer.tiling.pattern import (
    Contraction,
    Group,
    contraction,
    lane_load,
    lies_in_lanes,
    plain_load,
    product_skeleton,
    sliding_axes,
    stride_along,
)

_MAX_ROWS = 16
_MAX_VECTORS = 8
_LEAST_VECTOR_BYTES = 16
# Accumulators that hide the latency of a multiply-add.
_MIN_ACCUMULATORS = 8
# A vector of the lane operand mostly comes from the second cache level; what rows load stays in the first.
_VECTOR_LOAD_SLOTS = 2.0
_NEAR_LOAD_SLOTS = 1.0
_WIDENED_LOAD_SLOTS = 2.0
_SCALAR_LOAD_SLOTS = 0.5
_CONVERTED_LOAD_SLOTS = 6.0
_LANE_SLOTS = 1.5
# Vectors of lane operands are streams far apart, often by powers of two; more of them evict each other from a cache.
_MAX_STREAMS = 8
_EVICTED_SLOTS = 2.0
# Of panels, where they come from further away than a unit's own caches.
_MAX_FAR_STREAMS = 2
# A first cache level finds lines that are a page apart in one set of so many ways; each row beyond costs so much.
_PAGE_BYTES, _LINE_BYTES, _WAYS = 4096, 64, 8
_CROWDED_SLOTS = 1.0
# Loads that are hidden behind arithmetic still cost something: it decides between equals.
_HIDDEN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTile:
    """A block of accumulators: sizes over the spatial axes; that of axis number `lane` is whole vectors.

    `vector` is the elements of a vector. `slots` is what all blocks together cost, of vectors for one reduction point;
    `scratch_bytes` holds the sums of a block and the copies of its lane operands. Registers are vectors, or those of an
    `instruction`. The lane operand may be one that `streams`: it is read once, from further away than units' own
    caches.
    """

    sizes: tuple[int, ...]
    lane: int
    blocks: int
    slots: float
    vector: int
    scratch_bytes: int
    instruction: Instruction | None = None
    streams: bool = False


def register_tiles(
    expr: TensorExpr, found: Contraction, layouts: Sequence[Layout], vdevice: VDevice
) -> list[RegisterTile]:
    """All register tiles that fit the register file, cheapest first."""
    tiles = []
    for lane in (*found.lanes, *found.shared):
        micro = _Micro.of(expr, found, lane, layouts, vdevice)
        vector_counts = range(1, min(_MAX_VECTORS, -(-lane.extent // micro.vector)) + 1)
        for rows, vectors in itertools.product(row_choices(expr, found, lane, _MAX_ROWS), vector_counts):
            if micro.fits(rows, vectors, vdevice.vector_registers):
                sizes = {axis: rows.get(axis, 1) for axis in expr.axes} | {lane: vectors * micro.vector}
                tiles.append(
                    RegisterTile(
                        sizes=tuple(sizes.values()),
                        lane=expr.axes.index(lane),
                        blocks=math.prod(-(-axis.extent // size) for axis, size in sizes.items()),
                        slots=micro.slots(sizes),
                        vector=micro.vector,
                        scratch_bytes=micro.scratch_bytes(sizes),
                        streams=micro.streams,
                    )
                )
    return sorted(tiles, key=lambda tile: (tile.slots, tile.blocks))


def efficiency(kernel: RKernel, vdevice: VDevice) -> float:
    """The fraction of the peak that the micro-kernel of a contraction can reach."""
    found, tile, form = contraction(kernel.expr, ByteProducts.QUADS), kernel.tile, kernel.form
    if found is None or tile.lane is None or not isinstance(form, MicroKernelForm):
        raise ValueError("only a contraction has a micro-kernel")
    micro = _Micro.of(kernel.expr, found, kernel.expr.axes[tile.lane], kernel.layouts, vdevice)
    return micro.ideal_slots / micro.slots(dict(zip(kernel.expr.axes, form.register, strict=True)))


def row_choices(
    expr: TensorExpr, found: Contraction, lane: Axis, most: int, most_taps: int = 0
) -> Iterator[dict[Axis, int]]:
    """At most so many rows along one axis, or along all of a short one and a second one.

    Rows at a border multiply the code by the points they unroll, so only one axis may have a border, but where all
    borders together unroll no more points than `most_taps`.
    """
    rows = [axis for axis in found.rows(expr.axes, lane) if is_blockable(found, axis, expr.inputs)]
    edges = [edge for group in found.groups for edge in borders([term.reduce for term in group.terms], expr.inputs)]
    bordered = {axis for edge in edges for axis in edge.axes}
    taps = math.prod(axis.extent for axis in bordered.difference(expr.axes))
    yield {}
    for axis in reversed(rows):
        for size in range(2, min(axis.extent, most) + 1):
            yield {axis: size}
    for whole, cut in itertools.permutations(reversed(rows), 2):
        if not {whole, cut} <= bordered or taps <= most_taps:
            for size in range(2, min(cut.extent, most // whole.extent) + 1):
                yield {whole: whole.extent, cut: size}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Micro:
    """A contraction along one lane axis."""

    expr: TensorExpr
    found: Contraction
    lane: Axis
    vector: int
    whole_vector: int
    layouts: Sequence[Layout]
    scattered: tuple[tuple[Group, Expr], ...]
    converted: frozenset[Expr]
    near: frozenset[Expr]
    streams: bool
    most_vectors: int

    @classmethod
    def of(
        cls, expr: TensorExpr, found: Contraction, lane: Axis, layouts: Sequence[Layout], vdevice: VDevice
    ) -> _Micro:
        """The micro-kernels of a vDevice."""
        scattered = scattered_operands(expr, found, lane, layouts)
        loads = [(operand, plain_load(operand)) for _, operand in scattered]
        others = [found.split(term, lane)[1] for term in found.terms]
        streams = _streams(expr, found, lane, layouts, vdevice)
        return cls(
            expr=expr,
            found=found,
            lane=lane,
            vector=_elements(found, lane, vdevice),
            whole_vector=vdevice.vector_bytes // found.terms[0].reduce.dtype.itemsize_bytes,
            layouts=layouts,
            scattered=scattered,
            converted=frozenset(
                operand for operand, load in loads if load is not None and lies_in_lanes(load, lane, expr, layouts)
            ),
            near=frozenset(other for other in others if lies_in_lanes(other, lane, expr, layouts)),
            streams=streams,
            most_vectors=_MAX_FAR_STREAMS * vdevice.stream_bytes // vdevice.vector_bytes if streams else _MAX_STREAMS,
        )

    @property
    def ideal_slots(self) -> float:
        """Multiply-adds of whole vectors for one reduction point, over the domain."""
        return len(self.found.terms) * math.prod(axis.extent for axis in self.expr.axes) / self.whole_vector

    def fits(self, rows: Mapping[Axis, int], vectors: int, registers: int) -> bool:
        """Whether a block stays in the register file. A lane operand that is used once comes from memory."""
        height = math.prod(rows.values())
        needs = []
        for group in self.found.groups:
            taps = math.prod(axis.extent for axis in sliding_axes(self.found, group, rows, self.lane))
            operands = len(self._lane_operands(group)) * taps if height > 1 else 0
            needs.append((len(group.terms) * height + operands) * vectors + 2)
        return max(needs) <= registers

    def slots(self, sizes: Mapping[Axis, int]) -> float:
        """The cost of all blocks for one reduction point; incomplete ones have fewer rows or vectors."""
        rows = self.found.rows(self.expr.axes, self.lane)
        blocks = [(1, 1)]
        repeats = 1
        for axis in self.expr.axes:
            if axis in rows:
                blocks = [(n * m, r * s) for n, r in blocks for m, s in pieces(axis.extent, sizes[axis])]
            elif axis is not self.lane:
                repeats *= axis.extent
        packed = self._packed(sizes)
        copy_slots = _LANE_SLOTS * self.vector * len(packed)
        crowded_slots = _CROWDED_SLOTS * self._crowded(sizes) * sum(count for count, _ in blocks)
        lane_blocks = pieces(-(-self.lane.extent // self.vector), sizes[self.lane] // self.vector)
        return repeats * sum(
            lane_count * (copy_slots * vectors + crowded_slots + self._block_slots(blocks, sizes, vectors, packed))
            for lane_count, vectors in lane_blocks
        )

    def scratch_bytes(self, sizes: Mapping[Axis, int]) -> int:
        """Bytes of the sums of a block and of copies."""
        copied = sum(pack_points(self.found, group, operand) for group, operand in self._packed(sizes))
        elements = math.prod(sizes.values()) * len(self.found.terms) + copied * sizes[self.lane]
        return elements * self.found.terms[0].reduce.dtype.itemsize_bytes

    def _packed(self, sizes: Mapping[Axis, int]) -> tuple[tuple[Group, Expr], ...]:
        """The lane operands that are copied."""
        rows = math.prod(sizes[axis] for axis in self.found.rows(self.expr.axes, self.lane))
        return packed_operands(self.found, self.scattered, sizes[self.lane], rows)

    def _block_slots(
        self,
        blocks: Sequence[tuple[int, int]],
        sizes: Mapping[Axis, int],
        vectors: int,
        packed: Collection[tuple[Group, Expr]],
    ) -> float:
        """The cost of all blocks of rows beside one block of lanes."""
        total = 0.0
        for group in self.found.groups:
            operands = self._lane_operands(group)
            others = dict.fromkeys(self.found.split(term, self.lane)[1] for term in group.terms)
            row_slots = sum(self._row_slots(other, vectors) * self._unshared(group, other, sizes) for other in others)
            evicted = _EVICTED_SLOTS * max(0, len(operands) * vectors - self.most_vectors)
            lanes = sum(self._vector_slots((group, operand), packed) for operand in operands)
            for count, rows in blocks:
                loads = lanes * vectors + evicted + row_slots * rows
                arithmetic = len(group.terms) * rows * vectors
                total += count * (max(arithmetic, loads, _MIN_ACCUMULATORS) + _HIDDEN * loads)
        return total

    def _crowded(self, sizes: Mapping[Axis, int]) -> int:
        """Rows of a block beyond those that a set of the first cache level holds, for each of its rows' operands."""
        rows = self.found.rows(self.expr.axes, self.lane)
        if math.prod(sizes[axis] for axis in rows) <= _WAYS:
            return 0
        crowded = 0
        others = {lane_load(self.found.split(term, self.lane)[1]) for term in self.found.terms}
        for load in others - {None}:
            assert load is not None
            steps = [
                stride_along(load.indices, self.layouts[load.slot], axis) * load.type.itemsize_bytes for axis in rows
            ]
            points = itertools.product(*(range(sizes[axis]) for axis in rows))
            lines = {sum(i * step for i, step in zip(point, steps, strict=True)) // _LINE_BYTES for point in points}
            sets = Counter(line % (_PAGE_BYTES // _LINE_BYTES) for line in lines)
            crowded += max(0, max(sets.values()) - _WAYS)
        return crowded

    def _unshared(self, group: Group, other: Expr, sizes: Mapping[Axis, int]) -> float:
        """The part of a rows' operand that is loaded, where windows overlap and what they share is loaded once."""
        rows = [axis for axis in self.found.rows(self.expr.axes, self.lane) if sizes[axis] > 1]
        taps = sliding_axes(self.found, group, rows, self.lane)
        load = lane_load(other)
        if not taps or load is None:
            return 1.0
        steps = [stride_along(load.indices, self.layouts[load.slot], axis) for axis in (*rows, *taps)]
        lengths = [*(sizes[axis] for axis in rows), *(axis.extent for axis in taps)]
        points = itertools.product(*map(range, lengths))
        places = {sum(i * step for i, step in zip(point, steps, strict=True)) for point in points}
        return len(places) / math.prod(lengths)

    def _row_slots(self, other: Expr, vectors: int) -> float:
        """The cost of the operand that is not kept for all rows, for one row."""
        if self.lane not in self.found.free[other]:
            return _SCALAR_LOAD_SLOTS
        if other not in self.near:
            return vectors * _LANE_SLOTS * self.vector
        return vectors * (_NEAR_LOAD_SLOTS if isinstance(other, Load) else _WIDENED_LOAD_SLOTS)

    def _lane_operands(self, group: Group) -> tuple[Expr, ...]:
        return tuple(dict.fromkeys(self.found.split(term, self.lane)[0] for term in group.terms))

    def _vector_slots(self, member: tuple[Group, Expr], packed: Collection[tuple[Group, Expr]]) -> float:
        """The cost of a vector of a lane operand: what does not lie in lanes is gathered one by one."""
        if member in packed or member not in self.scattered:
            return _VECTOR_LOAD_SLOTS
        return _CONVERTED_LOAD_SLOTS if member[1] in self.converted else _LANE_SLOTS * self.vector


def pieces(extent: int, size: int) -> list[tuple[int, int]]:
    """(how many, size) of the whole pieces and of the rest."""
    whole, rest = divmod(extent, size)
    return [(count, length) for count, length in ((whole, size), (1, rest)) if count and length]


def _elements(found: Contraction, lane: Axis, vdevice: VDevice) -> int:
    """The elements of a vector along a lane: a half or a quarter of a whole one where that holds all lanes.

    Vectors with empty lanes cannot be loaded and stored as such, but where memory is padded.
    """
    dtype = found.terms[0].reduce.dtype
    size_bytes = vdevice.vector_bytes
    while (
        dtype is not DType.INT32
        and size_bytes > _LEAST_VECTOR_BYTES
        and 2 * lane.extent * dtype.itemsize_bytes <= size_bytes
    ):
        size_bytes //= 2
    return size_bytes // dtype.itemsize_bytes


def _streams(expr: TensorExpr, found: Contraction, lane: Axis, layouts: Sequence[Layout], vdevice: VDevice) -> bool:
    """Whether a matrix that a vector is multiplied with lies in panels, and is more than units' own caches hold."""
    if not vdevice.stream_ahead_bytes or product_skeleton(found, lane) is not Skeleton.GEMV or len(found.terms) > 1:
        return False
    matrix, _ = found.split(found.terms[0], lane)
    return (
        isinstance(matrix, Load)
        and layouts[matrix.slot].panel is not None
        and expr.inputs[matrix.slot].nbytes > vdevice.own_cache_bytes * vdevice.veu_count
    )
