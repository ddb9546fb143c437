"""Shared objects that exist as bytes only, loaded into the process."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from _ctypes import dlclose
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rammer.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from rammer.devices.base import Buffer


class Library:
    """A loaded shared object, unloaded with its last reference: who calls its functions keeps one."""

    def __init__(self, code: Buffer, cache_dir: Path) -> None:
        """Load a shared object.

        Args:
            code: its bytes.
            cache_dir: where it is put for a moment, on systems that load from folders only.

        Raises:
            DeviceUnavailableError: it does not load here.
        """
        descriptor = -1
        try:
            if sys.platform == "linux":  # no folder is needed, nor the right to execute what is in one
                descriptor = os.memfd_create("rammer")
                with os.fdopen(descriptor, "wb", closefd=False) as file:
                    file.write(code)
                # The loader takes equal names for equal libraries: the name stays taken while the library is loaded.
                self._library = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
            else:
                from rammer.devices.cache import in_scratch_folder  # noqa: PLC0415 - not needed on Linux

                self._library = in_scratch_folder(cache_dir, lambda folder: _load(code, folder / "library.so"))
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise DeviceUnavailableError(
                f"compiled code does not load on this machine: {error}", hint="compile the model again here"
            ) from error
        # Not at exit: other threads may still be in it, and the process's end unloads it anyway.
        weakref.finalize(self, _unload, self._library._handle, descriptor).atexit = False

    def function(self, name: str, arguments: Sequence[type], result: type | None) -> Callable[..., int]:
        """A function of given C types, which releases the interpreter's lock while it runs.

        Raises:
            DeviceUnavailableError: there is none of that name.
        """
        function = self._find(name)
        function.argtypes = arguments
        function.restype = result
        return function

    def address(self, name: str) -> int:
        """A function's address.

        Raises:
            DeviceUnavailableError: there is none of that name.
        """
        return ctypes.cast(self._find(name), ctypes.c_void_p).value or 0

    def _find(self, name: str) -> ctypes._NamedFuncPointer:
        try:
            return self._library[name]
        except (AttributeError, ValueError) as error:  # there is none of that name, or none can have it
            raise DeviceUnavailableError(
                f"compiled code has no function '{name}'", hint="compile the model again here"
            ) from error


def _load(code: Buffer, path: Path) -> ctypes.CDLL:
    path.write_bytes(code)
    return ctypes.CDLL(str(path))


def _unload(handle: int, descriptor: int) -> None:
    dlclose(handle)
    if descriptor >= 0:
        os.close(descriptor)
