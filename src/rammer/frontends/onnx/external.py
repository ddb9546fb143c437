"""Tensor data outside the model file: read only from inside the model's folder, and only what the tensor takes."""

from __future__ import annotations

import stat
from pathlib import Path, PurePosixPath, PureWindowsPath

import onnx

from rammer.errors import ExternalDataError

_KEEP_TOGETHER = "keep the data file in the folder of the model file, where the exporter wrote it"


def read_external(tensor: onnx.TensorProto, folder: Path | None, nbytes: int, where: str) -> bytes:
    """The `nbytes` bytes of a tensor whose data lie in a file of the model's folder.

    Args:
        tensor: its `external_data` name the file and, optionally, the offset and the length in bytes.
        folder: the model's folder; None where the model did not come from a file.
        nbytes: what the tensor's type and shape take.
        where: the tensor, for messages.

    Raises:
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
    return _read(path, offset, length, where)


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


def _read(path: Path, offset: int, length: int, where: str) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ExternalDataError(f"its external data '{path.name}' are not a file", where=where)
        if offset + length > status.st_size:
            raise ExternalDataError(
                f"its external data end at byte {offset + length} of '{path.name}', which has {status.st_size}",
                where=where,
                hint="the data file is cut short or belongs to another model; export both again",
            )
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise ExternalDataError(f"its external data '{path.name}' cannot be read: {error}", where=where) from error
