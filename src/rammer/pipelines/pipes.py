"""Objects through pipes, to another process of this interpreter and back.

Large arrays travel beside what pickle makes of the rest, without being copied.
"""

from __future__ import annotations

import io
import pickle
import struct
import subprocess
import sys
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from rammer.errors import RammerError


def begin(module: str) -> subprocess.Popen[bytes]:
    """Another process, which finds modules where this one does and calls `serve` of one of them."""
    code = f"import sys; sys.path[:] = sys.argv[1:]; from {module} import serve; serve()"
    return subprocess.Popen([sys.executable, "-c", code, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class _Pickler(pickle.Pickler):
    """For what pickle has no way by itself."""

    def reducer_override(self, thing: object) -> Any:  # noqa: ANN401 - as pickle wants it
        """How to make it again."""
        if isinstance(thing, MappingProxyType):
            return _proxy, (dict(thing),)
        if isinstance(thing, RammerError):
            return _error, (type(thing), thing.args, thing.__dict__)
        if isinstance(thing, memoryview):
            return bytes, (bytes(thing),)
        return NotImplemented


def _proxy(content: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(content)


def _error(kind: type[RammerError], arguments: tuple[Any, ...], state: dict[str, Any]) -> RammerError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


def send(pipe: Any, thing: object) -> None:  # noqa: ANN401 - any stream
    """Write an object."""
    write(pipe, pickled(thing))


def pickled(thing: object) -> list[memoryview]:
    """An object as bytes, and its arrays, which are not copied."""
    buffers: list[pickle.PickleBuffer] = []
    text = io.BytesIO()
    _Pickler(text, protocol=5, buffer_callback=buffers.append).dump(thing)
    return [text.getbuffer(), *(buffer.raw() for buffer in buffers)]


def write(pipe: Any, parts: Sequence[memoryview]) -> None:  # noqa: ANN401 - any stream
    """Write an object that is pickled."""
    pipe.write(struct.pack(f"<Q{len(parts)}Q", len(parts), *(part.nbytes for part in parts)))
    for part in parts:
        pipe.write(part)
    pipe.flush()


def receive(pipe: Any) -> Any:  # noqa: ANN401 - any stream, any object
    """Read an object.

    Raises:
        EOFError: nobody writes any more.
    """
    (count,) = struct.unpack("<Q", _read(pipe, 8))
    sizes = struct.unpack(f"<{count}Q", _read(pipe, 8 * count))
    text, *buffers = [_read(pipe, size) for size in sizes]
    return pickle.loads(text, buffers=buffers)  # noqa: S301 - of a process that this one began


def _read(pipe: Any, size_bytes: int) -> bytearray:  # noqa: ANN401 - any stream
    found = bytearray(size_bytes)
    view, done = memoryview(found), 0
    while done < size_bytes:
        count = pipe.readinto(view[done:])
        if not count:
            raise EOFError("it said nothing more")
        done += count
    return found
