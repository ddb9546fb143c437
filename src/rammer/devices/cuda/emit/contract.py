"""The skeleton `contract`: sums of products with both operands staged in shared memory.

    for each point of the batch axes, for each block of rows and lanes
      for each group of sums
        for each step of elements of the sums
          load the next step's operands into registers
          multiply and add the present step's, from shared memory
          store the next step's into the other half of shared memory
      for each row and lane of the thread: the elementwise rest, store

A convolution is such a product, too: an operand's element is whatever its index expressions say, padding included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.cuda.describe import THREADS
from rammer.devices.cuda.emit.blocks import Blocks, blocks_of
from rammer.devices.cuda.emit.points import Side, count, decode, guarded
from rammer.devices.cuda.emit.stream import emit_stream, group_order
from rammer.ir.expr import Axis, Expr, Load, nodes
from rammer.ir.pattern import Group, Term, contraction, stride_along
from rammer.ir.task import RKernel
from rammer.ir.types import DType, Layout

_PADDING = 4  # elements between rows of shared memory, so that neighbours lie in different banks


def emit_contract(scope: Scope, sides: Sequence[Side]) -> int:
    """Write the loops over one rTask. Returns the scratch that it takes, in bytes."""
    kernel = scope.operands.kernel
    found = contraction(kernel.expr)
    if found is None:
        raise ValueError("the skeleton 'contract' takes a contraction")
    blocks = blocks_of(kernel, found, sides)
    if blocks is None:
        return emit_stream(scope, sides, found)
    writer, element = scope.writer, found.terms[0].reduce.dtype
    type_ = C_TYPES[element]
    group_threads = THREADS // blocks.splits
    writer.let("uint32_t", "split", f"threadIdx.x / {group_threads}")
    writer.let("uint32_t", "lane_thread", f"threadIdx.x % {group_threads} % {blocks.threads_along_lanes}")
    writer.let("uint32_t", "row_thread", f"threadIdx.x % {group_threads} / {blocks.threads_along_lanes}")
    scratch = 0
    with (
        writer.block(f"for (uint32_t batch = 0; batch < {count(blocks.batch_sides)}u; ++batch)"),
        writer.block(f"for (uint32_t row0 = 0; row0 < {count(blocks.row_sides)}u; row0 += {blocks.rows})"),
        writer.block(f"for (uint32_t lane0 = 0; lane0 < {count(blocks.lane_sides)}u; lane0 += {blocks.lanes})"),
    ):
        positions, conditions = decode(writer, "batch", blocks.batch_sides)
        in_batch = scope.enter(positions)
        sums = {term: writer.name("sums") for term in found.terms}
        for name in sums.values():
            writer.line(f"{type_} {name}[{blocks.thread_rows}][{blocks.thread_lanes}] = {{}};")
        with guarded(writer, conditions):
            for group in found.groups:
                pairs = [found.split(term, _lane(kernel)) for term in group.terms]
                axes = tuple(Side.whole(axis) for axis in reversed(group_order(scope, group)))
                product = _Product(
                    blocks=blocks,
                    group=group,
                    axes=axes,
                    step=blocks.step(max(side.size for side in axes)),
                    lane_operands=tuple(dict.fromkeys(operand for operand, _ in pairs)),
                    row_operands=tuple(dict.fromkeys(other for _, other in pairs)),
                    element=element,
                )
                product.emit(in_batch.enter({}), sums)
                scratch = max(scratch, product.scratch_bytes)
            if blocks.splits > 1:
                scratch = max(scratch, _split_epilogue(in_batch, blocks, sums, element))
            else:
                _epilogue(in_batch, blocks, sums)
    return scratch


def _lane(kernel: RKernel) -> Axis:
    """The lane axis, which every contraction has."""
    if kernel.tile.lane is None:
        raise ValueError("the skeleton 'contract' takes a lane axis")
    return kernel.expr.axes[kernel.tile.lane]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A group of sums over the same axes, and its distinct operands."""

    blocks: Blocks
    group: Group
    axes: tuple[Side, ...]
    step: int
    lane_operands: tuple[Expr, ...]
    row_operands: tuple[Expr, ...]
    element: DType

    @property
    def row_pitch(self) -> int:
        """Elements of shared memory from one step of a row operand to the next."""
        return self.blocks.rows + _PADDING

    @property
    def lane_pitch(self) -> int:
        """Elements of shared memory from one step of a lane operand to the next."""
        return self.blocks.lanes + _PADDING

    @property
    def half_elements(self) -> int:
        """Elements of shared memory that one step's operands take."""
        pitches = len(self.row_operands) * self.row_pitch + len(self.lane_operands) * self.lane_pitch
        return pitches * self.step

    @property
    def scratch_bytes(self) -> int:
        """Shared memory for two steps."""
        return 2 * self.half_elements * self.element.itemsize_bytes

    def emit(self, scope: Scope, sums: Mapping[Term, str]) -> None:
        """The loop over steps: `step_number` is loaded while the one before is multiplied."""
        writer = scope.writer
        scope.hoist((*self.row_operands, *self.lane_operands))
        # One long axis is cut into steps, and the others change between steps only: indices cost little then.
        longest = max(self.axes, key=lambda side: side.size)
        inner = [longest] if longest.size >= self.step else list(self.axes)
        outer = [side for side in self.axes if side not in inner]
        inner_steps = -(-count(inner) // self.step)
        steps = inner_steps * count(outer)
        with writer.block(f"for (uint32_t step_number = 0; step_number <= {steps}u; ++step_number)"):
            writer.line(f"{C_TYPES[self.element]} *half = ({C_TYPES[self.element]} *)scratch;")
            staged = [
                _Staged.of(scope, self, i, inner) for i in range(len(self.row_operands) + len(self.lane_operands))
            ]
            for one in staged:
                writer.line(f"{C_TYPES[self.element]} {one.registers}[{one.per_thread}];")
            with writer.block(f"if (step_number < {steps}u)"):
                writer.let("uint32_t", "element0", f"step_number % {inner_steps}u * {self.step}")
                writer.let("uint32_t", "outer", f"step_number / {inner_steps}u")
                in_step = scope.enter(decode(writer, "outer", outer)[0])
                for one in staged:
                    one.load(in_step)
            with writer.block("if (step_number > 0)"):
                writer.line(
                    f"const {C_TYPES[self.element]} *from = half + (step_number - 1) % 2 * {self.half_elements};"
                )
                self._multiply(scope, sums)
            with writer.block(f"if (step_number < {steps}u)"):
                writer.line(f"{C_TYPES[self.element]} *into = half + step_number % 2 * {self.half_elements};")
                for one in staged:
                    one.store(scope)
            writer.line("__syncthreads();")

    def offset(self, number: int) -> int:
        """Where operand `number` begins in a half of shared memory: row operands, then lane operands."""
        rows = min(number, len(self.row_operands))
        return (rows * self.row_pitch + (number - rows) * self.lane_pitch) * self.step

    def _multiply(self, scope: Scope, sums: Mapping[Term, str]) -> None:
        writer, blocks, type_ = scope.writer, self.blocks, C_TYPES[self.element]
        share = self.step // blocks.splits
        found_lanes = {operand: f"b{i}" for i, operand in enumerate(self.lane_operands)}
        found_rows = {operand: f"a{i}" for i, operand in enumerate(self.row_operands)}
        writer.line("#pragma unroll")
        with writer.loop("k", "0", str(share)):
            for number, operand in enumerate((*self.row_operands, *self.lane_operands)):
                is_row = number < len(self.row_operands)
                size, vector, thread, spread, pitch = (
                    (blocks.thread_rows, blocks.vector_rows, "row_thread", blocks.rows, self.row_pitch)
                    if is_row
                    else (blocks.thread_lanes, blocks.vector_lanes, "lane_thread", blocks.lanes, self.lane_pitch)
                )
                name = found_rows[operand] if is_row else found_lanes[operand]
                writer.line(f"{type_} {name}[{size}];")
                between = spread // (size // vector)
                for part in range(size // vector):
                    first = self.offset(number) + part * between
                    place = f"from + {first} + (split * {share} + k) * {pitch} + {thread} * {vector}"
                    writer.line(f"rammer_load_vector<{vector}>({name} + {part * vector}, {place});")
            writer.line("#pragma unroll")
            with writer.loop("i", "0", str(blocks.thread_rows)):
                writer.line("#pragma unroll")
                with writer.loop("j", "0", str(blocks.thread_lanes)):
                    for term in self.group.terms:
                        left, right = term.operands
                        row, lane = (left, right) if left in found_rows and right in found_lanes else (right, left)
                        writer.line(f"{sums[term]}[i][j] += {found_rows[row]}[i] * {found_lanes[lane]}[j];")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """One operand on its way into shared memory: each thread brings `per_thread` elements of a step.

    With `points_first` neighbouring threads take neighbouring points of the block, else neighbouring elements of sums.
    """

    operand: Expr
    registers: str
    sides: tuple[Side, ...]
    first: str
    points: int
    pitch: int
    offset: int
    step: int
    axes: tuple[Side, ...]
    points_first: bool

    @classmethod
    def of(cls, scope: Scope, product: _Product, number: int, axes: Sequence[Side]) -> _Staged:
        """Operand `number` of a product."""
        blocks = product.blocks
        is_row = number < len(product.row_operands)
        operand = (*product.row_operands, *product.lane_operands)[number]
        sides = blocks.row_sides if is_row else blocks.lane_sides
        return cls(
            operand=operand,
            registers=f"next{number}",
            sides=sides,
            first="row0" if is_row else "lane0",
            points=blocks.rows if is_row else blocks.lanes,
            pitch=product.row_pitch if is_row else product.lane_pitch,
            offset=product.offset(number),
            step=product.step,
            axes=tuple(axes),
            points_first=_runs_along_points(scope, operand, sides, axes),
        )

    @property
    def per_thread(self) -> int:
        """Elements that a thread brings in a step."""
        return -(-self.points * self.step // THREADS)

    @property
    def _present(self) -> list[str]:
        """The condition that a thread's element is one of the step's."""
        elements = self.points * self.step
        return [f"number < {elements}"] if elements % THREADS else []

    def load(self, scope: Scope) -> None:
        """Evaluate the thread's elements of step `step_number`; those beyond the operand are 0."""
        writer = scope.writer
        writer.line("#pragma unroll")
        with writer.loop("i", "0", str(self.per_thread)):
            self._place(scope)
            writer.let("uint32_t", "point", f"{self.first} + place")
            writer.let("uint32_t", "element", "element0 + k")
            conditions = _within("point", self.sides, self.points)
            if count(self.axes) % self.step:
                conditions.append(f"element < {count(self.axes)}u")
            conditions += self._present
            positions, beyond = decode(writer, "point", self.sides)
            elements, _ = decode(writer, "element", self.axes)
            writer.line(f"{self.registers}[i] = 0;")
            with guarded(writer, [*conditions, *beyond]):
                writer.line(f"{self.registers}[i] = {scope.enter({**positions, **elements}).value(self.operand)};")

    def store(self, scope: Scope) -> None:
        """Bring the thread's elements into shared memory."""
        writer = scope.writer
        writer.line("#pragma unroll")
        with writer.loop("i", "0", str(self.per_thread)):
            self._place(scope)
            with guarded(writer, self._present):
                writer.line(f"into[{self.offset} + k * {self.pitch} + place] = {self.registers}[i];")

    def _place(self, scope: Scope) -> None:
        """The point of the block and the element of the step that the thread brings."""
        writer = scope.writer
        writer.let("uint32_t", "number", f"threadIdx.x + i * {THREADS}")
        fast, slow, size = ("place", "k", self.points) if self.points_first else ("k", "place", self.step)
        writer.let("uint32_t", fast, f"number % {size}")
        writer.let("uint32_t", slow, f"number / {size}")


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


def _epilogue(scope: Scope, blocks: Blocks, sums: Mapping[Term, str]) -> None:
    """The elementwise rest at the rows and lanes that a thread holds."""
    writer = scope.writer
    writer.line("#pragma unroll")
    with writer.loop("i", "0", str(blocks.thread_rows)):
        row = _held("i", "row_thread", blocks.thread_rows, blocks.vector_rows, blocks.rows)
        writer.let("uint32_t", "row", f"row0 + {row}")
        rows, conditions = decode(writer, "row", blocks.row_sides)
        with guarded(writer, [*conditions, *_within("row", blocks.row_sides, blocks.rows)]):
            writer.line("#pragma unroll")
            with writer.loop("j", "0", str(blocks.thread_lanes)):
                lane = _held("j", "lane_thread", blocks.thread_lanes, blocks.vector_lanes, blocks.lanes)
                writer.let("uint32_t", "lane", f"lane0 + {lane}")
                lanes, beyond = decode(writer, "lane", blocks.lane_sides)
                with guarded(writer, [*beyond, *_within("lane", blocks.lane_sides, blocks.lanes)]):
                    at_point = scope.enter({**rows, **lanes})
                    for term, name in sums.items():
                        at_point.bind(term.reduce, f"{name}[i][j]")
                    at_point.store_results()


def _split_epilogue(scope: Scope, blocks: Blocks, sums: Mapping[Term, str], element: DType) -> int:
    """Put the groups' sums together in shared memory, then the elementwise rest, neighbouring threads along lanes.

    Returns the scratch that it takes, in bytes.
    """
    writer, type_, size = scope.writer, C_TYPES[element], blocks.rows * blocks.lanes
    writer.line(f"{type_} *parts = ({type_} *)scratch;")
    writer.line("#pragma unroll")
    with writer.loop("i", "0", str(blocks.thread_rows)):
        row = _held("i", "row_thread", blocks.thread_rows, blocks.vector_rows, blocks.rows)
        writer.line("#pragma unroll")
        with writer.loop("j", "0", str(blocks.thread_lanes)):
            lane = _held("j", "lane_thread", blocks.thread_lanes, blocks.vector_lanes, blocks.lanes)
            for number, name in enumerate(sums.values()):
                place = f"({number * blocks.splits} + split) * {size} + ({row}) * {blocks.lanes} + {lane}"
                writer.line(f"parts[{place}] = {name}[i][j];")
    writer.line("__syncthreads();")
    with writer.block(f"for (uint32_t place = threadIdx.x; place < {size}u; place += RAMMER_THREADS)"):
        writer.let("uint32_t", "row", f"row0 + place / {blocks.lanes}")
        writer.let("uint32_t", "lane", f"lane0 + place % {blocks.lanes}")
        rows, conditions = decode(writer, "row", blocks.row_sides)
        lanes, beyond = decode(writer, "lane", blocks.lane_sides)
        conditions += [*beyond, *_within("row", blocks.row_sides, blocks.rows)]
        with guarded(writer, [*conditions, *_within("lane", blocks.lane_sides, blocks.lanes)]):
            at_point = scope.enter({**rows, **lanes})
            for number, term in enumerate(sums):
                total = writer.name("total")
                writer.line(f"{type_} {total} = 0;")
                writer.line("#pragma unroll")
                with writer.loop("part", "0", str(blocks.splits)):
                    writer.line(f"{total} += parts[({number * blocks.splits} + part) * {size} + place];")
                at_point.bind(term.reduce, total)
            at_point.store_results()
    writer.line("__syncthreads();")  # before the next block's operands
    return len(sums) * blocks.splits * size * element.itemsize_bytes


def _within(name: str, sides: Sequence[Side], size: int) -> list[str]:
    """The condition that a row or lane of a block is one of the tile's."""
    return [] if count(sides) % size == 0 else [f"{name} < {count(sides)}u"]


def _held(index: str, thread: str, size: int, vector: int, spread: int) -> str:
    """The row or lane of a block that a thread holds at `index`: vectors, spread evenly over the block."""
    between = spread // (size // vector)
    return f"{index} / {vector} * {between} + {thread} * {vector} + {index} % {vector}"
