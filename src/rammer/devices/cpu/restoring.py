"""Sections of a file restored by the runtime's library, which the file itself brings: `restore.c` does the work."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rammer.devices.cpu.binary import RUNTIME_LIBRARY, mismatch
from rammer.devices.cpu.machine import read_machine
from rammer.devices.cpu.native import TYPES, Runtime, find_runtime
from rammer.devices.restorer import Piece
from rammer.errors import DeviceUnavailableError
from rammer.ir.schema import SchemaError
from rammer.options import CompileOptions

if TYPE_CHECKING:
    from rammer.devices.base import Buffer
    from rammer.devices.cpu.made import MakingWork
    from rammer.devices.making import Making

_PAGES = 3


class _Piece(ctypes.Structure):
    """`rammer_piece` of the runtime's header."""

    _fields_ = (
        ("from_", ctypes.c_void_p),
        ("size_bytes", ctypes.c_uint64),
        ("to", ctypes.c_void_p),
        ("type", ctypes.c_uint32),
        ("checksum", ctypes.c_uint32),
        ("altered", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class _Pieces(ctypes.Structure):
    """`rammer_pieces` of the runtime's header."""

    _fields_ = (
        ("pieces", ctypes.c_void_p),
        ("count", ctypes.c_uint64),
        ("memory", ctypes.c_void_p),
        ("memory_bytes", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("late_ns", ctypes.c_int64),
    )


class Checking:
    """See `PieceWork`."""

    def __init__(
        self,
        runtime: Runtime,
        content: memoryview,
        pieces: Sequence[Piece],
        memory: mmap.mmap,
        rooms: Sequence[slice],
    ) -> None:
        self._call = runtime.check
        self._kept = (runtime, content, memory)
        base, room = address_of(content), ctypes.addressof(ctypes.c_char.from_buffer(memory))
        checked = (
            _Piece(base + start, size_bytes, None if type_ is None else room + to, TYPES[type_], checksum)
            for start, size_bytes, checksum, type_, to in pieces
        )
        paged = (_Piece(None, one.stop - one.start, room + one.start, _PAGES) for one in rooms)
        self._pieces = (_Piece * (len(pieces) + len(rooms)))(*checked, *paged)
        self._work = _Pieces(
            pieces=ctypes.addressof(self._pieces), count=len(self._pieces), memory=room, memory_bytes=len(memory)
        )

    def help(self) -> None:
        """See `Work.help`."""
        self._call(ctypes.byref(self._work))

    def give_up(self) -> None:
        """See `Work.give_up`."""
        self._work.next = self._work.count

    def altered(self) -> int | None:
        """See `PieceWork.altered`."""
        return next((number for number, piece in enumerate(self._pieces) if piece.altered), None)


class CpuRestorer:
    """See `Restorer`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def check(
        self, content: memoryview, pieces: Sequence[Piece], memory: mmap.mmap, rooms: Sequence[slice]
    ) -> Checking:
        """See `Restorer.check`."""
        return Checking(self._runtime, content, pieces, memory, rooms)

    def make(self, makings: Sequence[Making], memories: Sequence[memoryview]) -> MakingWork:
        """See `Restorer.make`."""
        from rammer.devices.cpu.made import MakingWork  # noqa: PLC0415 - a file is checked before NumPy is imported

        return MakingWork(self._runtime, makings, memories)


def find(
    needed: Mapping[str, str], read: Callable[[str], Buffer | None], options: CompileOptions
) -> CpuRestorer | None:
    """What restores the sections of a file by the runtime in it, or None where that does not run here.

    Args:
        needed: what a machine must have, see `Binary`.
        read: gives a file of the binary, checked.
        options: where libraries may be put for a moment.
    """
    try:
        if mismatch(needed, read_machine()) is not None:
            return None
        code = read(RUNTIME_LIBRARY)
        return None if code is None else CpuRestorer(find_runtime(code, options.cache_dir))
    except (SchemaError, DeviceUnavailableError):
        return None  # whoever loads the program says why


class _View(ctypes.Structure):
    """`Py_buffer` of Python's stable interface."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(content: memoryview) -> int:
    """Where bytes lie, which need not be writable; whoever holds them keeps them there."""
    view = _View()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(content), ctypes.byref(view), 0)
    address = view.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return address
