"""What products of bytes bring to their tiles (`skeletons/byte_tiles.h`), for a block of rows and lanes.

for each point of the summed axes but the last        (the taps of a convolution)
  for each step along the last, of up to 64 bytes
    load a tile for each 16 rows, in place or copied, and for each 16 lanes
    multiply each by each
store the sums to an array, of which the epilogue loads vectors
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cpu.emit.micro import Block, edges_of, places_ahead
from rammer.devices.cpu.emit.nest import Range, within
from rammer.devices.cpu.emit.parameters import parameters
from rammer.ir.expr import Axis
from rammer.tiling.byte_tiles import (
    TILE_LANES,
    halves,
    row_step,
    tile_product,
)
from rammer.tiling.pattern import QUAD, Term

_LINE_BYTES = 64


def emit_tiles(scope: Scope, block: Block) -> dict[Term, str]:
    """Write the sums of one block; returns the array that has those of each term, `[row][lane]`."""
    return _Tiles(scope, block).emit(scope)


class _Tiles:
    def __init__(self, scope: Scope, block: Block) -> None:
        kernel = scope.operands.kernel
        product = tile_product(kernel.expr, kernel.layouts)
        if product is None or product.lane is not block.lane or block.vector != TILE_LANES:
            raise ValueError("tiles multiply bytes in quads")
        self._writer = scope.writer
        self._operands = scope.operands
        self._block = block
        self._product = product
        self._steps = product.steps
        self._edges = edges_of(block.found, product.group, block.rows, block.lane, kernel.expr.inputs)
        self._halves = halves(block.counts, block.rows)

    def emit(self, scope: Scope) -> dict[Term, str]:
        """Tiles of sums, the loops over what is summed, and the array."""
        writer, block = self._writer, self._block
        sums = writer.name("sums")
        height, width = block.array_shape
        upper, lower, *_ = [*map(len, self._halves), 0]
        tiles = f"{_of_halves(range(len(self._halves)))}, {block.vectors}"
        writer.line(f"RAMMER_TILES_BEGIN({tiles}, {upper}, {lower}, {self._steps.quads * QUAD})")
        assert self._product.group.quad is not None  # it is of bytes
        self._loops(scope.enter({self._product.group.quad: Position("")}), self._product.order, {})
        writer.line(f"int32_t {sums}[{height}][{width}] RAMMER_ALIGNED;")
        writer.line(f"RAMMER_TILES_STORE({tiles}, {upper}, {sums})")
        return {self._product.term: sums}

    def _loops(self, scope: Scope, axes: Sequence[Axis], point: Mapping[Axis, int]) -> None:
        """Loops over `axes`; `point` holds the positions along unrolled axes."""
        axis, *rest = axes
        if not rest:
            self._along(scope, axis, point)
        elif axis in self._edges.unrolled:
            for i in range(axis.extent):
                self._loops(scope.enter({axis: Position("", i)}), rest, {**point, axis: i})
        else:
            crossed = [b for b in self._edges.bounded if axis in b.axes and not any(other in b.axes for other in rest)]
            bounds = within(scope, axis, Range.whole(axis.extent), crossed)
            with self._writer.loop(axis.name, bounds.lo, bounds.hi):
                self._loops(scope.enter({axis: Position(axis.name)}, crossed), rest, point)

    def _along(self, scope: Scope, axis: Axis, point: Mapping[Axis, int]) -> None:
        """All steps along the last axis."""
        steps = self._steps
        inside = [[self._is_inside(offsets, point) for offsets in half] for half in self._halves]
        if not any(map(any, inside)):
            return
        if steps.whole == 1:
            self._step(scope.enter({axis: Position("")}), inside, 0)
        else:
            with self._writer.loop(axis.name, "0", str(steps.whole * steps.quads), steps.quads):
                self._step(scope.enter({axis: Position(axis.name, 0, steps.quads)}), inside, 0)
        if steps.rest:
            with self._writer.block():
                last = Position("", axis.extent - steps.quads)
                self._step(scope.enter({axis: last}), inside, steps.quads - steps.rest)

    def _step(self, scope: Scope, inside: Sequence[Sequence[bool]], skipped: int) -> None:
        """Multiply each row by each lane, over one step without the quads that are `skipped` at its beginning."""
        used = [half for half, rows in enumerate(inside) if any(rows)]
        for half in used:
            self._load_rows(scope, half, inside[half], skipped)
        load = self._product.lane_load
        lane, panel = self._block.lane, self._operands.layouts[load.slot].panel
        assert panel is not None  # what tiles load lies in panels, each as wide as one
        first = scope.enter({lane: Position(f"{lane.name}_block", 0, self._block.sizes[lane])})
        address = f"in{load.slot} + {first.address(self._operands.loads[load])}"
        tiles = f"{_of_halves(used)}, {self._block.vectors}"
        self._writer.line(f"RAMMER_TILE_PRODUCTS({tiles}, {address}, {panel.stride})")
        self._prefetch(scope)

    def _prefetch(self, scope: Scope) -> None:
        """Prefetch a step's share of the next weights, in whole lines."""
        ahead = self._block.ahead
        if ahead is None:
            return
        share_bytes = ahead.share_bytes * self._steps.quads
        for place in places_ahead(scope, self._block, self._product.group, self._product.lane_load, ahead):
            self._writer.line(f"RAMMER_PREFETCH_LINES({-(-share_bytes // _LINE_BYTES)}, {place})")
        self._writer.line(f"{ahead.offset} += {share_bytes};")

    def _load_rows(self, scope: Scope, half: int, inside: Sequence[bool], skipped: int) -> None:
        """The tile of a half's rows, which are copied first where some are padding, lie unevenly or skip quads."""
        load, block, points = self._product.row_load, self._block, self._halves[half]
        address, settled = self._operands.plain_address(load), self._edges.settled
        scopes = [scope.enter(block.row_positions(offsets), settled) for offsets in points]
        if any(row.open_checks(load) for row, there in zip(scopes, inside, strict=True) if there):
            raise ValueError("tiles read no element that may be padding")
        step = row_step(load, self._operands.layouts[load.slot], block.rows, points)
        if all(inside) and step is not None and not skipped:
            place = f"in{load.slot} + {scopes[0].address(address)}"
            self._writer.line(f"RAMMER_TILE_LOAD(RAMMER_ROWS_OF_{half}, {place}, {step});")
            return
        first = sum(map(len, self._halves[:half]))
        row = scope.enter(block.positions_of_row(f"({first} + row)" if first else "row"), settled)
        there = sum(1 << number for number, is_inside in enumerate(inside) if is_inside)
        with parameters(self._writer) as given:
            given.constant("PLACE(row)", f"(in{load.slot} + {row.address(address)})")
            copies = f"{len(points)}, {there:#x}, {skipped * QUAD}, {self._steps.quads * QUAD}"
            self._writer.line(f"RAMMER_TILE_COPY({half}, {copies}, PLACE)")

    def _is_inside(self, offsets: Sequence[int], point: Mapping[Axis, int]) -> bool:
        """Whether no settled border is crossed by a row."""
        starts = self._block.starts
        rows = {axis: starts[axis] + offset for axis, offset in zip(self._block.rows, offsets, strict=True)}
        return all(border.inside({**rows, **point}) for border in self._edges.settled)


def _of_halves(numbers: Iterable[int]) -> int:
    """The tiles of rows, as the skeleton has them."""
    return sum(1 << number for number in numbers)
