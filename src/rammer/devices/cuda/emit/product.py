"""A product of the skeleton `gemm`: its operands in shared memory, and the loop that they pass through it in.

Shared memory has some *stages*, each for one step of all operands. They are filled one after another, and multiplied
once their copies have arrived.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Position
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.blocked import BlockedTile
from rammer.devices.cuda.emit.points import Side, decode, within
from rammer.devices.cuda.emit.steps import Steps, advance
from rammer.ir.expr import Axis, Expr
from rammer.ir.kernel_form import GemmForm
from rammer.ir.task import RKernel
from rammer.tiling.gemm import INSTRUCTION_TILES, group_order, operands_of, staged_operand
from rammer.tiling.pattern import Contraction, Group, Term


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """An operand in shared memory: `element` is what is staged of it, and lies from byte `at` of a stage on.

    There it has `points` along `sides`, from the number in variable `first` on, `pitch` elements apart. Each has a
    step's elements side by side.
    """

    element: Expr
    sides: tuple[Side, ...]
    first: str
    points: int
    steps: Steps
    pitch: int
    at: int

    @property
    def size_bytes(self) -> int:
        """Of a stage."""
        return self.points * self.pitch * self.element.dtype.itemsize_bytes

    def place(self, stage: str, point: str, element: str) -> str:
        """The address of an element in a stage."""
        return f"({C_TYPES[self.element.dtype]} *)({stage} + {self.at}) + {point} * {self.pitch} + {element}"

    def decode(self, writer: Writer, element: str) -> tuple[dict[Axis, Position], list[str]]:
        """Write the positions of point `point_` of a block and of element `element` of a step.

        Returns them, and conditions that hold unless they are beyond the operand.
        """
        writer.let("uint32_t", "point", f"{self.first} + point_")
        writer.let("uint32_t", "element", f"element0 + {element}")
        points, beyond = decode(writer, "point", self.sides)
        elements, _ = decode(writer, "element", self.steps.moving)
        conditions = [*within("point", self.sides, self.points), *within("element", self.steps.moving, self.steps.size)]
        return {**points, **elements}, [*conditions, *beyond]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A group of sums over the same axes, with its distinct operands.

    `terms` has the two of each sum: that of its rows, and that of its lanes.
    """

    form: GemmForm
    steps: Steps
    operands: tuple[Operand, ...]
    terms: Mapping[Term, tuple[Operand, Operand]]

    @classmethod
    def of(cls, kernel: RKernel, tile: BlockedTile, found: Contraction, group: Group) -> Product:
        """The product of a group of a contraction's sums."""
        if kernel.tile.lane is None:
            raise ValueError("N runs along a lane axis")
        form, lane = tile.form, kernel.expr.axes[kernel.tile.lane]
        steps = Steps.of(form, [Side.whole(axis) for axis in reversed(group_order(group, kernel.layouts))])
        of_rows, of_lanes = operands_of(found, group, lane)
        operands: dict[Expr, Operand] = {}
        at = 0
        for operand in (*of_rows, *of_lanes):
            is_row = operand in of_rows
            operands[operand] = Operand(
                element=staged_operand(operand, form.instruction),
                sides=tile.rows if is_row else tile.lanes,
                first="row0" if is_row else "lane0",
                points=form.threadblock.m if is_row else form.threadblock.n,
                steps=steps,
                pitch=form.threadblock.k + INSTRUCTION_TILES[form.instruction].padding,
                at=at,
            )
            at += operands[operand].size_bytes
        terms = {}
        for term in group.terms:
            of_lane, of_row = found.split(term, lane)
            terms[term] = operands[of_row], operands[of_lane]
        return cls(form=form, steps=steps, operands=tuple(operands.values()), terms=terms)

    @property
    def stage_bytes(self) -> int:
        """Shared memory that a stage takes."""
        return sum(operand.size_bytes for operand in self.operands)

    @property
    def scratch_bytes(self) -> int:
        """Shared memory that all stages take."""
        return self.form.stages * self.stage_bytes

    @property
    def ahead(self) -> int:
        """Steps between the one that is filled and the one that is multiplied."""
        return self.form.stages - 1

    @contextmanager
    def pipeline(self, writer: Writer) -> Iterator[None]:
        """The loop over all steps: step `number` is on its way while the one `ahead` before it is multiplied."""
        for stage in ("filled", "multiplied"):
            writer.line(f"{writer.index_type} {stage} = 0;")
        self.steps.declare(writer)
        with writer.block(f"for (uint32_t number = 0; number < {self.steps.total + self.ahead}u; ++number)"):
            with writer.block(f"if (number >= {self.ahead})"):
                writer.line(f"rammer_cp_async_wait<{self.ahead - 1}>();")
                writer.line("__syncthreads();")  # all copies are there, and what is copied over is no longer read
            yield

    @contextmanager
    def filled(self, writer: Writer) -> Iterator[str]:
        """The part of the loop that sets a step on its way, if there is one; gives its number."""
        with writer.block(f"if (number < {self.steps.total})"):
            yield "number"
        writer.line("rammer_cp_async_commit();")

    @contextmanager
    def multiplied(self, writer: Writer) -> Iterator[str]:
        """The part of the loop that multiplies a step, if one has arrived; gives its number."""
        with writer.block(f"if (number >= {self.ahead})"):
            yield f"(number - {self.ahead})"

    def next_stage(self, writer: Writer, stage: str) -> None:
        """Go on to the next stage."""
        advance(writer, stage, self.stage_bytes, self.scratch_bytes)
