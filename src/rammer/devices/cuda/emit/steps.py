"""The steps in which the elements of a product's sums pass through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from rammer.devices.codegen.scope import Position, Scope
from rammer.devices.codegen.writer import Writer
from rammer.devices.cuda.emit.points import Side, count
from rammer.ir.kernel_form import GemmForm
from rammer.tiling.gemm import moving_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Steps of `size` elements of the sums; those of a `chain` of so many blocks are one loop.

    A step runs over the `moving` axes, from variable `element0` on. The `outer` ones stand still in it, each at the
    variable of its name. Both are fastest first.
    """

    size: int
    chain: int
    moving: tuple[Side, ...]
    outer: tuple[Side, ...]

    @classmethod
    def of(cls, form: GemmForm, axes: Sequence[Side]) -> Steps:
        """The steps of sums over `axes`, fastest first."""
        moving = moving_axes([side.size for side in axes], form.threadblock.k) or len(axes)
        return cls(
            size=form.threadblock.k,
            chain=form.tiles if form.overlapped else 1,
            moving=tuple(axes[:moving]),
            outer=tuple(axes[moving:]),
        )

    @property
    def count(self) -> int:
        """Of a block."""
        return -(-count((*self.moving, *self.outer)) // self.size)

    @property
    def total(self) -> int:
        """Of all blocks of the chain."""
        return self.chain * self.count

    def declare(self, writer: Writer) -> None:
        """Write where the first step is."""
        for variable in ("element0", *(side.axis.name for side in self.outer)):
            writer.line(f"{writer.index_type} {variable} = 0;")

    def enter(self, scope: Scope) -> Scope:
        """The scope in a step."""
        return scope.enter({side.axis: Position(side.axis.name) for side in self.outer})

    def advance(self, writer: Writer) -> None:
        """Go on to the next step along the axes: no divisions."""
        if not self.outer and self.chain == 1:
            writer.line(f"element0 += {self.size};")
            return
        advance(writer, "element0", self.size, -(-count(self.moving) // self.size) * self.size)
        with ExitStack() as nested:
            before = "element0"
            for side in self.outer:
                nested.enter_context(writer.block(f"if ({before} == 0)"))
                advance(writer, side.axis.name, 1, side.size)
                before = side.axis.name


def advance(writer: Writer, variable: str, by: int, end: int) -> None:
    """Add to a variable that starts anew where it comes to `end`."""
    writer.line(f"{variable} = {variable} == {end - by} ? 0 : {variable} + {by};")
