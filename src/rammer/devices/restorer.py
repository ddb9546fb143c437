"""What a device's own code does to the sections of a file that is loaded, on several threads, without Python's lock."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from rammer.devices.making import Making


class Piece(NamedTuple):
    """Consecutive bytes of a file, and what their CRC-32 has to be.

    Where `type` names what of 16 bits they are, they go into memory as float32 values, at `room`.
    """

    start: int
    size_bytes: int
    checksum: int
    type: str | None = None
    room: int = 0


class Work(Protocol):
    """Work that any number of threads do together."""

    def help(self) -> None:
        """Do what nobody has taken yet, until nothing is left."""
        ...


class PieceWork(Work, Protocol):
    """Pieces that are checked and widened."""

    def give_up(self) -> None:
        """Let nobody take another piece."""
        ...

    def altered(self) -> int | None:
        """The first piece whose checksum is another one, once all is done."""
        ...


class Restorer(Protocol):
    """What restores sections. Results are the bits that `rammer.runtime` would make by NumPy."""

    def check(
        self, content: memoryview, pieces: Sequence[Piece], memory: mmap.mmap, rooms: Sequence[slice]
    ) -> PieceWork:
        """Check pieces of a content, and widen some of them into memory, whose pages are made on the way.

        After them the pages of some rooms in the memory are made.
        """
        ...

    def make(self, makings: Sequence[Making], memories: Sequence[memoryview]) -> Work:
        """Make constants, each in zeroed memory of its span."""
        ...
