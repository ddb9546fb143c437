"""Compiled code on disk, by content: a key says what a blob was made from, a checksum that it is whole.

Several processes may use one folder: a blob appears under its name in one step, and equal keys mean equal blobs. A
cache that cannot be read or written makes compilation slower, never wrong: it warns once and the work goes on.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rammer.errors import CacheError

_CHECKSUM_BYTES = hashlib.sha256().digest_size
_PROBE = b"\0" * 4096
_HINT = "set RAMMER_CACHE_DIR to a folder that can be written and has room"


class CacheWarning(UserWarning):
    """The cache folder cannot be used; what is compiled now is compiled again the next time."""


def content_key(*parts: str | bytes | memoryview) -> str:
    """A key for something made from `parts`, in that order."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class Cache:
    """Blobs in a folder, made when first needed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._warned = False
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """The blob, or None where there is none, or only a damaged one."""
        try:
            stored = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", error)
            return None
        checksum, blob = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
        return blob if hashlib.sha256(blob).digest() == checksum else None

    def put(self, key: str, blob: bytes) -> None:
        """Keep a blob, replacing a damaged one."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, hashlib.sha256(blob).digest() + blob)
        except OSError as error:
            self._warn("write", error)

    def keep(self, key: str, blob: bytes) -> bytes:
        """Keep a blob unless there is one; returns the one that is kept."""
        if self.get(key) is None:
            self.put(key, blob)
        return self.get(key) or blob

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key[2:]

    def _warn(self, verb: str, error: OSError) -> None:
        with self._lock:
            first, self._warned = not self._warned, True
        if first:
            reason = error.strerror or type(error).__name__
            message = f"cannot {verb} the cache folder {self._folder} ({reason}); set RAMMER_CACHE_DIR to another one"
            warnings.warn(message, CacheWarning, stacklevel=3)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that nobody ever sees a part of it.

    Raises:
        OSError: the folder cannot be written; nothing is left behind.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


@contextmanager
def scratch_folder(cache_dir: Path) -> Iterator[Path]:
    """A folder to work in, gone afterwards: in the cache folder, else where the system keeps temporary files.

    Raises:
        CacheError: neither can be written, or the disk fills up while the folder is in use.
    """
    refusals: list[str] = []
    folder = _try_folder(lambda: cache_dir, refusals) or _try_folder(lambda: Path(tempfile.gettempdir()), refusals)
    if folder is None:
        raise CacheError(f"no folder to compile in: {'; '.join(refusals)}", hint=_HINT)
    with folder:
        try:
            yield Path(folder.name)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise CacheError(f"no room to compile in {folder.name}: {error.strerror}", hint=_HINT) from error


def _try_folder(place: Callable[[], Path], refusals: list[str]) -> tempfile.TemporaryDirectory[str] | None:
    """A fresh folder that has been written to: a full disk still makes folders."""
    try:
        place().mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix="work-", dir=place(), ignore_cleanup_errors=True)
        try:
            (Path(folder.name) / "probe").write_bytes(_PROBE)
        except OSError:
            folder.cleanup()
            raise
    except OSError as error:
        refusals.append(f"{error.filename or 'the temporary folder'}: {error.strerror}")
        return None
    return folder
