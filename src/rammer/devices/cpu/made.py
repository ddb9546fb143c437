"""Constants made by the runtime's library of what they follow from; see `rammer.ir.recipe`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rammer.devices.cpu.native import TYPES, Runtime
from rammer.devices.making import Making, sums_of
from rammer.ir.recipe import Array, FilterLine

_BLOCK = 16  # of the runtime's header


class _Line(ctypes.Structure):
    """`rammer_line` of the runtime's header."""

    _fields_ = (
        ("taps", ctypes.c_uint32),
        ("stride", ctypes.c_uint32),
        ("groups", ctypes.c_uint32),
        ("points", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("sums", ctypes.c_uint32),
        ("matrix", ctypes.c_void_p),
    )


class _Making(ctypes.Structure):
    """`rammer_making` of the runtime's header."""

    _fields_ = (
        ("from_", ctypes.c_void_p),
        ("type", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("others", ctypes.c_uint32),
        ("by_others", ctypes.c_uint32),
        ("strides", ctypes.c_int64 * 4),
        ("factor", ctypes.c_void_p),
        ("factor_strides", ctypes.c_int64 * 2),
        ("lines", _Line * 2),
        ("to", ctypes.c_void_p),
        ("steps", ctypes.c_void_p * 5),
    )


class _Makings(ctypes.Structure):
    """`rammer_makings` of the runtime's header."""

    _fields_ = (
        ("makings", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
    )


class MakingWork:
    """See `Work`."""

    def __init__(self, runtime: Runtime, makings: Sequence[Making], memories: Sequence[memoryview]) -> None:
        self._call = runtime.make
        self._kept: list[object] = [runtime, makings, memories]
        self._makings = (_Making * len(makings))(*map(self._making, makings, memories))
        blocks = [-(-(one.others if one.by_others else one.lanes) // _BLOCK) for one in self._makings]
        ends = np.cumsum(blocks, dtype=np.uint64)
        self._work = _Makings(
            makings=ctypes.addressof(self._makings), ends=self._address(ends), count=len(makings), next=0
        )

    def help(self) -> None:
        """See `Work.help`."""
        self._call(ctypes.byref(self._work))

    def _making(self, making: Making, memory: memoryview) -> _Making:
        weights, factor = making.weights, making.factor
        return _Making(
            from_=weights.ctypes.data,
            type=TYPES[weights.dtype.name],
            lanes=weights.shape[0],
            others=weights.shape[1],
            by_others=making.by_others,
            strides=(ctypes.c_int64 * 4)(*_strides(weights)),
            factor=None if factor is None else self._address(factor),
            factor_strides=(ctypes.c_int64 * 2)(*([0, 0] if factor is None else _strides(factor)[:2])),
            lines=(_Line * 2)(*map(self._line, making.lines, weights.shape[2:])),
            to=np.frombuffer(memory, np.uint8).ctypes.data,
            steps=(ctypes.c_void_p * 5)(*map(self._address, making.steps)),
        )

    def _line(self, line: FilterLine, taps: int) -> _Line:
        return _Line(
            taps=taps,
            stride=line.stride,
            groups=line.groups,
            points=len(line.matrix),
            length=len(line.matrix[0]),
            sums=sums_of(line, taps),
            matrix=self._address(np.array(line.matrix, np.float64)),
        )

    def _address(self, array: npt.NDArray[np.generic]) -> int:
        """Where an array lies, as long as this work does."""
        self._kept.append(array)
        return array.ctypes.data


def _strides(array: Array) -> list[int]:
    """Strides in elements."""
    return [stride // array.itemsize for stride in array.strides]
