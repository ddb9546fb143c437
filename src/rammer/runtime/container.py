r"""The file under an artifact: a JSON header and named binary sections, checked, and mapped rather than read.

    offset  bytes  content
    0       8      magic "RAMMER\r\n"
    8       4      format version, little-endian
    12      4      zero
    16      8      header length H
    24      32     SHA-256 of the header
    56      H      header: UTF-8 JSON {"meta": ..., "sections": [[name, length, [checksum, ...]], ...]}
    ...            zeros up to a multiple of 4096, then the sections, each followed by zeros up to one

A section of float32 values that 16 bits hold is stored in 16 bits, under its name with |float16 or |bfloat16 behind it;
text and tables are deflated, with |deflated behind it.
One that follows from less is stored as its recipe, under its name with |recipe behind it; what it is made of is a
section, too, named weights/ and its digest unless it is there anyway.
A section's checksums are the CRC-32 of its consecutive pieces of 8 MiB, so that large models are checked on several
cores. With the zeros and the file's length, every changed byte is found.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
import zlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

from rammer.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactVersionError,
    ArtifactWriteError,
)
from rammer.files import open_file
from rammer.ir.schema import Schema, SchemaError, read_json
from rammer.runtime.crew import Crew
from rammer.runtime.forms import is_narrow
from rammer.runtime.pages import Rooms

if TYPE_CHECKING:
    from rammer.ir.recipe import Recipe
    from rammer.runtime.stored import Sections

FORMAT_VERSION = 2
_MAGIC = b"RAMMER\r\n"
_PREFIX = struct.Struct("<8sIIQ32s")
_ALIGNMENT_BYTES = 4096
_PIECE_BYTES = 8 << 20
NO_RECIPES: Mapping[str, Recipe] = MappingProxyType({})
_HEADER: Schema = {"meta": {}, "sections": [(str, int, [int])]}
_REBUILD = "compile the model again and save it with this version"

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Buffer = bytes | memoryview
_Entry = tuple[str, int, list[int]]


def write_container(
    path: str | os.PathLike[str],
    meta: Mapping[str, Json],
    sections: Mapping[str, Buffer],
    recipes: Mapping[str, Recipe] = NO_RECIPES,
) -> None:
    """Write a file in one step: it is complete under its name, or the name is as it was.

    Args:
        path: where to.
        meta: JSON data for the header.
        sections: binary data by name, in order.
        recipes: how some of them follow from less, by name.

    Raises:
        ArtifactWriteError: the folder is missing or full, or may not be written.
    """
    import tempfile  # noqa: PLC0415 - who loads a model waits for none of it

    target = Path(path)
    pieces = container_pieces(meta, sections, recipes)
    temporary = ""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except OSError as error:
        if temporary:
            with suppress(OSError):
                Path(temporary).unlink()
        raise ArtifactWriteError(
            f"cannot write {target}: {error.strerror}", hint="choose a folder that exists and has room"
        ) from error


def container_pieces(
    meta: Mapping[str, Json], sections: Mapping[str, Buffer], recipes: Mapping[str, Recipe] = NO_RECIPES
) -> list[Buffer]:
    """What a file of this meta data and these sections consists of; see `write_container`."""
    from rammer.runtime.stored import stored  # noqa: PLC0415 - a file is opened before NumPy is imported

    flat = stored({name: memoryview(section).cast("B") for name, section in sections.items()}, recipes)
    checksums = _checksums(flat.values())
    table = [[name, section.nbytes, checksums[i]] for i, (name, section) in enumerate(flat.items())]
    header = json.dumps({"meta": meta, "sections": table}, sort_keys=True).encode()
    prefix = _PREFIX.pack(_MAGIC, FORMAT_VERSION, 0, len(header), hashlib.sha256(header).digest())
    pieces: list[Buffer] = [prefix, header, bytes(_padding(len(prefix) + len(header)))]
    for section in flat.values():
        pieces += [section, bytes(_padding(section.nbytes))]
    return pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A file whose header was read and checked, mapped read-only; its sections come checked, too.

    Attributes:
        meta: JSON data of the header.
        source: what messages call the file.
    """

    meta: Mapping[str, Json]
    source: str
    _table: Sequence[_Entry]
    _content: memoryview
    _start: int

    def sections(self) -> Sections:
        """The sections by name; see `Check.sections`.

        Raises:
            ArtifactCorruptError: one is truncated or altered.
        """
        with self.check() as check:
            return check.sections()

    def check(self) -> Check:
        """Begin to check the sections.

        Raises:
            ArtifactCorruptError: one is truncated.
        """
        offset = self._start
        sections: dict[str, memoryview] = {}
        for name, length, _ in self._table:
            sections[name] = self._content[offset : offset + length]
            end = offset + length
            offset = end + _padding(length)
            if len(sections[name]) != length or any(self._content[end:offset]):
                raise corrupt(self.source, f"section '{name}' is cut short or altered")
        if offset != len(self._content):
            raise corrupt(self.source, f"it is {len(self._content)} bytes long instead of {offset}")
        return Check(self, sections, {name: checksums for name, _, checksums in self._table})


