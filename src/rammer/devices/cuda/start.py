"""The driver and its context take 0.2 s to start: by ctypes, beside the import of NVIDIA's bindings and of NumPy."""

from __future__ import annotations

import ctypes

_LIBRARY = "libcuda.so.1"


def start(library: str = _LIBRARY) -> None:
    """Start the driver and retain the first GPU's primary context: `find_driver` then finds both at once.

    Where there is no driver or no GPU nothing happens: `find_driver` says so.
    """
    try:
        driver = ctypes.CDLL(library)
    except OSError:
        return
    if driver.cuInit(0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(ctypes.c_void_p()), 0)
