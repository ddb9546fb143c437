"""Garbage is collected seldom: compilations make many objects and hardly a cycle, which Python looks for all the while.

Python's collector walks through all objects that are alive whenever their number has grown, which takes up to a fifth
of a compilation. Whatever is in no cycle is freed as soon as nobody refers to it, as always.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_OBJECTS = 100_000  # that may be made between two collections, instead of 700
_lock = threading.Lock()
_inside: list[tuple[int, int, int]] = []  # the thresholds before, once for each thread that is inside


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Collect seldom meanwhile; what the process had set holds again when the last thread has left."""
    with _lock:
        before = _inside[0] if _inside else gc.get_threshold()
        _inside.append(before)
        if before[0]:  # 0 is that nobody wants any collection
            gc.set_threshold(max(before[0], _OBJECTS), *before[1:])
    try:
        yield
    finally:
        with _lock:
            _inside.pop()
            if not _inside:
                gc.set_threshold(*before)
