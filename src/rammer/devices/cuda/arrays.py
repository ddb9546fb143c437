"""Arrays in a GPU's memory that other libraries own, and those that a run leaves there for them. Nothing is copied.

Libraries meet by DLPack or by the CUDA array interface, both as `cuda.core` speaks them. Streams are numbers: handles
of the driver, or those that DLPack gives to the two default streams.
"""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.devices.base import View
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.order import LASTING_STREAMS, LEGACY_STREAM, Order
from rammer.errors import OptionError
from rammer.ir.graph import Array
from rammer.ir.types import TensorType

CUDA = 2
"""What DLPack calls memory of an NVIDIA GPU."""

_NO_ORDER = -1  # DLPack's "do not wait"
_KEPT = 8
_NOBODY: frozenset[int] = frozenset()


def stream_of(driver: Driver, stream: object) -> int:
    """The handle of a stream: a number, or an object that tells one.

    Raises:
        OptionError: it is no stream, or it is captured into a CUDA graph.
    """
    if stream is None:
        return LEGACY_STREAM
    handle: object = stream
    if callable(told := getattr(stream, "__cuda_stream__", None)):
        _, handle = told()
    elif not isinstance(stream, int):
        handle = getattr(stream, "cuda_stream", None)  # PyTorch's
    if not isinstance(handle, int) or handle < 0:
        raise OptionError(f"stream={stream!r}", hint="give a stream's handle, or an object with __cuda_stream__")
    if handle in {0, *LASTING_STREAMS}:
        return handle or LEGACY_STREAM
    if driver.call("cuStreamIsCapturing", handle) != driver.api.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE:
        raise OptionError(
            "a stream that is captured into a CUDA graph", hint="call the model outside: each run counts on the last"
        )
    return handle


class Exchange:
    """Arrays as `cuda.core` sees them. What that takes is imported once, for it is needed in every call."""

    def __init__(self, ordinal: int) -> None:
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        self._ordinal = ordinal
        self._buffer_of = Buffer.from_handle
        self._view_of = StridedMemoryView.from_any_interface
        self._view_on = StridedMemoryView.from_buffer

    def view(self, array: object, stream: int) -> View | None:
        """See `Resident.view`."""
        if isinstance(array, np.ndarray):  # of the host; NumPy refuses to be asked for an order with a stream
            return None
        try:
            seen = self._view_of(array, stream_ptr=stream)
        except Exception:
            # An array of the host, where no stream means anything: each library has an error of its own for that.
            told: Any = getattr(array, "__dlpack_device__", None)
            if told is not None and told()[0] == CUDA:
                raise
            return None
        if seen.device_id != self._ordinal:  # -1 is the host
            return None
        shape, strides = seen.shape, seen.strides
        return View(seen.ptr, seen.dtype, shape, strides is None or _row_by_row(shape, strides), not seen.readonly)

    def export(
        self,
        array: CudaArray,
        max_version: tuple[int, int] | None,
        dl_device: tuple[int, int] | None,
        copy: bool | None,
    ) -> object:
        """An array by DLPack; what comes out keeps it alive."""
        buffer = self._buffer_of(array.address, max(array.type.nbytes, 1), owner=array)
        view = self._view_on(buffer, array.shape, dtype=array.dtype)
        return view.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


@functools.lru_cache
def _row_by_row(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides, in elements, are those of a C-contiguous array; those of extents 1 and of nothing are free."""
    if 0 in shape:
        return True
    expected = itertools.accumulate(reversed(shape), operator.mul, initial=1)
    return all(
        extent == 1 or stride == wanted
        for extent, stride, wanted in zip(reversed(shape), reversed(strides), expected, strict=False)
    )


class Room:
    """Memory for a model's outputs, in the order of streams. What comes back is kept for the next run there."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._kept: dict[tuple[int, int], list[int]] = {}
        self._finalizer = weakref.finalize(self, _release, driver, self._kept)
        self._finalizer.atexit = False

    def take(self, size_bytes: int, stream: int) -> int:
        """An address.

        Raises:
            DeviceUnavailableError: there is too little.
        """
        try:
            return self._kept[size_bytes, stream].pop()
        except (KeyError, IndexError):
            self._driver.enter()
            return self._driver.allocate(size_bytes, stream)

    def give(self, address: int, size_bytes: int, stream: int) -> None:
        """Take an address back, once `stream` has done what it was given so far."""
        kept = self._kept.setdefault((size_bytes, stream), [])
        if len(kept) < _KEPT:
            kept.append(address)
        else:
            self._driver.enter()
            self._driver.call("cuMemFreeAsync", address, stream)


def _release(driver: Driver, kept: dict[tuple[int, int], list[int]]) -> None:
    driver.enter()
    for (_, stream), addresses in kept.items():
        for address in addresses:
            driver.call("cuMemFreeAsync", address, stream)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Maker:
    """What a model's output arrays have in common. `wait` ends when the model's runs have; None once it is gone."""

    driver: Driver
    exchange: Exchange
    order: Order
    room: Room
    wait: weakref.WeakMethod[Callable[[], None]]


class CudaArray:
    """An output in the GPU's memory; see `rammer.devices.base.DeviceArray`.

    Its memory goes back, in the order of the stream that the run was given to, when nobody refers to it any more:
    neither to it nor to what another library made of it. That stream, and those that it was handed to, must outlive it.
    """

    __slots__ = ("__weakref__", "_maker", "_readers", "_stream", "address", "type")

    def __init__(self, maker: Maker, type: TensorType, stream: int, address: int) -> None:
        self.address = address
        self.type = type
        self._maker, self._stream = maker, stream
        self._readers: frozenset[int] = _NOBODY

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements, as NumPy has it."""
        return self.type.dtype.numpy

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.type.shape

    def numpy(self) -> Array:
        """A copy on the host; see `DeviceArray.numpy`."""
        if (wait := self._maker.wait()) is not None:
            wait()
        found: Array = np.empty(self.shape, self.dtype)
        if found.nbytes:
            driver = self._maker.driver
            driver.enter()
            driver.call("cuMemcpyDtoH", found.ctypes.data, self.address, found.nbytes)
        return found

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on the GPU is copied to be seen by NumPy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The array by the CUDA array interface, version 3; the reader waits for `stream` by itself."""
        if self.dtype.kind == "V":
            raise AttributeError(f"the CUDA array interface has no name for {self.dtype}; use DLPack")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": self._stream,
        }

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """The array by DLPack, ready for work on `stream`; None is the legacy default stream, -1 asks for no order."""
        reader = LEGACY_STREAM if stream is None else stream
        if reader not in (_NO_ORDER, self._stream):
            self._maker.driver.enter()
            self._maker.order.follow(reader)
            self._readers |= {reader}
        return self._maker.exchange.export(self, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device."""
        return CUDA, self._maker.driver.ordinal

    def __del__(self) -> None:
        if sys.is_finalizing():  # the driver gives everything back then
            return
        if self._readers:
            self._maker.driver.enter()
            self._maker.order.gather(self._readers, self._stream)
        self._maker.room.give(self.address, self.type.nbytes, self._stream)

    def __repr__(self) -> str:
        return f"<rammer.CudaArray {self.type}>"
