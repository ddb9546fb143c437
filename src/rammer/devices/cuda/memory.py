"""Memory that a model takes: on the GPU, and pinned on the host for copies. Given back all together."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rammer.devices.cuda.capture import is_capturing, unrestricted
from rammer.devices.cuda.driver import NULL_STREAM, Driver, check
from rammer.devices.cuda.upload import upload

if TYPE_CHECKING:
    from rammer.ir.graph import Array

_ALIGNMENT_BYTES = 256


class Memory:
    """Allocations, and other things that the driver hands out, with one end: `free`, or when nobody refers to it.

    Args:
        driver: the driver.
        wait: ends when nothing works with them any more. It must not refer to what has this memory; what it does refer
            to is there until then.
    """

    def __init__(self, driver: Driver, wait: Callable[[], None] = lambda: None) -> None:
        self._driver = driver
        self._owned: list[tuple[str, Any]] = []
        # Not at exit: the driver gives everything back then.
        self._finalizer = weakref.finalize(self, _free, _Left(driver, self._owned, wait))
        self._finalizer.atexit = False

    def own(self, destroy: str, thing: Any) -> Any:  # noqa: ANN401 - the bindings have no types
        """`thing`, which the driver's function `destroy` ends together with the rest."""
        self._owned.append((destroy, thing))
        return thing

    def device(self, size_bytes: int) -> int:
        """The address of memory on the GPU, zeroed when this returns: a model has streams of its own.

        Raises:
            DeviceUnavailableError: there is too little.
        """
        size_bytes = max(size_bytes, _ALIGNMENT_BYTES)
        address = self._allocate(size_bytes)
        self._driver.call("cuMemsetD8", address, 0, size_bytes)
        self._driver.call("cuStreamSynchronize", NULL_STREAM)
        return address

    def copied(self, array: Array) -> int:
        """The address of a copy of an array on the GPU.

        Raises:
            DeviceUnavailableError: there is too little memory.
        """
        return self.side_by_side([array], [0, array.nbytes])

    def side_by_side(self, arrays: Sequence[Array], starts: Sequence[int]) -> int:
        """The address of copies of arrays on the GPU, each at its start from there; the last of `starts` is the end.

        Raises:
            DeviceUnavailableError: there is too little memory.
        """
        address = self._allocate(max(starts[-1], _ALIGNMENT_BYTES))
        for array, start in zip(arrays, starts, strict=False):
            upload(self._driver, address + start, array)
        return address

    def pinned(self, size_bytes: int) -> npt.NDArray[np.uint8]:
        """Memory of the host that the GPU copies from and to; it lives as long as this object."""
        address = int(self._driver.call("cuMemHostAlloc", max(size_bytes, _ALIGNMENT_BYTES), 0))
        self.own("cuMemFreeHost", address)
        return np.frombuffer(memoryview((ctypes.c_uint8 * size_bytes).from_address(address)), np.uint8)

    def _allocate(self, size_bytes: int) -> int:
        address = int(self._driver.call("cuMemAlloc", size_bytes))
        self.own("cuMemFree", address)
        return address

    def free(self) -> None:
        """Give everything back."""
        self._finalizer()


class _Left(NamedTuple):
    """What nobody refers to any more."""

    driver: Driver
    owned: list[tuple[str, Any]]
    wait: Callable[[], None]


_waiting: list[_Left] = []
"""For the end of a capture, which giving it back would end."""


def _free(left: _Left) -> None:
    if is_capturing():
        _waiting.append(left)
        return
    while _waiting:
        _give_back(_waiting.pop())
    _give_back(left)


def _give_back(left: _Left) -> None:
    """Give it back, even where another thread captures a graph: that forbids to wait for the whole GPU."""
    driver = left.driver
    driver.enter()
    with unrestricted(driver):
        left.wait()
        while left.owned:
            driver.call(*left.owned.pop())


class Staging:
    """A model's inputs or its outputs side by side, in pinned memory of the host and in a block on the GPU.

    Each begins at a multiple of 256 bytes. Copies between the two places are given to `stream`; where the kernel is to
    work on the host's memory, there is no other place and nothing is copied.

    Attributes:
        addresses: where the arrays lie for the kernel.
    """

    def __init__(
        self, driver: Driver, memory: Memory, sizes_bytes: Sequence[int], stream: int, *, on_host: bool = False
    ) -> None:
        padded = (-(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for size in sizes_bytes)
        *offsets, total_bytes = itertools.accumulate(padded, initial=0)
        pinned = memory.pinned(total_bytes)
        on_host_address = pinned.ctypes.data
        on_gpu = on_host_address if on_host else memory.device(total_bytes)
        self.addresses = tuple(on_gpu + offset for offset in offsets)
        self._bytes = [pinned[offset : offset + size] for offset, size in zip(offsets, sizes_bytes, strict=True)]
        self._parts: list[Array] = []
        self._copies = total_bytes > 0 and not on_host
        api = driver.api
        self._to_gpu = partial(api.cuMemcpyHtoDAsync, on_gpu, on_host_address, total_bytes, stream)
        self._to_host = partial(api.cuMemcpyDtoHAsync, on_host_address, on_gpu, total_bytes, stream)
        self._api = api

    def send(self, arrays: Sequence[Array]) -> None:
        """Begin to copy arrays, of the same types in every call, to the GPU."""
        for i, part in enumerate(self._parts or self._typed(arrays)):
            part[...] = arrays[i]
        if self._copies:
            answer = self._to_gpu()
            if answer[0]:  # not left to `check`: this stands in the way of every call
                check(self._api, "cuMemcpyHtoDAsync", answer)

    def fetch(self) -> None:
        """Begin to copy what lies on the GPU to the host."""
        if self._copies:
            check(self._api, "cuMemcpyDtoHAsync", self._to_host())

    def read(self, arrays: Sequence[Array]) -> None:
        """Write what was fetched into arrays, of the same types in every call."""
        for i, part in enumerate(self._parts or self._typed(arrays)):
            arrays[i][...] = part

    def _typed(self, arrays: Sequence[Array]) -> list[Array]:
        """The places on the host, as arrays of these types from now on."""
        self._parts = [
            part.view(array.dtype).reshape(array.shape) for part, array in zip(self._bytes, arrays, strict=True)
        ]
        return self._parts
