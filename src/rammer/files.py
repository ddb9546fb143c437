"""Files that users name, and folders whose content is run.

A path is opened only if it is a file: a pipe or a device may never end. A folder is trusted only if nobody but its
owner writes there.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_file(path: Path) -> BinaryIO:
    """A regular file, opened for reading.

    Raises:
        IsADirectoryError: it is a folder.
        OSError: it is no regular file, or cannot be read.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "no path holds a null character", str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe's other end is not waited for
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a file", str(path))


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone, whatever the umask.

    Raises:
        OSError: one cannot be made, or is no folder.
    """
    if folder.is_dir():
        return
    make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def distrust(folder: Path, *, among_others: bool = False) -> str | None:
    """Why what lies in a folder may be somebody else's, or None where it cannot be, or there is no such folder.

    Args:
        folder: of the user who runs this, or of the system.
        among_others: whether others may have files of their own beside what is looked for, as in /tmp.
    """
    try:
        status = folder.stat()
    except OSError:
        return None
    if status.st_uid not in (os.geteuid(), 0):
        return f"{folder} belongs to another user"
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if shared and not (among_others and status.st_mode & stat.S_ISVTX):
        return f"others may write in {folder}"
    return None
