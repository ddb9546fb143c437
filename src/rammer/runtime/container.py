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

A processor's file is checked, and its sections made what they were, by the runtime in it, whose section is checked
first; other files by zlib and NumPy, with the same results.
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

from rammer.devices.restorer import Piece, PieceWork, Restorer
from rammer.errors import (
    ArtifactCorruptError,
    ArtifactNotFoundError,
    ArtifactVersionError,
    ArtifactWriteError,
)
from rammer.files import open_file
from rammer.ir.schema import Schema, SchemaError, read_json
from rammer.runtime.crew import Crew
from rammer.runtime.deflated import inflated
from rammer.runtime.forms import DEFLATED, RECIPE, is_narrow, parted
from rammer.runtime.pages import Rooms

if TYPE_CHECKING:
    from rammer.ir.recipe import Recipe
    from rammer.runtime.stored import Sections

FORMAT_VERSION = 3
_MAGIC = b"RAMMER\r\n"
_PREFIX = struct.Struct("<8sIIQ32s")
_ALIGNMENT_BYTES = 4096
_PIECE_BYTES = 8 << 20
NO_RECIPES: Mapping[str, Recipe] = MappingProxyType({})
_HEADER: Schema = {"meta": {}, "sections": [(str, int, [int])]}
_SPAN: Schema = {"layout": {"span": int}}
_FLOAT32_BYTES = 4
_MOST_TIMES = 16
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

    def sections(self, restorer: Restorer | None = None) -> Sections:
        """The sections by name; see `check` and `Check.sections`.

        Raises:
            ArtifactCorruptError: one is truncated or altered.
        """
        with self.check(restorer) as check:
            return check.sections()

    def check(self, restorer: Restorer | None = None) -> Check:
        """Begin to check the sections.

        Args:
            restorer: what does so, and makes of the sections what they were; None for zlib and NumPy.

        Raises:
            ArtifactCorruptError: one is truncated.
        """
        starts: dict[str, int] = {}
        offset = self._start
        for name, length, checksums in self._table:
            starts[name] = offset
            end = offset + length
            offset = end + _padding(length)
            if len(self._content) < end or any(self._content[end:offset]):
                raise corrupt(self.source, f"section '{name}' is cut short or altered")
            if len(checksums) != len(_pieces(length)):
                raise altered(self.source, name)
        if offset != len(self._content):
            raise corrupt(self.source, f"it is {len(self._content)} bytes long instead of {offset}")
        return Check(self, starts, restorer)

    def file(self, name: str) -> memoryview | None:
        """A section that has one piece, checked by itself and inflated; None where it is not there, or altered."""
        offset = self._start
        for full_name, length, checksums in self._table:
            if parted(full_name) in ((name, None), (name, DEFLATED)):
                section = self._content[offset : offset + length]
                if [zlib.crc32(section)] != checksums:
                    return None
                with suppress(ValueError):
                    return section if full_name == name else inflated(section)
            offset += length + _padding(length)
        return None


class Check:
    """The sections of a container, whose checksums are compared from now on, while others import what reads a model.

    Nothing here needs NumPy before `sections`. A `with` block gives up what is left.

    Attributes:
        container: whose.
    """

    def __init__(self, container: Container, starts: Mapping[str, int], restorer: Restorer | None) -> None:
        self.container = container
        self._restorer = restorer
        content, table = container._content, container._table
        self._sections = {name: content[starts[name] : starts[name] + length] for name, length, _ in table}
        wide = {name: 2 * length for name, length, _ in table if is_narrow(name)}
        made = {} if restorer is None else _made_bytes(self._sections, len(content))
        self._rooms = Rooms({**wide, **made})
        self._pieces = [
            Piece(
                start=starts[name] + piece.start,
                size_bytes=piece.stop - piece.start,
                checksum=checksum,
                type=parted(name)[1] if name in wide else None,
                room=self._rooms.starts[name] + 2 * piece.start if name in wide else 0,
            )
            for name, length, checksums in table
            for piece, checksum in zip(_pieces(length), checksums, strict=True)
        ]
        self._names = [name for name, _, checksums in table for _ in checksums]
        self._altered: list[int] = []
        self._work: PieceWork | None = None
        if restorer is None:
            checks = [partial(self._check, number) for number in range(len(self._pieces))]
            self._crew = Crew([*checks, *self._rooms.jobs()])
        else:
            self._rooms.advise_large()
            rooms = [
                slice(self._rooms.starts[name] + piece.start, self._rooms.starts[name] + piece.stop)
                for name, size_bytes in made.items()
                for piece in _pieces(size_bytes)
            ]
            self._work = restorer.check(content, self._pieces, self._rooms.memory, rooms)
            self._crew = Crew([self._work.help] * (len(self._pieces) + len(rooms)))

    def __enter__(self) -> Self:
        """The check."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads."""
        if self._work is not None:
            self._work.give_up()
        self._crew.give_up()

    def sections(self) -> Sections:
        """The sections by name, once all are checked.

        Raises:
            ArtifactCorruptError: one is altered.
        """
        from rammer.runtime.stored import restored  # noqa: PLC0415 - a file is opened before NumPy is imported

        self._crew.finish()
        found = self._work.altered() if self._work is not None else min(self._altered, default=None)
        if found is not None:
            raise altered(self.container.source, self._names[found])
        try:
            return restored(self._sections, self._rooms.by_name, self._restorer)
        except SchemaError as error:
            raise corrupt(self.container.source, str(error)) from error

    def _check(self, number: int) -> None:
        piece = self._pieces[number]
        content = self.container._content[piece.start : piece.start + piece.size_bytes]
        if zlib.crc32(content) != piece.checksum:
            self._altered.append(number)


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


def altered(source: str, name: str) -> ArtifactCorruptError:
    """The error for a section that was altered."""
    return corrupt(source, f"section '{name}' does not match its checksum")


def _made_bytes(sections: Mapping[str, memoryview], most_bytes: int) -> dict[str, int]:
    """The sizes of constants that recipes make, as far as these say: their pages are made before NumPy is imported.

    Nothing is checked yet. More than a few times the file is left to who has read the recipes.
    """
    sizes_bytes = {}
    for name, section in sections.items():
        if parted(name)[1] == RECIPE:
            with suppress(SchemaError):
                span: int = read_json(section, _SPAN, "")["layout"]["span"]
                sizes_bytes[name] = span * _FLOAT32_BYTES
    return sizes_bytes if sum(sizes_bytes.values()) <= _MOST_TIMES * most_bytes else {}


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
