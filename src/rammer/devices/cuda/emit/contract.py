"""The skeleton `contract`: sums of products with both operands staged in shared memory.

    for each point of the batch axes, for each block of rows and lanes
      for each group of sums
        for each step of elements of the sums
          start to copy a later step's operands into shared memory, constants first
          once, at the first step: wait for what others write, load what the rest will read
          multiply and add the present step's, each warp its part of the sums
      put the parts of the sums together in shared memory
      for each row and lane: the elementwise rest, store

Of chained blocks the steps are one loop: it copies the next block's operands while it finishes one. Where they are not
chained, an rTask of several blocks waits before the first.

A convolution is such a product, too: an operand's element is whatever its index expressions say, padding included.
Elements that are short sums, *windows*, are computed on the way.
`kernels/rammer_contract.cuh` has the copies and what a warp multiplies; `ir.blocks` has the sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from rammer.devices.codegen.index import Address
from rammer.devices.codegen.scalar import C_TYPES, COMBINE, call_text, literal
from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.blocked import BlockedTile
from rammer.devices.cuda.emit.finish import Finish
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.devices.cuda.emit.stream import emit_stream
from rammer.devices.cuda.emit.wait import emit_wait, is_constant
from rammer.ir.blocks import (
    Arithmetic,
    Blocks,
    blocks_of,
    group_order,
    moving_axes,
    operands_of,
    staged_form,
)
from rammer.ir.evaluate import identity
from rammer.ir.expr import Axis, Expr, Load, Reduce, nodes
from rammer.ir.pattern import Contraction, Group, Term, contraction, stride_along, window_points
from rammer.ir.task import RKernel
from rammer.ir.types import DType, Layout

_COPIES_BYTES = (16, 8, 4)  # that one instruction copies
_COPIES_TOGETHER = 4  # of a thread; more is more code only
_POINTS_TOGETHER = (4, 2)  # whose windows a thread computes
_MULTIPLIERS: Mapping[Arithmetic, str] = {
    Arithmetic.FLOAT32: "rammer_multiply_adds<",
    Arithmetic.TF32: "rammer_tf32_products<",
    Arithmetic.BFLOAT16: "rammer_half_products<rammer_bf16, ",
    Arithmetic.FLOAT16: "rammer_half_products<rammer_f16, ",
}


def emit_contract(scope: Scope, sides: Sequence[Side]) -> int:
    """Write the loops over one rTask. Returns the scratch that it takes, in bytes."""
    kernel = scope.operands.kernel
    found = contraction(kernel.expr)
    if found is None:
        raise ValueError("the skeleton 'contract' takes a contraction")
    blocks = blocks_of(kernel)
    if blocks is None:
        return emit_stream(scope, sides, found)
    tile = BlockedTile.of(blocks, sides)
    writer = scope.writer
    writer.let("uint32_t", "warp", f"threadIdx.x / 32 % {blocks.warps}")
    writer.let("uint32_t", "split", f"threadIdx.x / 32 / {blocks.warps}")
    writer.let("uint32_t", "warp_row", f"warp % {blocks.rows // blocks.warp_rows} * {blocks.warp_rows}")
    writer.let("uint32_t", "warp_lane", f"warp / {blocks.rows // blocks.warp_rows} * {blocks.warp_lanes}")
    products = [_Product.of(kernel, tile, found, group) for group in found.groups]
    sums = {term: writer.name("sums") for term in found.terms}
    if blocks.chained:
        (product,) = products
        _declare(writer, blocks, sums)
        finish = Finish.of(scope, tile, parts_at=product.scratch_bytes)
        return product.emit(scope, sums, finish, waits=True)
    waits = blocks.count == 1
    if not waits:
        emit_wait(writer)
    scratch_bytes = 0
    with (
        writer.block(f"for (uint32_t batch = 0; batch < {count(tile.batches)}u; ++batch)"),
        writer.block(f"for (uint32_t row0 = 0; row0 < {count(tile.rows)}u; row0 += {blocks.rows})"),
        writer.block(f"for (uint32_t lane0 = 0; lane0 < {count(tile.lanes)}u; lane0 += {blocks.lanes})"),
    ):
        positions, conditions = decode(writer, "batch", tile.batches)
        in_batch = scope.enter(positions)
        _declare(writer, blocks, sums)
        finish = Finish.of(in_batch, tile, parts_at=0)
        with guarded(writer, conditions):  # the same for all threads
            if not waits:
                finish.bring(in_batch)
            for product in products:
                with writer.block():
                    used_bytes = product.emit(in_batch.enter({}), sums, finish, waits=waits)
                waits = False
                scratch_bytes = max(scratch_bytes, used_bytes)
            scratch_bytes = max(scratch_bytes, finish.emit(in_batch, sums))
    return scratch_bytes


def _declare(writer: Writer, blocks: Blocks, sums: Mapping[Term, str]) -> None:
    """Write the sums of a warp, all 0."""
    for name in sums.values():
        writer.line(f"{_MULTIPLIERS[blocks.arithmetic]}{blocks.warp_rows}, {blocks.warp_lanes}> {name};")


def _lane(kernel: RKernel) -> Axis:
    """The lane axis, which every contraction that has blocks has."""
    if kernel.tile.lane is None:
        raise ValueError("blocks have a lane axis")
    return kernel.expr.axes[kernel.tile.lane]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A group of sums over the same axes, `axes` fastest first, and its distinct operands."""

    tile: BlockedTile
    group: Group
    axes: tuple[Side, ...]
    row_operands: tuple[Expr, ...]
    lane_operands: tuple[Expr, ...]

    @classmethod
    def of(cls, kernel: RKernel, tile: BlockedTile, found: Contraction, group: Group) -> _Product:
        """The product of a group of a contraction's sums."""
        row_operands, lane_operands = operands_of(found, group, _lane(kernel))
        return cls(
            tile=tile,
            group=group,
            axes=tuple(Side.whole(axis) for axis in reversed(group_order(group, kernel.layouts))),
            row_operands=row_operands,
            lane_operands=lane_operands,
        )

    @property
    def pitch(self) -> int:
        """Elements of shared memory from one point of an operand to the next."""
        return self.tile.blocks.step + self.tile.blocks.arithmetic.padding

    @property
    def stage_bytes(self) -> int:
        """Shared memory that one step's operands take."""
        return sum(map(self._operand_bytes, self._operands))

    @property
    def scratch_bytes(self) -> int:
        """Shared memory for all stages."""
        return self.tile.blocks.stages * self.stage_bytes

    @property
    def _operands(self) -> tuple[Expr, ...]:
        """In the order in which they lie in a stage."""
        return (*self.row_operands, *self.lane_operands)

    def _form(self, operand: Expr) -> Expr:
        return staged_form(operand, self.tile.blocks.arithmetic)

    def _operand_bytes(self, operand: Expr) -> int:
        points = self.tile.blocks.rows if operand in self.row_operands else self.tile.blocks.lanes
        return points * self.pitch * self._form(operand).dtype.itemsize_bytes

    def _place(self, operand: Expr, stage: str, point: str, element: str) -> str:
        """The address of an element of an operand in a stage."""
        offset_bytes = sum(map(self._operand_bytes, self._operands[: self._operands.index(operand)]))
        type_ = C_TYPES[self._form(operand).dtype]
        return f"({type_} *)({stage} + {offset_bytes}) + {point} * {self.pitch} + {element}"

    def emit(self, scope: Scope, sums: Mapping[Term, str], finish: Finish, *, waits: bool) -> int:
        """The loop over steps: step `number` is on its way while the one `stages - 1` before is multiplied.

        If it `waits`, the rTask does so here, the first step of constants being on its way, and brings what `finish`
        reads. Where blocks are chained, steps are those of all, and each block is finished after its last one. Returns
        the scratch that it takes, in bytes.
        """
        writer, blocks = scope.writer, self.tile.blocks
        if not waits:
            scope.hoist(map(self._form, self._operands))
        steps, ahead = self._steps, blocks.stages - 1
        scratch_bytes, total = self.scratch_bytes, steps * (blocks.count if blocks.chained else 1)
        for variable in ("filled", "multiplied", "element0", *(side.axis.name for side in self._outer)):
            writer.line(f"{writer.index_type} {variable} = 0;")
        with writer.block(f"for (uint32_t number = 0; number < {total + ahead}u; ++number)"):
            with writer.block(f"if (number >= {ahead})"):
                writer.line(f"rammer_copies_wait<{ahead - 1}>();")
                writer.line("__syncthreads();")  # all copies are there, and what is copied over is no longer read
            with writer.block(f"if (number < {total})"), self._in_block(scope, "number") as in_block:
                writer.line("char *into = scratch + filled;")
                in_step = in_block.enter({side.axis: Position(side.axis.name) for side in self._outer})
                constants = [operand for operand in self._operands if is_constant(scope, operand)]
                for operand in constants:
                    self._stage(in_step, operand)
                if waits:
                    with writer.block("if (number == 0)"):
                        emit_wait(writer)
                        if not blocks.chained:
                            finish.bring(scope)
                others = (operand for operand in self._operands if operand not in constants)
                for operand in sorted(others, key=window_points):  # copies are on their way meanwhile
                    self._stage(in_step, operand)
                self._advance(writer, "filled", self.stage_bytes, self.scratch_bytes)
                self._walk(writer)
            writer.line("rammer_copies_end();")
            with writer.block(f"if (number >= {ahead})"), self._in_block(scope, f"(number - {ahead})") as in_block:
                if blocks.chained:
                    with guarded(writer, self._at_step(0)):
                        finish.bring(in_block)
                self._multiply(writer, sums)
                if blocks.chained:
                    with guarded(writer, self._at_step(steps - 1)):
                        scratch_bytes += finish.emit(in_block, sums)
                        for name in sums.values():
                            writer.line(f"{name} = {{}};")
        if not blocks.chained:
            writer.line("__syncthreads();")  # before what follows uses the memory
        return scratch_bytes

    def _multiply(self, writer: Writer, sums: Mapping[Term, str]) -> None:
        """Multiply and add the present step, each warp its part of the sums."""
        blocks = self.tile.blocks
        share = blocks.step // blocks.splits
        with writer.block(f"if (split < {blocks.splits})"):
            writer.line("char *from = scratch + multiplied;")
            for term in self.group.terms:
                row, lane = self._pair(term)
                places = (
                    self._place(row, "from", "warp_row", f"split * {share}"),
                    self._place(lane, "from", "warp_lane", f"split * {share}"),
                )
                writer.line(f"{sums[term]}.multiply<{share}, {self.pitch}>({', '.join(places)});")
        self._advance(writer, "multiplied", self.stage_bytes, self.scratch_bytes)

    @property
    def _steps(self) -> int:
        """Of a block."""
        return -(-count(self.axes) // self.tile.blocks.step)

    def _at_step(self, step: int) -> list[str]:
        """The condition that a step of a block is multiplied."""
        return [f"step == {step}"] if self._steps > 1 else []

    @contextmanager
    def _in_block(self, scope: Scope, number: str) -> Iterator[Scope]:
        """Where blocks are chained: the scope in that of a step, if it is not beyond the batches; lanes are fastest."""
        writer, tile, blocks = scope.writer, self.tile, self.tile.blocks
        if not blocks.chained:
            yield scope
            return
        rows, lanes = -(-count(tile.rows) // blocks.rows), -(-count(tile.lanes) // blocks.lanes)
        writer.let("uint32_t", "block", f"{number} / {self._steps}")
        writer.let("uint32_t", "step", f"{number} % {self._steps}")
        writer.let("uint32_t", "lane0", f"block % {lanes} * {blocks.lanes}")
        writer.let("uint32_t", "row0", f"block / {lanes} % {rows} * {blocks.rows}")
        writer.let("uint32_t", "batch", f"block / {lanes * rows}")
        positions, conditions = decode(writer, "batch", tile.batches)
        with guarded(writer, conditions):  # the same for all threads
            yield scope.enter(positions)

    @property
    def _moving(self) -> tuple[Side, ...]:
        """The axes that a step runs over, fastest first."""
        moving = moving_axes([side.size for side in self.axes], self.tile.blocks.step)
        return self.axes[: moving or None]

    @property
    def _outer(self) -> tuple[Side, ...]:
        """The axes that stand still within a step, fastest first."""
        return self.axes[len(self._moving) :]

    def _walk(self, writer: Writer) -> None:
        """Go on to the next step along the axes: no divisions."""
        step = self.tile.blocks.step
        if not self._outer:
            if self.tile.blocks.chained:
                self._advance(writer, "element0", step, self._steps * step)
            else:
                writer.line(f"element0 += {step};")
            return
        self._advance(writer, "element0", step, count(self._moving))
        with ExitStack() as nested:
            before = "element0"
            for side in self._outer:
                nested.enter_context(writer.block(f"if ({before} == 0)"))
                self._advance(writer, side.axis.name, 1, side.size)
                before = side.axis.name

    @staticmethod
    def _advance(writer: Writer, variable: str, by: int, end: int) -> None:
        """Add to a variable that starts anew where it comes to `end`."""
        writer.line(f"{variable} = {variable} == {end - by} ? 0 : {variable} + {by};")

    def _pair(self, term: Term) -> tuple[Expr, Expr]:
        """A term's row operand and lane operand."""
        left, right = term.operands
        return (left, right) if left in self.row_operands and right in self.lane_operands else (right, left)

    def _stage(self, scope: Scope, operand: Expr) -> None:
        """Bring a step of an operand into shared memory; what lies beyond the operand is 0."""
        writer, blocks = scope.writer, self.tile.blocks
        is_row = operand in self.row_operands
        sides, first, size = (
            (self.tile.rows, "row0", blocks.rows) if is_row else (self.tile.lanes, "lane0", blocks.lanes)
        )
        moving = self._moving
        form = self._form(operand)
        load, chunk = _copied(scope, form, moving[0])
        if window_points(form):
            self._stage_windows(scope, operand, sides, first, size)
            return
        pieces = blocks.step // chunk  # of a point
        # Neighbouring threads take pieces that lie near to each other.
        by_points = chunk == 1 and _runs_along_points(scope, form, sides, self.axes)
        fast, slow, extent = ("point", "piece", size) if by_points else ("piece", "point", pieces)
        writer.line(f"#pragma unroll {_COPIES_TOGETHER}")
        with writer.block(f"for (uint32_t i = 0; i < {-(-size * pieces // blocks.threads)}u; ++i)"):
            writer.let("uint32_t", "copy", f"threadIdx.x + i * {blocks.threads}")
            if size * pieces % blocks.threads:
                writer.line(f"if (copy >= {size * pieces}u)")
                writer.line("    break;")
            writer.let("uint32_t", f"{fast}_", f"copy % {extent}")
            writer.let("uint32_t", f"{slow}_", f"copy / {extent}")
            writer.let("uint32_t", "point", f"{first} + point_")
            writer.let("uint32_t", "element", f"element0 + piece_ * {chunk}")
            place = self._place(operand, "into", "point_", f"piece_ * {chunk}")
            conditions = [] if count(sides) % size == 0 else [f"point < {count(sides)}u"]
            if count(moving) % blocks.step:
                conditions.append(f"element < {count(moving)}u")
            points, beyond = decode(writer, "point", sides)
            elements, _ = decode(writer, "element", moving)
            at_element = scope.enter({**points, **elements})
            conditions += beyond
            if load is None:
                _compute(at_element, form, place, conditions)
                return
            address, checks = at_element.element(load)
            present = " && ".join([*conditions, *checks]) or "true"
            size_bytes = chunk * form.dtype.itemsize_bytes
            writer.line(f"rammer_copy<{size_bytes}>({place}, in{load.slot} + ({address}), {present});")

    def _stage_windows(self, scope: Scope, operand: Expr, sides: Sequence[Side], first: str, size: int) -> None:
        """Compute a step of an operand of windows into shared memory; what lies beyond the operand is 0.

        A thread computes several neighbouring points: it loads once what their windows share.
        """
        writer, form = scope.writer, self._form(operand)
        step, threads = self.tile.blocks.step, self.tile.blocks.threads
        side = next((side for side in sides if side.size > 1), sides[0])
        together = _together(side, min(size, count(sides)) * step, threads)
        writer.line("#pragma unroll 1")
        with writer.block(f"for (uint32_t copy = threadIdx.x; copy < {size // together * step}u; copy += {threads})"):
            writer.let("uint32_t", "element_", f"copy % {step}")
            writer.let("uint32_t", "point_", f"copy / {step} * {together}")
            writer.let("uint32_t", "point", f"{first} + point_")
            writer.let("uint32_t", "element", "element0 + element_")
            conditions = [] if count(sides) % size == 0 else [f"point < {count(sides)}u"]
            if count(self._moving) % step:
                conditions.append(f"element < {count(self._moving)}u")
            points, beyond = decode(writer, "point", sides)
            elements, _ = decode(writer, "element", self._moving)
            values = [writer.name("value") for _ in range(together)]
            for value in values:
                writer.line(f"{C_TYPES[form.dtype]} {value} = 0;")
            with guarded(writer, [*conditions, *beyond]):
                at_points = scope.enter({**points, **elements})
                at_points.share_elements(_unrolled)
                place = points[side.axis]
                for number, value in enumerate(values):
                    at_point = at_points.enter({side.axis: replace(place, offset=place.offset + number)})
                    writer.line(f"{value} = {at_point.value(form)};")
            for number, value in enumerate(values):
                writer.line(f"*({self._place(operand, 'into', f'(point_ + {number})', 'element_')}) = {value};")


def _together(side: Side, elements: int, threads: int) -> int:
    """How many neighbours along a side each of so many threads takes: a few, but none goes without any for it."""
    fitting = (taken for taken in _POINTS_TOGETHER if side.size % taken == 0 and taken * threads <= elements)
    return 1 if side.is_ragged else next(fitting, 1)


def _unrolled(scope: Scope, node: Reduce) -> str:
    """Write a short reduction point by point; returns the name of its value."""
    total = literal(identity(node.fn, node.dtype), node.dtype)
    for point in itertools.product(*(range(axis.extent) for axis in node.axes)):
        at_point = scope.enter({axis: Position("", i) for axis, i in zip(node.axes, point, strict=True)})
        text = call_text(COMBINE[node.fn], node.dtype, (total, at_point.value(node.body)))
        total = scope.writer.let(C_TYPES[node.dtype], scope.writer.name("total"), text)
    return total


def _compute(scope: Scope, form: Expr, place: str, conditions: Sequence[str]) -> None:
    """Store an element that has to be computed."""
    writer = scope.writer
    writer.line(f"{C_TYPES[form.dtype]} value = 0;")
    with guarded(writer, conditions):
        writer.line(f"value = {scope.value(form)};")
    writer.line(f"*({place}) = value;")


def _copied(scope: Scope, form: Expr, innermost: Side) -> tuple[Load | None, int]:
    """The load that an operand is, if it can be copied as it lies, its padding being 0; and elements at a time."""
    if not isinstance(form, Load) or form.type.compute is not DType.FLOAT32:
        return None, 1
    if form.fill is not None and form.fill.value != 0 and scope.open_checks(form):
        return None, 1
    for size_bytes in _COPIES_BYTES:
        chunk = size_bytes // form.type.itemsize_bytes
        if chunk == 1 or _lies_in_chunks(scope, form, innermost, chunk):
            return form, chunk
    return None, 1


def _lies_in_chunks(scope: Scope, load: Load, innermost: Side, chunk: int) -> bool:
    """Whether groups of elements along an axis lie side by side, each at a multiple of a group, all padding or none."""
    kernel, address = scope.operands.kernel, scope.operands.loads[load]
    if not kernel.alignments or kernel.alignments[load.slot] % chunk:
        return False
    if innermost.size % chunk or address.parts or not _is_plain_in(address, innermost.axis):
        return False
    others = [coefficient for atom, coefficient in address.form.terms if atom is not innermost.axis]
    return all(number % chunk == 0 for number in (*others, address.form.offset))


def _is_plain_in(address: Address, axis: Axis) -> bool:
    """Whether neighbours along an axis are neighbours in memory, and no test of theirs differs."""
    return address.form.coefficient(axis) == 1 and address.is_linear_in(axis)


def _runs_along_points(scope: Scope, operand: Expr, sides: Sequence[Side], axes: Sequence[Side]) -> bool:
    """Whether neighbouring points of an operand lie nearer to each other than neighbouring elements of sums."""
    layouts = scope.operands.kernel.layouts
    for load in nodes(operand):
        if isinstance(load, Load):
            steps = [_step(load, layouts[load.slot], side) for side in sides]
            sums = [_step(load, layouts[load.slot], side) for side in axes]
            return min(filter(None, steps), default=1 << 62) <= min(filter(None, sums), default=1 << 62)
    return True


def _step(load: Load, layout: Layout, side: Side) -> int:
    return abs(stride_along(load.indices, layout, side.axis)) if side.size > 1 else 0
