"""Sections of float32 values that 16 bits hold exactly are stored in 16 bits.

Processors compute models of float16 and bfloat16 with float32 weights, which would make their files twice as large as
the models. What is widened again is equal bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial

import numpy as np
import numpy.typing as npt

_Words = npt.NDArray[np.uint32]
_Halves = npt.NDArray[np.uint16]

_LEAST_BYTES = 8 << 10  # less is not worth a look
_PIECE_WORDS = 128 << 10  # what is read and written at a time stays in a core's cache
_JOB_WORDS = 4 << 20
_OFFSET = np.float32(2.0**112)
_SMALLEST = np.array([1 << 13], np.uint32).view(np.float32)
_INFINITE = 2.0**16  # what infinities and NaNs of float16 reach as ordinary numbers, and no number of float16


def _to_float16(words: _Words, halves: _Halves) -> None:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        halves.view(np.float16)[:] = words.view(np.float32)


def _from_float16(halves: _Halves, words: _Words) -> None:
    """Sign, exponent and fraction moved to their places, and the exponent's offset as a factor.

    2.5 times as quick as a table of all values, 4 times as NumPy's conversion.
    """
    words[:] = halves.view(np.int16)  # the sign goes to all higher bits
    np.left_shift(words, 13, out=words)
    np.bitwise_and(words, 0x8FFFE000, out=words)
    values = words.view(np.float32)
    np.multiply(values, _OFFSET, out=values)
    # What some libraries set for a whole thread takes the smallest numbers for zero.
    if values.max() >= _INFINITE or values.min() <= -_INFINITE or not np.multiply(_SMALLEST, _OFFSET)[0]:
        np.take(_float32_of_float16(), halves, out=words, mode="clip")


@cache
def _float32_of_float16() -> _Words:
    """The bits of each float16 as a float32, by its own bits."""
    with np.errstate(invalid="ignore"):
        return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)


def _to_bfloat16(words: _Words, halves: _Halves) -> None:
    halves[:] = words >> 16


def _from_bfloat16(halves: _Halves, words: _Words) -> None:
    words[:] = halves
    np.left_shift(words, 16, out=words)


_Conversion = tuple[Callable[[_Words, _Halves], None], Callable[[_Halves, _Words], None]]
_CONVERSIONS: Mapping[str, _Conversion] = {
    "float16": (_to_float16, _from_float16),
    "bfloat16": (_to_bfloat16, _from_bfloat16),
}


def narrowed(section: memoryview) -> tuple[str, memoryview] | None:
    """A 16-bit type that holds all float32 values of a section, and the section in it; None if none does."""
    if section.nbytes < _LEAST_BYTES or section.nbytes % 4:
        return None
    words = np.frombuffer(section, np.uint32)
    halves = np.empty(words.size, np.uint16)
    for name, conversion in _CONVERSIONS.items():
        if all(_fits(words[piece], halves[piece], conversion) for piece in _pieces(words.size)):
            return name, halves.data.cast("B")
    return None


def widenings(narrow: memoryview, name: str, wide: memoryview) -> list[Callable[[], None]]:
    """Jobs, for several threads at once, that make a section of what `narrowed` gave.

    Args:
        narrow: the section in 16 bits.
        name: their type.
        wide: where to.

    Raises:
        ValueError: an odd number of bytes.
    """
    _, widen = _CONVERSIONS[name]
    halves, words = np.frombuffer(narrow, np.uint16), np.frombuffer(wide, np.uint32)
    return [partial(_widen, widen, halves[part], words[part]) for part in _pieces(words.size, _JOB_WORDS)]


def _widen(widen: Callable[[_Halves, _Words], None], halves: _Halves, words: _Words) -> None:
    for piece in _pieces(words.size):
        widen(halves[piece], words[piece])


def _fits(words: _Words, halves: _Halves, conversion: _Conversion) -> bool:
    """Narrow a piece; whether it can be widened again."""
    narrow, widen = conversion
    narrow(words, halves)
    again = np.empty_like(words)
    widen(halves, again)
    return np.array_equal(again, words)


def _pieces(count: int, size: int | None = None) -> list[slice]:
    size = size or _PIECE_WORDS
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
