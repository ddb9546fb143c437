"""What the micro-kernel of products takes: operands of a block of rows and lanes, whose sums stay in registers.

`skeletons/register_tile.h` has the sums and their rows; here are the loops over what is summed, with its padding, and
the order of what is loaded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.cpu.emit.nest import Range, within
from rammer.ir.expr import Axis, Expr, Load, nodes
from rammer.ir.types import DType, TensorType
from rammer.tiling.addresses import Linear, Part
from rammer.tiling.borders import Border, borders, is_settled
from rammer.tiling.pattern import (
    QUAD,
    Contraction,
    Group,
    Term,
    broadcast_loads,
    lane_load,
    reduction_order,
    sliding_axes,
    stride_along,
)

# Such stretches of a row operand end before processors see a stream coming; for shorter ones there would be a prefetch
# for few products.
_STRETCH_BYTES, _LINE_BYTES = range(64, 129), 64
_VECTOR_NAMES = {DType.FLOAT32: "rammer_f32x", DType.FLOAT64: "rammer_f64x", DType.INT32: "rammer_i32x"}
BYTE_NAMES = {DType.UINT8: "u8", DType.INT8: "i8"}
"""What vectors of bytes are called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """A copy of a lane operand for a block of lanes: `array[form][lane]`, `form` numbering the reduction's points."""

    array: str
    form: Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """Prefetching of what the next blocks beside the same rows begin with.

    Each block of rows prefetches its share of the lane operands for the next point of `axis`, or for the next lanes if
    that is the lane axis. They lie in panels of `lanes`; `offset` is the variable with the bytes of each that are done,
    to which a point of the reduction adds `share_bytes`.
    """

    axis: Axis
    offset: str
    lanes: int
    share_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of `rows` by `lane` as the micro-kernel sees it.

    `sizes` are the full extents of a block, `counts` how many points of each axis are there, `starts` a representative
    first point; in the code a block starts at the variable `<axis>_block`. `vector` is the elements of a vector, and
    `tiled` blocks are kept in tiles (`emit.tiles`). `packs` are copies of lane operands, `ahead` says what to prefetch
    of others; or each load prefetches what is `ahead_bytes` ahead. `row_loop` is the innermost row axis that is not
    blocked.
    """

    found: Contraction
    lane: Axis
    rows: tuple[Axis, ...]
    vector: int
    sizes: Mapping[Axis, int]
    counts: Mapping[Axis, int]
    starts: Mapping[Axis, int]
    packs: Mapping[tuple[Group, Expr], Pack]
    ahead: Ahead | None = None
    row_loop: Axis | None = None
    ahead_bytes: int = 0
    tiled: bool = False

    @property
    def array_shape(self) -> tuple[int, int]:
        """Rows and lanes of the arrays that take the sums."""
        return math.prod(self.sizes[axis] for axis in self.rows), self.sizes[self.lane]

    @property
    def offsets(self) -> tuple[tuple[int, ...], ...]:
        """The rows that are there, as offsets along the row axes."""
        return tuple(itertools.product(*(range(self.counts[axis]) for axis in self.rows)))

    @property
    def vectors(self) -> int:
        """Vectors that hold the lanes that are there."""
        return -(-self.counts[self.lane] // self.vector)

    def row_positions(self, offsets: Sequence[int]) -> dict[Axis, Position]:
        """Where the row axes stand at given offsets."""
        return {
            axis: Position(f"{axis.name}_block", offset, self.sizes[axis])
            for axis, offset in zip(self.rows, offsets, strict=True)
        }

    def positions_of_row(self, number: str) -> dict[Axis, Position]:
        """Where the row axes stand in the row of a number, of those that are there."""
        positions: dict[Axis, Position] = {}
        step = 1
        for axis in reversed(self.rows):
            along = number if step == 1 else f"({number} / {step})"
            along = along if axis is self.rows[0] else f"({along} % {self.counts[axis]})"
            positions[axis] = Position(f"{axis.name}_block", step=along)
            step *= self.counts[axis]
        return positions

    def row_number(self, offsets: Sequence[int]) -> int:
        """The row of the arrays at given offsets, of those that are there."""
        number = 0
        for axis, offset in zip(self.rows, offsets, strict=True):
            number = number * self.counts[axis] + offset
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """How a group's loops deal with the padding, and which of them are unrolled.

    Borders in `settled` depend on rows and on the `unrolled` reduction axes, so code is written only for what is
    inside; those in `bounded` shorten the loop over their innermost reduction axis. Any other is tested at each load.
    Windows slide along the axes in `sliding`, which are unrolled too.
    """

    settled: tuple[Border, ...]
    unrolled: tuple[Axis, ...]
    sliding: tuple[Axis, ...]
    bounded: tuple[Border, ...]


def edges_of(
    contraction: Contraction, group: Group, rows: Sequence[Axis], lane: Axis, inputs: Sequence[TensorType]
) -> Edges:
    """Sort the borders of a group whose rows are blocked along `rows`."""
    found = borders([term.reduce for term in group.terms], inputs)
    settled = tuple(border for border in found if is_settled(border, rows, group))
    sliding = sliding_axes(contraction, group, rows, lane)
    unrolled = tuple(axis for axis in group.axes if axis in sliding or any(axis in border.axes for border in settled))
    bounded = tuple(
        border
        for border in found
        if any(axis in group.axes for axis in border.axes)
        and not any(axis in (*rows, *unrolled, lane) for axis in border.axes)
    )
    return Edges(settled=settled, unrolled=unrolled, sliding=sliding, bounded=bounded)


def vector_type(block: Block, term: Term) -> str:
    """The C type of a vector of sums."""
    return f"{_VECTOR_NAMES[term.reduce.dtype]}{block.vector}"


def emit_group(scope: Scope, block: Block, group: Group) -> dict[Term, str]:
    """Write the sums of a group for one block; returns the array of each term's, `[row][vector]`."""
    return _Micro(scope, block, group).emit(scope)