class Check:
    """The sections of a container, whose checksums are compared from now on, while others import what reads a model.

    Nothing here needs NumPy before `sections`. A `with` block gives up what is left.

    Attributes:
        container: whose.
    """

    def __init__(
        self, container: Container, sections: Mapping[str, memoryview], checksums: Mapping[str, Sequence[int]]
    ) -> None:
        self.container = container
        self._sections = sections
        self._altered: list[str] = []
        self._rooms = Rooms({name: 2 * one.nbytes for name, one in sections.items() if is_narrow(name)})
        for name, section in sections.items():
            if len(checksums[name]) != len(_pieces(section.nbytes)):
                raise self._error(name)
        checks = [
            partial(self._check, name, piece, checksum)
            for name, section in sections.items()
            for piece, checksum in zip(_pieces(section.nbytes), checksums[name], strict=True)
        ]
        self._crew = Crew([*checks, *self._rooms.jobs()])

    def __enter__(self) -> Self:
        """The check."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads."""
        self._crew.give_up()

    def sections(self) -> Sections:
        """The sections by name, once all are checked.

        Raises:
            ArtifactCorruptError: one is altered.
        """
        from rammer.runtime.stored import restored  # noqa: PLC0415 - a file is opened before NumPy is imported

        self._crew.finish()
        if self._altered:
            raise self._error(self._altered[0])
        try:
            return restored(self._sections, self._rooms.by_name)
        except SchemaError as error:
            raise corrupt(self.container.source, str(error)) from error

    def _check(self, name: str, piece: slice, expected: int) -> None:
        if zlib.crc32(self._sections[name][piece]) != expected:
            self._altered.append(name)

    def _error(self, name: str) -> ArtifactCorruptError:
        return corrupt(self.container.source, f"section '{name}' does not match its checksum")


def open_container(file: str | os.PathLike[str] | bytes) -> Container:
    """What `write_container` wrote: a path, or the content of the file.

    Raises:
        ArtifactNotFoundError: no such file, or it cannot be read.
        ArtifactVersionError: another format version.
        ArtifactCorruptError: not an artifact, or its header is truncated or altered.
    """
    if isinstance(file, bytes):
        return _container(memoryview(file), "the model")
    try:
        with open_file(Path(file)) as opened:
            size = os.fstat(opened.fileno()).st_size
            content = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)) if size else memoryview(b"")
    except OSError as error:
        raise ArtifactNotFoundError(f"cannot read {file}: {error.strerror}", hint="check the path") from error
    return _container(content, os.fspath(file))


def _container(content: memoryview, source: str) -> Container:
    """The content of a file that `write_container` wrote; `source` names it in messages."""
    meta, table, start = _header(content, source)
    return Container(meta=meta, source=source, _table=table, _content=content, _start=start)


def _header(content: memoryview, source: str) -> tuple[Mapping[str, Json], list[_Entry], int]:
    """The checked header: meta data, table of sections and where the first one starts."""
    if len(content) < _PREFIX.size or bytes(content[: len(_MAGIC)]) != _MAGIC:
        raise ArtifactCorruptError(
            f"{source} cannot be used: it is no file that Rammer saved",
            hint="rammer.compile reads models; of a file that was cut short, compile the model again",
        )
    _, version, reserved, length, digest = _PREFIX.unpack_from(content)
    if version != FORMAT_VERSION:
        raise ArtifactVersionError(
            f"{source} has format version {version}; this Rammer reads version {FORMAT_VERSION}", hint=_REBUILD
        )
    raw = content[_PREFIX.size : _PREFIX.size + length]
    if reserved or len(raw) != length or hashlib.sha256(raw).digest() != digest:
        raise corrupt(source, "its header is cut short or altered")
    try:
        header = read_json(raw, _HEADER, "its header")
        if len({name for name, _, _ in header["sections"]}) != len(header["sections"]):
            raise SchemaError("its header names a section twice")
    except SchemaError as error:
        raise corrupt(source, str(error)) from error
    start = _PREFIX.size + length
    offset = start + _padding(start)
    if any(content[start:offset]):
        raise corrupt(source, "its header is altered")
    return header["meta"], [tuple(entry) for entry in header["sections"]], offset


def corrupt(source: str | os.PathLike[str], reason: str) -> ArtifactCorruptError:
    """The error for a file that cannot be used."""
    return ArtifactCorruptError(f"{source} cannot be used: {reason}", hint=_REBUILD)


def _padding(size_bytes: int) -> int:
    return -size_bytes % _ALIGNMENT_BYTES


def _checksums(sections: Collection[memoryview]) -> list[list[int]]:
    """Per section the checksums of its pieces, by all cores (they need no interpreter's lock)."""
    found = [[0] * len(_pieces(section.nbytes)) for section in sections]

    def check(checksums: list[int], number: int, piece: memoryview) -> None:
        checksums[number] = zlib.crc32(piece)

    Crew(
        partial(check, checksums, number, section[piece])
        for checksums, section in zip(found, sections, strict=True)
        for number, piece in enumerate(_pieces(section.nbytes))
    ).finish()
    return found


def _pieces(size_bytes: int) -> list[slice]:
    return [slice(start, min(start + _PIECE_BYTES, size_bytes)) for start in range(0, size_bytes, _PIECE_BYTES)]
