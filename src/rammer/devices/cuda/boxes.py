"""Copies between arrays of other extents in a GPU's memory: the box that begins both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rammer.devices.cuda.driver import Driver

_COPIED = 3  # dimensions, by one call of the driver


class _Side(NamedTuple):
    """Along a dimension: the extent of the box, of the array that is read and of the one that is written."""

    box: int
    read: int
    written: int

    @property
    def is_whole(self) -> bool:
        return self.box == self.read == self.written


class _Plan(NamedTuple):
    """Equal copies of up to three dimensions, the last in bytes, and where each begins: (read, written), in bytes."""

    sides: tuple[_Side, ...]
    starts_bytes: tuple[tuple[int, int], ...]


def copy_box(
    driver: Driver,
    *,
    into: tuple[int, tuple[int, ...]],
    start: tuple[int, tuple[int, ...]],
    box: tuple[int, ...],
    itemsize_bytes: int,
    stream: int,
) -> None:
    """Copy the elements below `box` of one array to the same places of another, both row by row, in a stream's order.

    Args:
        driver: the driver, entered.
        into: the address of the array that is written, and its extents.
        start: those of the array that is read.
        box: extents, at most those of either.
        itemsize_bytes: what an element takes.
        stream: its handle.
    """
    plan = _plan(box, start[1], into[1], itemsize_bytes)
    for read_bytes, written_bytes in plan.starts_bytes:
        _copy(driver, into[0] + written_bytes, start[0] + read_bytes, plan.sides, stream)


@lru_cache(maxsize=4096)
def _plan(box: tuple[int, ...], read: tuple[int, ...], written: tuple[int, ...], itemsize_bytes: int) -> _Plan:
    if 0 in box:
        return _Plan((), ())
    sides = _merged(list(map(_Side, box, read, written)), itemsize_bytes)
    outer, inner = sides[:-_COPIED], sides[-_COPIED:]
    places = list(itertools.product(*(range(side.box) for side in outer)))
    read_bytes, written_bytes = (
        [_number([side[which] for side in outer], at) * math.prod(side[which] for side in inner) for at in places]
        for which in (1, 2)
    )
    return _Plan(tuple(inner), tuple(zip(read_bytes, written_bytes, strict=True)))


def _merged(sides: Sequence[_Side], itemsize_bytes: int) -> list[_Side]:
    """The sides as few as can be, the last in bytes: what is whole belongs to the dimension before."""
    merged = [_Side(itemsize_bytes, itemsize_bytes, itemsize_bytes)]
    for side in reversed(sides):
        if merged[0].is_whole:
            merged[0] = _Side(*(one * other for one, other in zip(side, merged[0], strict=True)))
        else:
            merged.insert(0, side)
    return merged


def _number(extents: Sequence[int], at: Sequence[int]) -> int:
    """The number of a place among all of some extents."""
    number = 0
    for extent, index in zip(extents, at, strict=True):
        number = number * extent + index
    return number


def _copy(driver: Driver, into: int, start: int, sides: Sequence[_Side], stream: int) -> None:
    """Copy up to three dimensions, the last in bytes."""
    if len(sides) == 1:
        driver.call("cuMemcpyDtoDAsync", into, start, sides[0].box, stream)
        return
    depth, height, width = (_Side(1, 1, 1), *sides)[-_COPIED:]
    parameters = driver.api.CUDA_MEMCPY3D()
    parameters.srcMemoryType = parameters.dstMemoryType = driver.api.CUmemorytype.CU_MEMORYTYPE_DEVICE
    parameters.srcDevice, parameters.dstDevice = start, into
    parameters.srcPitch, parameters.dstPitch = width.read, width.written
    parameters.srcHeight, parameters.dstHeight = height.read, height.written
    parameters.WidthInBytes, parameters.Height, parameters.Depth = width.box, height.box, depth.box
    driver.call("cuMemcpy3DAsync", parameters, stream)
