"""Tensor data outside the model file: read only from inside the model's folder, and only what the tensor takes."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx

from rammer.errors import ExternalDataError
from rammer.files import open_file
from rammer.ir.sizes import check_memory, host_memory_bytes

_KEEP_TOGETHER = "keep the data file in the folder of the model file, where the exporter wrote it"


def read_external(tensor: onnx.TensorProto, folder: Path | None, nbytes: int, where: str, held_bytes: int) -> bytes:
    """The `nbytes` bytes of a tensor whose data lie in a file of the model's folder.

    Args:
        tensor: its `external_data` name the file and, optionally, the offset and the length in bytes.
        folder: the model's folder; None where the model did not come from a file.
        nbytes: what the tensor's type and shape take.
        where: the tensor, for messages.
        held_bytes: of other tensors that are in memory.

    Raises:
        OutOfMemoryError: they do not fit in memory beside the others.
        ExternalDataError: the file is missing, outside the folder or too short, or the entry makes no sense.
    """
    if folder is None:
        raise ExternalDataError(
            "its data lie in another file, and this model did not come from a file",
            where=where,
            hint="give the path of the model file, or load the data first (onnx.load does)",
        )
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = _inside(folder, entries.get("location", ""), where)
    offset = _count(entries, "offset", 0, where)
    length = _count(entries, "length", nbytes, where)
    if length != nbytes:
        raise ExternalDataError(f"it takes {nbytes} bytes, but its external data have {length}", where=where)
    return _read(path, offset, length, where, held_bytes)


def _inside(folder: Path, location: str, where: str) -> Path:
    """The file at `location`, which neither its spelling nor a symbolic link may lead out of the folder."""
    if not location or "\0" in location:
        raise ExternalDataError(f"its external data have no usable location: {location!r}", where=where)
    parts = PurePosixPath(location).parts
    if ".." in parts or PurePosixPath(location).is_absolute() or PureWindowsPath(location).drive:
        raise ExternalDataError(
            f"its external data lie at '{location}', outside the model's folder", where=where, hint=_KEEP_TOGETHER
        )
    root = folder.resolve()
    try:
        path = (root / location).resolve(strict=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: a symbolic link to itself
        raise ExternalDataError(
            f"its external data file '{location}' cannot be found", where=where, hint=_KEEP_TOGETHER
        ) from error
    if not path.is_relative_to(root):
        raise ExternalDataError(
            f"its external data file '{location}' is a link out of the model's folder", where=where, hint=_KEEP_TOGETHER
        )
    return path


def _count(entries: dict[str, str], key: str, default: int, where: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ExternalDataError(f"the {key} of its external data is '{text}', not a number of bytes", where=where)
    return int(text)


def _read(path: Path, offset: int, length: int, where: str, held_bytes: int) -> bytes:
    try:
        with open_file(path) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if offset + length > size_bytes:
                raise ExternalDataError(
                    f"its external data end at byte {offset + length} of '{path.name}', which has {size_bytes}",
                    where=where,
                    hint="the data file is cut short or belongs to another model; export both again",
                )
            check_memory({"other tensors": held_bytes, "external data": length}, host_memory_bytes(), where=where)
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        reason = error.strerror
        raise ExternalDataError(f"its external data '{path.name}' cannot be read: {reason}", where=where) from error
