"""Memory that a model takes: on the GPU, and pinned on the host for copies. Given back all together."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.devices.cuda.driver import Driver
from rammer.ir.graph import Array

_ALIGNMENT_BYTES = 256


class Memory:
    """Allocations, and other things that the driver hands out, with one end: `free`, or when nobody refers to it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._owned: list[tuple[str, Any]] = []
        # Not at exit: the driver gives everything back then.
        self._finalizer = weakref.finalize(self, _free, driver, self._owned)
        self._finalizer.atexit = False

    def own(self, destroy: str, thing: Any) -> Any:  # noqa: ANN401 - the bindings have no types
        """`thing`, which the driver's function `destroy` ends together with the rest."""
        self._owned.append((destroy, thing))
        return thing

    def device(self, size_bytes: int) -> int:
        """The address of zeroed memory on the GPU.

        Raises:
            DeviceUnavailableError: there is too little.
        """
        size_bytes = max(size_bytes, _ALIGNMENT_BYTES)
        address = int(self._driver.call("cuMemAlloc", size_bytes))
        self.own("cuMemFree", address)
        self._driver.call("cuMemsetD8", address, 0, size_bytes)
        return address

    def copied(self, array: Array) -> int:
        """The address of a copy of an array on the GPU."""
        address = self.device(array.nbytes)
        self._driver.call("cuMemcpyHtoD", address, array.ctypes.data, array.nbytes)
        return address

    def pinned(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Memory of the host that the GPU copies from and to; it lives as long as this object."""
        address = int(self._driver.call("cuMemHostAlloc", max(size_bytes, _ALIGNMENT_BYTES), 0))
        self.own("cuMemFreeHost", address)
        return np.ctypeslib.as_array((ctypes.c_uint8 * size_bytes).from_address(address))

    def free(self) -> None:
        """Give everything back."""
        self._finalizer()


def _free(driver: Driver, owned: list[tuple[str, Any]]) -> None:
    driver.enter()
    driver.call("cuCtxSynchronize")  # a run may be under way
    while owned:
        driver.call(*owned.pop())


class Placement:
    """Arrays side by side in one block, each at a multiple of 256 bytes."""

    def __init__(self, sizes_bytes: Sequence[int]) -> None:
        padded = (-(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in sizes_bytes)
        *self.offsets_bytes, self.total_bytes = itertools.accumulate(padded, initial=0)
        self._sizes_bytes = tuple(sizes_bytes)

    def addresses(self, block: int) -> tuple[int, ...]:
        """The arrays' addresses in a block that begins at address `block`."""
        return tuple(block + offset for offset in self.offsets_bytes)

    def gather(self, arrays: Sequence[Array], block: npt.NDArray[np.uint8]) -> None:
        """Copy C-contiguous arrays into the block."""
        for array, part in zip(arrays, self._parts(block), strict=True):
            part[:] = array.reshape(-1).view(np.uint8)

    def scatter(self, block: npt.NDArray[np.uint8], arrays: Sequence[Array]) -> None:
        """Copy the block's parts into C-contiguous arrays."""
        for array, part in zip(arrays, self._parts(block), strict=True):
            array.reshape(-1).view(np.uint8)[:] = part

    def _parts(self, block: npt.NDArray[np.uint8]) -> list[npt.NDArray[np.uint8]]:
        places = zip(self.offsets_bytes, self._sizes_bytes, strict=True)
        return [block[offset : offset + size] for offset, size in places]
