"""Memory that begins with a page, as sections in a mapped file do."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Mapping
from functools import partial
from time import thread_time

_LARGE_BYTES = 2 << 20
_JOB_BYTES = 16 << 20
_ORDINARY_S = 0.6e-3  # for as many ordinary pages as make a large one
_MOST_LATE_S = 6e-3
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14 and later


def fresh_pages(size_bytes: int) -> memoryview:
    """Zeros of this process's own. A forked process sees them, too, without a copy until somebody writes.

    Pages that may be shared for writing, `mmap`'s default, take 1.5 times as long to make.
    """
    return memoryview(_mapped(size_bytes))[:size_bytes]


class Rooms:
    """Fresh memory by name, side by side in one mapping, whose pages may be made before they are filled.

    That takes longer than to fill them. Large pages take a sixth of the time, or several times as much where memory has
    to be put together first, or lent to a virtual machine: the first ones tell.

    Attributes:
        memory: the mapping.
        starts: where each begins in it.
        by_name: each.
    """

    def __init__(self, sizes_bytes: Mapping[str, int]) -> None:
        self.starts: dict[str, int] = {}
        self._size_bytes = 0
        for name, size_bytes in sizes_bytes.items():
            self.starts[name] = self._size_bytes
            self._size_bytes += -(-size_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self.memory = _mapped(-(-self._size_bytes // _LARGE_BYTES) * _LARGE_BYTES)  # aligned by Linux since 6.7
        self._late_s = 0.0
        view = memoryview(self.memory)
        self.by_name = {name: view[start : start + sizes_bytes[name]] for name, start in self.starts.items()}

    def advise_large(self) -> None:
        """Ask for large pages, for who makes the pages in his own way."""
        if sys.platform == "linux" and self._size_bytes:
            self.memory.madvise(mmap.MADV_HUGEPAGE)

    def jobs(self) -> list[Callable[[], None]]:
        """What makes the pages, for several threads at once. Other Python threads run meanwhile.

        Where the system cannot do so, pages are made as they are filled.
        """
        if sys.platform != "linux" or not self._size_bytes:
            return []
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self.advise_large()
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        end = begin + self._size_bytes
        starts = range(begin // _JOB_BYTES * _JOB_BYTES, end, _JOB_BYTES)
        return [partial(self._make, advise, max(start, begin), min(start + _JOB_BYTES, end)) for start in starts]

    def _make(self, advise: Callable[[int, int, int], int], start: int, end: int) -> None:
        """Make the pages between two addresses."""
        while start < end and self._late_s < _MOST_LATE_S:
            stop = min((start // _LARGE_BYTES + 1) * _LARGE_BYTES, end)
            began_s = thread_time()
            advise(start, stop - start, _POPULATE_WRITE)
            self._late_s += thread_time() - began_s - _ORDINARY_S
            if self._late_s >= _MOST_LATE_S:
                self.memory.madvise(mmap.MADV_NOHUGEPAGE)
            start = stop
        if start < end:
            advise(start, end - start, _POPULATE_WRITE)


def _mapped(size_bytes: int) -> mmap.mmap:
    return mmap.mmap(-1, max(size_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
