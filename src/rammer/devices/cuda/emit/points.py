"""Points of a tile, numbered, and shared out among threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rammer.devices.codegen.scope import Position
from rammer.devices.codegen.writer import Writer
from rammer.errors import UnsupportedFeatureError
from rammer.ir.expr import Axis
from rammer.ir.task import RKernel

_MAX_POINTS = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """The part of an axis that a tile covers: `size` points from the variable `lo` on (none: from 0)."""

    axis: Axis
    lo: str
    size: int

    @classmethod
    def whole(cls, axis: Axis) -> Side:
        """All of an axis."""
        return cls(axis=axis, lo="", size=axis.extent)

    @property
    def is_ragged(self) -> bool:
        """Whether tiles may reach beyond the axis."""
        return self.axis.extent % self.size != 0


def tile_sides(writer: Writer, kernel: RKernel) -> list[Side]:
    """Write where the rTask of number `tile` lies along each axis."""
    sides = []
    inner = kernel.task_count
    for axis, size, count in zip(kernel.expr.axes, kernel.tile.task, kernel.grid, strict=True):
        inner //= count
        if count == 1:
            sides.append(Side.whole(axis))
            continue
        number = "tile" if inner == 1 else f"tile / {inner}u"
        number = f"{number} % {count}u" if inner * count < kernel.task_count else number
        lo = writer.let(writer.index_type, f"{axis.name}_lo", f"({writer.index_type})({number}) * {size}")
        sides.append(Side(axis=axis, lo=lo, size=size))
    return sides


def ends(side: Side) -> tuple[str, str]:
    """The first point that a tile covers along an axis, and the one behind its last."""
    if not side.lo:
        return "0", str(side.size)
    past = f"{side.lo} + {side.size}"
    return side.lo, f"{past} < {side.axis.extent} ? {past} : {side.axis.extent}" if side.is_ragged else past


def count(sides: Sequence[Side]) -> int:
    """Points of a full tile.

    Raises:
        UnsupportedFeatureError: more than numbers of 32 bits can count.
    """
    points = math.prod(side.size for side in sides)
    if points >= _MAX_POINTS:
        raise UnsupportedFeatureError(
            f"one rTask of {points} points", hint="use more execution units, or compile for the device 'cpu'"
        )
    return points


def decode(
    writer: Writer, number: str, sides: Sequence[Side], vector: int = 1
) -> tuple[dict[Axis, Position], list[str]]:
    """Write the position along each axis of point `number`, the first of `sides` fastest, in vectors of so many points.

    Returns the positions, and conditions that hold unless the point is beyond an axis.
    """
    positions: dict[Axis, Position] = {}
    conditions: list[str] = []
    inner, total = 1, count(sides) // vector
    for side in sides:
        name, width = side.axis.name, vector if side is sides[0] else 1
        size = side.size // width
        if size == 1:
            positions[side.axis] = Position(side.lo, multiple=width)
            continue
        index = number if inner == 1 else f"{number} / {inner}u"
        inner *= size
        index = f"{index} % {size}u" if inner < total else index
        index = f"({index}) * {width}" if width > 1 else index
        origin = f"{side.lo} + " if side.lo else ""
        text = writer.let(writer.index_type, name, f"{origin}({writer.index_type})({index})")
        positions[side.axis] = Position(text, multiple=width)
        if side.is_ragged:
            conditions.append(f"{name} < {side.axis.extent}")
    return positions, conditions


def decode_inside(
    writer: Writer, number: str, sides: Sequence[Side], vector: int = 1
) -> tuple[dict[Axis, Position], list[str]]:
    """As `decode`, but positions are kept within the axes, whatever the conditions say."""
    positions, conditions = decode(writer, number, sides, vector)
    for side in sides:
        if side.is_ragged:
            width = vector if side is sides[0] else 1
            inside = f"min({positions[side.axis].text}, ({writer.index_type}){side.axis.extent - width})"
            name = writer.let(writer.index_type, f"{side.axis.name}_inside", inside)
            positions[side.axis] = Position(name, multiple=width)
    return positions, conditions


def lane_first(kernel: RKernel, sides: Sequence[Side]) -> list[Side]:
    """Sides in the order in which threads take their points: the lane axis fastest, then inner axes before outer."""
    lane = None if kernel.tile.lane is None else kernel.expr.axes[kernel.tile.lane]
    others = [side for side in reversed(sides) if side.axis is not lane]
    return [*(side for side in sides if side.axis is lane), *others]


def within(number: str, sides: Sequence[Side], part: int) -> list[str]:
    """The condition that `number` is one of the points of `sides`, if parts of so many points reach beyond them."""
    return [] if count(sides) % part == 0 else [f"{number} < {count(sides)}u"]


@contextmanager
def guarded(writer: Writer, conditions: Sequence[str]) -> Iterator[None]:
    """What is written inside runs if all conditions hold."""
    with writer.block(f"if ({' && '.join(conditions)})" if conditions else ""):
        yield