@contextmanager
def each_row(
    scope: Scope, block: Block, inside: Sequence[bool] = (), settled: Sequence[Border] = ()
) -> Iterator[tuple[str, Scope]]:
    """What is written inside, for each row that is there (and `inside`): its number in C, and the scope of the row.

    No border in `settled` is crossed there.
    """
    count, writer = len(block.offsets), scope.writer
    if count == 1:
        yield "0", scope.enter(block.row_positions(block.offsets[0]), settled)
        return
    rows = sum(1 << row for row, is_inside in enumerate(inside) if is_inside)
    with writer.macro("ROW(row)", "{" if all(inside) else f"if ({rows:#x} >> row & 1) {{", "}"):
        yield "row", scope.enter(block.positions_of_row("row"), settled)
    writer.line(f"RAMMER_ROWS({count}, ROW)")
    writer.undefine("ROW")


def places_ahead(scope: Scope, block: Block, group: Group, operand: Load, ahead: Ahead) -> list[str]:
    """Where the next share of each panel lies that is to be prefetched."""
    lane, size = block.lane, block.sizes[block.lane]
    skipped = size if ahead.axis is lane else 0
    places = []
    for first in range(skipped, skipped + block.counts[lane], ahead.lanes):
        next_ = {ahead.axis: Position(ahead.axis.name, 1), lane: Position(f"{lane.name}_block", first, size)}
        begin = scope.enter({**dict.fromkeys(group.axes, Position("")), **next_})
        start = begin.address(scope.operands.loads[operand])
        places.append(f"(const char *)(in{operand.slot} + {start}) + {ahead.offset}")
    return places


