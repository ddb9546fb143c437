"""Patches of images in shared memory (`tiling.patches`): what copies one, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rammer.devices.codegen.scalar import C_TYPES, sum_text
from rammer.devices.codegen.scope import Operands, Scope
from rammer.devices.cuda.emit.fold import fold
from rammer.devices.cuda.emit.points import Side, decode
from rammer.ir.expr import Axis, Load, Output, TensorExpr
from rammer.ir.task import RKernel
from rammer.ir.types import Layout, TensorType
from rammer.tiling.patches import Window, extents, patch_load


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What the `windows` of an rTask reach of an image, of some channels; `sides` are what it has of each axis.

    In shared memory it is an operand of the type `name`, from `memory` on, whose points are its pixels.
    """

    name: str
    memory: str
    image: Load
    windows: Sequence[Window]
    channel: Side
    sides: Mapping[Axis, Side]

    def write_copies(self, scope: Scope, chunk: int) -> None:
        """Write what asks for so many channels at a time."""
        kernel, writer = scope.operands.kernel, scope.writer
        sizes = {axis: side.size for axis, side in self.sides.items()}
        sides = []
        for number, (window, reach) in enumerate(zip(self.windows, extents(self.windows, sizes), strict=True)):
            lo, extent = "", reach
            if window.axis is not None:
                side = self.sides[window.axis]
                if side.lo:
                    lo = writer.let(writer.index_type, f"patch{number}_lo", sum_text({side.lo: window.stride}, 0))
                extent = window.reach(-(-window.axis.extent // side.size) * side.size)
            sides.append(Side(axis=Axis(f"patch{number}", extent), lo=lo, size=reach))
        axes = [side.axis for side in sides]
        load = patch_load(self.image, self.windows, axes)
        patch = _reading(kernel, load, [*axes, self.channel.axis])
        within = Scope(writer, Operands(patch, scope.operands.readers), fold)
        write_copies(within, f"{self.name}", self.memory, load, sides[::-1], self.channel, chunk)


def write_copies(
    scope: Scope, name: str, memory: str, load: Load, sides: Sequence[Side], channels: Side, chunk: int
) -> None:
    """Write the copies of an operand of points along `sides`, the fastest first, so many channels of each at a time."""
    writer = scope.writer
    head = f"{name}::copy<{chunk}, false>({memory}, [&](uint32_t point_, uint32_t element_)"
    with writer.block(head, ");"):
        points, inside = decode(writer, "point_", sides)
        channel, within = decode(writer, "element_", [channels])
        address, checks = scope.enter({**points, **channel}).element(load)
        present = " & ".join([*(f"({one})" for one in (*inside, *within)), *checks]) or "true"
        writer.line(f"return rammer_piece<{C_TYPES[load.type]}>{{in{load.slot} + ({address}), {present}}};")


def _reading(kernel: RKernel, load: Load, axes: Sequence[Axis]) -> RKernel:
    """An rKernel over the same operands that copies a patch: what addresses are taken from."""
    type_ = TensorType(load.type, tuple(axis.extent for axis in axes))
    output = Output(type=type_, indices=tuple(axes), body=load)
    inputs = kernel.expr.inputs
    return replace(
        kernel,
        expr=TensorExpr(axes=tuple(axes), inputs=inputs, outputs=(output,)),
        layouts=(*kernel.layouts[: len(inputs)], Layout.row_major(type_.shape)),
    )
