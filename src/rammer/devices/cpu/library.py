"""Shared objects that exist as bytes only, loaded into the process."""

from __future__ import annotations

import ctypes
import os
import sys
from _ctypes import dlclose
from collections.abc import Callable, Sequence
from pathlib import Path

from rammer.devices.base import Buffer
from rammer.devices.cache import scratch_folder
from rammer.errors import DeviceUnavailableError


class Library:
    """A loaded shared object. Its functions must not be called after `close`."""

    def __init__(self, code: Buffer, cache_dir: Path) -> None:
        """Load a shared object.

        Args:
            code: its bytes.
            cache_dir: where it is put for a moment, on systems that load from folders only.

        Raises:
            DeviceUnavailableError: it does not load here.
        """
        self._descriptor = -1
        try:
            if sys.platform == "linux":  # no folder is needed, nor the right to execute what is in one
                self._descriptor = os.memfd_create("rammer")
                with os.fdopen(self._descriptor, "wb", closefd=False) as file:
                    file.write(code)
                # The loader takes equal names for equal libraries: the name stays taken while the library is loaded.
                self._library = ctypes.CDLL(f"/proc/self/fd/{self._descriptor}")
            else:
                with scratch_folder(cache_dir) as folder:
                    (folder / "library.so").write_bytes(code)
                    self._library = ctypes.CDLL(str(folder / "library.so"))
        except OSError as error:
            self._close_descriptor()
            raise DeviceUnavailableError(
                f"compiled code does not load on this machine: {error}", hint="compile the model again here"
            ) from error

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
        except AttributeError as error:
            raise DeviceUnavailableError(
                f"compiled code has no function '{name}'", hint="compile the model again here"
            ) from error

    def close(self) -> None:
        """Unload."""
        dlclose(self._library._handle)
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
