"""Copies between arrays of other extents in a GPU's memory: the box that begins both."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
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


def copy_box(
    driver: Driver,
    *,
    into: tuple[int, Sequence[int]],
    start: tuple[int, Sequence[int]],
    box: Sequence[int],
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
    if 0 in box:
        return
    sides = _merged(list(map(_Side, box, start[1], into[1])), itemsize_bytes)
    outer, inner = sides[:-_COPIED], sides[-_COPIED:]
    read_bytes, written_bytes = (math.prod(side[which] for side in inner) for which in (1, 2))
    for number in itertools.product(*(range(side.box) for side in outer)):
        reading, writing = (_number([side[which] for side in outer], number) for which in (1, 2))
        _copy(driver, into[0] + writing * written_bytes, start[0] + reading * read_bytes, inner, stream)


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