class _Micro:
    def __init__(self, scope: Scope, block: Block, group: Group) -> None:
        self._writer = scope.writer
        self._writer.include("register_tile.h")
        self._operands = scope.operands
        self._block = block
        self._group = group
        kernel = scope.operands.kernel
        self._edges = edges_of(block.found, group, block.rows, block.lane, kernel.expr.inputs)
        order = reduction_order(broadcast_loads(block.found, group, block.lane), group.axes, kernel.layouts)
        self._order = tuple(axis for axis in order if axis is not group.quad)
        self._element = group.terms[0].reduce.dtype
        self._step = 1 if group.quad is None else QUAD
        self._type = vector_type(block, group.terms[0])
        self._sums = {term: self._writer.name("sum") for term in group.terms}

    def emit(self, scope: Scope) -> dict[Term, str]:
        """Sums and the loops over the reduction axes."""
        block = self._block
        for name in self._sums.values():
            self._writer.line(f"{self._type} {name}[{len(block.offsets)}][{block.vectors}] = {{{{{{0}}}}}};")
        quad = {} if self._group.quad is None else {self._group.quad: Position("")}
        self._loops(scope.enter(quad), self._order, {})
        return self._sums

    def _loops(self, scope: Scope, axes: Sequence[Axis], point: Mapping[Axis, int]) -> None:
        """Loops over `axes`; `point` holds the positions along unrolled axes."""
        if self._group.quad is None:
            scope.hoist(operand for term in self._group.terms for operand in term.operands)
        if self._edges.sliding and all(axis in self._edges.unrolled for axis in axes):
            self._sliding_products(scope, axes, point)
            return
        if not axes:
            self._products(scope, point)
            return
        axis, *rest = axes
        if axis in self._edges.unrolled:
            for i in range(axis.extent):
                self._writer.line("RAMMER_APART;")
                self._loops(scope.enter({axis: Position("", i)}), rest, {**point, axis: i})
            return
        crossed = [b for b in self._edges.bounded if axis in b.axes and not any(other in b.axes for other in rest)]
        bounds = within(scope, axis, Range.whole(axis.extent), crossed)
        if not rest and self._block.row_loop is not None:
            self._prefetch_rows(scope, axis, self._block.row_loop)
        with self._writer.loop(axis.name, bounds.lo, bounds.hi):
            self._loops(scope.enter({axis: Position(axis.name)}, crossed), rest, point)

    def _products(self, scope: Scope, point: Mapping[Axis, int]) -> None:
        """Add one product to each sum whose row is inside."""
        block, writer = self._block, self._writer
        inside = [self._is_inside(offsets, point) for offsets in block.offsets]
        if not any(inside):
            return
        # One lane operand after the other, so that few vectors are alive beside the sums.
        by_operand: dict[Expr, list[tuple[Term, Expr]]] = {}
        for term in self._group.terms:
            operand, other = block.found.split(term, block.lane)
            by_operand.setdefault(operand, []).append((term, other))
        for operand, users in by_operand.items():
            vectors = self._vectors(scope, operand)
            if block.ahead is not None and isinstance(operand, Load):
                for place in places_ahead(scope, block, self._group, operand, block.ahead):
                    writer.line(f"RAMMER_PREFETCH({place});")
            if block.ahead_bytes and isinstance(operand, Load):
                self._prefetch_stream(scope, operand, block.ahead_bytes)
            with each_row(scope, block, inside, self._edges.settled) as (number, row):
                for term, other in users:
                    self._add(f"{self._sums[term]}[{number}]", row, other, vectors)
        if block.ahead is not None:
            writer.line(f"{block.ahead.offset} += {block.ahead.share_bytes};")

    def _add(self, sums: str, row: Scope, other: Expr, vectors: str) -> None:
        """Add the products of a row's factor and vectors."""
        count = self._block.vectors
        if self._block.lane in self._block.found.free[other]:
            self._writer.line(f"RAMMER_ADD_BY_VECTORS({count}, {sums}, {self._vectors(row, other)}, {vectors})")
        elif isinstance(other, Load) and self._group.quad is not None:
            four = self._four(row, other, self._group.quad)
            self._writer.line(f"RAMMER_ADD_DOTS({count}, {self._block.vector}, {sums}, {four}, {vectors})")
        else:
            self._writer.line(f"RAMMER_ADD_PRODUCTS({count}, {sums}, {row.value(other)}, {vectors})")

    def _vectors(self, scope: Scope, operand: Expr) -> str:
        """The vectors of an operand, as an array."""
        texts = [self._vector_text(scope, operand, v) for v in range(self._block.vectors)]
        name = self._writer.name("w")
        with self._writer.block(f"const {self._type} {name}[{len(texts)}] =", tail=";"):
            for text in texts:
                self._writer.line(f"{text},")
        return name

    def _sliding_products(self, scope: Scope, axes: Sequence[Axis], point: Mapping[Axis, int]) -> None:
        """Add the products of all points along unrolled axes, one vector after the other of what rows share."""
        block = self._block
        products: dict[str, list[str]] = {}
        for positions in itertools.product(*(range(axis.extent) for axis in axes)):
            tap = dict(zip(axes, positions, strict=True))
            at_tap = scope.enter({axis: Position("", i) for axis, i in tap.items()})
            inside = [offsets for offsets in block.offsets if self._is_inside(offsets, {**point, **tap})]
            for term, v in itertools.product(self._group.terms if inside else (), range(block.vectors)):
                operand, other = block.found.split(term, block.lane)
                vector = self._vector(at_tap, operand, v)
                for offsets in inside:
                    text = self._vector_text(self._row(at_tap, offsets), other, v)
                    product = f"{self._sums[term]}[{block.row_number(offsets)}][{v}] += {{}} * {vector};"
                    products.setdefault(text, []).append(product)
        for text, users in products.items():
            once = text.replace("RAMMER_LOAD(", "RAMMER_LOAD_ONCE(") if len(users) > 1 else text
            shared = self._writer.let(self._type, self._writer.name("w"), once)
            for product in users:
                self._writer.line(product.format(shared))

    def _prefetch_stream(self, scope: Scope, operand: Load, ahead_bytes: int) -> None:
        """Prefetch what follows the present vectors in their panels, each line once."""
        lane, size = self._block.lane, self._block.sizes[self._block.lane]
        lane_bytes = self._step * operand.type.itemsize_bytes
        for first in range(0, self._block.counts[lane], _LINE_BYTES // lane_bytes):
            at_first = scope.enter({lane: Position(f"{lane.name}_block", first, size)})
            address = at_first.address(self._operands.loads[operand])
            self._writer.line(f"RAMMER_PREFETCH((const char *)(in{operand.slot} + {address}) + {ahead_bytes});")

    def _prefetch_rows(self, scope: Scope, axis: Axis, row_loop: Axis) -> None:
        """Prefetch what a loop over `axis` reads at the next point of `row_loop`, if that is short stretches."""
        kernel = self._operands.kernel
        others = dict.fromkeys(self._block.found.split(term, self._block.lane)[1] for term in self._group.terms)
        for load in others:
            if not isinstance(load, Load) or stride_along(load.indices, kernel.layouts[load.slot], axis) != 1:
                continue
            address, line = self._operands.plain_address(load), _LINE_BYTES // load.type.itemsize_bytes
            if address.atoms or axis.extent * load.type.itemsize_bytes not in _STRETCH_BYTES:
                continue
            at_first = scope.enter({row_loop: Position(row_loop.name, 1), axis: Position("")})
            with each_row(at_first, self._block) as (_, row):
                for first in range(0, axis.extent, line):
                    self._writer.line(f"RAMMER_PREFETCH(in{load.slot} + {row.address(address)} + {first});")

    def _four(self, scope: Scope, load: Load, quad: Axis) -> str:
        """The bytes of a quad as an int32: loaded as one where they lie side by side."""
        kernel = self._operands.kernel
        if stride_along(load.indices, kernel.layouts[load.slot], quad) == 1 and not scope.open_checks(load):
            text = f"RAMMER_QUAD(in{load.slot} + {scope.address(self._operands.loads[load])})"
        else:
            elements = [scope.enter({quad: Position("", i)}).value(load) for i in range(QUAD)]
            text = f"rammer_quad({', '.join(elements)})"
        return self._writer.let("int32_t", self._writer.name("q"), text)

    def _row(self, scope: Scope, offsets: Sequence[int]) -> Scope:
        """The scope of one row of the block; no settled border is crossed there."""
        return scope.enter(self._block.row_positions(offsets), self._edges.settled)

    def _is_inside(self, offsets: Sequence[int], point: Mapping[Axis, int]) -> bool:
        """Whether no settled border is crossed by a row."""
        rows = {axis: self._block.starts[axis] + offset for axis, offset in zip(self._block.rows, offsets, strict=True)}
        return all(border.inside({**rows, **point}) for border in self._edges.settled)

    def _vector(self, scope: Scope, operand: Expr, number: int) -> str:
        """Vector `number` of an operand."""
        return self._writer.let(self._type, self._writer.name("w"), self._vector_text(scope, operand, number))

    def _vector_text(self, scope: Scope, operand: Expr, number: int) -> str:
        """A vector of an operand: loaded if its lanes lie side by side, else written lane by lane."""
        block, lane = self._block, self._block.lane
        start = f"{lane.name}_block"
        first = number * block.vector
        present = min(block.vector, block.counts[lane] - first)
        at_first = scope.enter({lane: Position(start, first, block.sizes[lane])})
        pack = block.packs.get((self._group, operand))
        if pack is not None:
            return (
                f"RAMMER_LOAD({self._type}, {pack.array} + ({scope.linear(pack.form)}) * {block.sizes[lane]} + {first})"
            )
        load = lane_load(operand)
        if load is not None and self._is_vector(at_first, load, present):
            address = f"in{load.slot} + {at_first.address(self._operands.loads[load])}"
            if load is operand:
                return f"RAMMER_LOAD({self._type}, {address})"
            return f"RAMMER_BYTES({block.vector}, {BYTE_NAMES[load.type]}, {address})"
        if load is not None and load is operand and self._group.quad is None and self._lies_in_lanes(at_first, load):
            address = f"in{load.slot} + {at_first.address(self._operands.loads[load])}"
            return f"RAMMER_LOAD_FIRST({self._type}, {present}, {address})"
        lanes = self._writer.name("lanes")
        self._writer.line(f"{C_TYPES[self._element]} {lanes}[{block.vector}] = {{0}};")
        with self._writer.loop("i", "0", str(present), lanes=True):
            at_lane = scope.enter({lane: Position(lane.name)})
            self._writer.let("int64_t", lane.name, f"{start} + {first} + i")
            if isinstance(operand, Load) and self._group.quad is not None:
                value = self._four(at_lane, operand, self._group.quad)
            else:
                value = at_lane.value(operand)
            self._writer.line(f"{lanes}[i] = {value};")
        return f"RAMMER_LOAD({self._type}, {lanes})"

    def _is_vector(self, scope: Scope, load: Load, present: int) -> bool:
        """Whether a vector's lanes of a load lie side by side and can all be read."""
        if self._lies_in_lanes(scope, load):
            return present == self._block.vector
        address = self._operands.loads[load]
        parts = [part for part in address.parts if part.form.coefficient(self._block.lane)]
        if not parts or scope.open_checks(load) or self._block.lane in nodes(*address.atoms):
            return False
        return address.form.coefficient(self._block.lane) == 0 and all(self._is_within_panel(scope, p) for p in parts)

    def _lies_in_lanes(self, scope: Scope, load: Load) -> bool:
        """Whether the lanes of a load lie side by side, in no panel."""
        address, lane = self._operands.loads[load], self._block.lane
        return (
            not scope.open_checks(load)
            and lane not in nodes(*address.atoms)
            and not any(part.form.coefficient(lane) for part in address.parts)
            and address.form.coefficient(lane) == self._step
        )

    def _is_within_panel(self, scope: Scope, part: Part) -> bool:
        """Whether a vector starts at a multiple of its size in a panel. As the last panel is padded, it is whole."""
        vector = self._block.vector
        return (
            part.panel is not None
            and part.clamp is None
            and part.stride == self._step
            and part.form.coefficient(self._block.lane) == 1
            and part.panel.width % vector == 0
            and scope.panel_phase(part, vector) == 0
        )
