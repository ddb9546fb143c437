"""Memory that begins with a page, as sections in a mapped file do."""

from __future__ import annotations

import mmap


def fresh_pages(size_bytes: int) -> memoryview:
    """Zeros of this process's own. A forked process sees them, too, without a copy until somebody writes.

    Pages that may be shared for writing, `mmap`'s default, take 1.5 times as long to make. Large pages take half as
    long, but several times as long where memory is in pieces.
    """
    memory = mmap.mmap(-1, max(size_bytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return memoryview(memory)[:size_bytes]
