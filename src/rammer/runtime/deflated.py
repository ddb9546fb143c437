"""Sections of text and tables, which are long and say little, are stored deflated.

Constants are not: they are used where they lie in the file, and processes share them there.
"""

from __future__ import annotations

import zlib

_LEAST_BYTES = 8 << 10  # less gains no page
_LOOK_BYTES = 64 << 10
_MOST_TIMES = 64  # of what is stored: nobody is to ask for much memory by a small file
_LEVEL = 1  # the quickest; the others gain little
_MAPPED = "constants/"


def deflated(name: str, section: memoryview) -> memoryview | None:
    """A section in at most half of its bytes; None where it takes more, or is a constant."""
    if section.nbytes < _LEAST_BYTES or _MAPPED in name:
        return None
    if 2 * len(zlib.compress(section[:_LOOK_BYTES], _LEVEL)) > len(section[:_LOOK_BYTES]):
        return None
    stored = zlib.compress(section, _LEVEL)
    return memoryview(stored) if 2 * len(stored) <= section.nbytes <= _MOST_TIMES * len(stored) else None


def inflated(stored: memoryview) -> memoryview:
    """A section as it was before `deflated` gave it.

    Raises:
        ValueError: it is something else, or would take too much memory.
    """
    inflate = zlib.decompressobj()
    try:
        section = inflate.decompress(stored, _MOST_TIMES * stored.nbytes)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not inflate.eof or inflate.unused_data:
        raise ValueError("too long, or cut short")
    return memoryview(section)
