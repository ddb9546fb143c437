"""Copies of large arrays to the GPU, which reads them where they lie."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

from rammer.devices.cuda.driver import NULL_STREAM, Driver

if TYPE_CHECKING:
    from rammer.ir.graph import Array

_PIECE_BYTES = 8 << 20
_PIECES = 32  # registered at a time: as long as they are, the system cannot take their pages back
_READ_ONLY = 8  # CU_MEMHOSTREGISTER_READ_ONLY: the pages may be those of a file


def upload(driver: Driver, address: int, array: Array) -> None:
    """Copy an array to the GPU's memory at `address`; it is there when this returns.

    Pieces of an array that begins with a page, as constants in a mapped file do, are registered with the driver: the
    GPU reads each by itself while the next is registered. What is not registered the driver copies, which takes longer.
    """
    begin, end = array.ctypes.data, array.ctypes.data + array.nbytes
    registered: list[int] = []

    def release() -> None:
        driver.call("cuStreamSynchronize", NULL_STREAM)
        while registered:
            driver.call("cuMemHostUnregister", registered.pop())

    try:
        while begin % mmap.PAGESIZE == 0 and end - begin >= _PIECE_BYTES:
            if len(registered) == _PIECES:
                release()
            if driver.api.cuMemHostRegister(begin, _PIECE_BYTES, _READ_ONLY)[0]:
                break
            registered.append(begin)
            driver.call("cuMemcpyHtoDAsync", address, begin, _PIECE_BYTES, NULL_STREAM)
            begin += _PIECE_BYTES
            address += _PIECE_BYTES
        driver.call("cuMemcpyHtoD", address, begin, end - begin)
    finally:
        release()
