"""The runtime's library in this process. Nothing here needs NumPy: a file is checked before that is imported."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rammer.devices.cpu.binary import ABI
from rammer.devices.cpu.library import Library
from rammer.errors import DeviceUnavailableError

if TYPE_CHECKING:
    from rammer.devices.base import Buffer

TYPES: Mapping[str | None, int] = {None: 0, "float32": 0, "float16": 1, "bfloat16": 2}
"""`RAMMER_FLOAT32` and so on of the runtime's header."""


class Runtime:
    """The functions of the runtime's library, and the library itself, so that it stays."""

    def __init__(self, library: Library) -> None:
        address = ctypes.c_void_p
        self.library = library
        self.abi = library.function("rammer_abi", [], ctypes.c_uint32)()
        if self.abi != ABI:
            raise DeviceUnavailableError(
                f"the runtime has version {self.abi} instead of {ABI}", hint="compile the model again here"
            )
        self.new = library.function("rammer_model_new", [address], address)
        self.free = library.function("rammer_model_free", [address], None)
        self.run = library.function("rammer_model_run", [address] * 4, ctypes.c_int)
        self.resume = library.function("rammer_model_resume", [address] * 2, ctypes.c_int)
        self.cancel = library.function("rammer_model_cancel", [address], None)
        self.check = library.function("rammer_check", [address], None)
        self.make = library.function("rammer_make", [address], None)


_runtimes: dict[int, Runtime] = {}  # by ABI
_runtimes_lock = threading.Lock()


def find_runtime(code: Buffer, cache_dir: Path) -> Runtime:
    """The process's runtime; the first model brings it.

    Raises:
        DeviceUnavailableError: it does not load here, or is of another version.
    """
    with _runtimes_lock:
        if ABI not in _runtimes:
            _runtimes[ABI] = Runtime(Library(code, cache_dir))
        return _runtimes[ABI]
