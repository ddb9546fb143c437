"""Arrays in a GPU's memory that other libraries own, and those that a run leaves there for them. Nothing is copied.

Libraries meet by DLPack or by the CUDA array interface, both as `cuda.core` speaks them. Streams are numbers: handles
of the driver, or those that DLPack gives to the two default streams.
"""

from __future__ import annotations

import itertools
import operator
import sys
import weakref
from collections.abc import Callable
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


def viewer(driver: Driver) -> Callable[[object, int | None], View | None]:
    """The function behind `Resident.view`. What it needs is imported once, for it is called for every array."""
    from cuda.core.utils import StridedMemoryView

    def view(array: object, stream: int | None) -> View | None:
        told: Any = getattr(array, "__dlpack_device__", None)
        if told is None:
            if not hasattr(array, "__cuda_array_interface__"):
                return None
        elif told() != (CUDA, driver.ordinal):
            return None
        seen = StridedMemoryView.from_any_interface(array, stream_ptr=_NO_ORDER if stream is None else stream)
        shape, strides = seen.shape, seen.strides
        return View(seen.ptr, seen.dtype, shape, strides is None or _row_by_row(shape, strides), not seen.readonly)

    return view


def _row_by_row(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides, in elements, are those of a C-contiguous array; those of extents 1 and of nothing are free."""
    if 0 in shape:
        return True
    expected = itertools.accumulate(reversed(shape), operator.mul, initial=1)
    return all(
        extent == 1 or stride == wanted
        for extent, stride, wanted in zip(reversed(shape), reversed(strides), expected, strict=False)
    )


class CudaArray:
    """An output in the GPU's memory; see `rammer.devices.base.DeviceArray`.

    Its memory goes back, in the order of the stream that the run was given to, when nobody refers to it any more:
    neither to it nor to what another library made of it. That stream, and those that it was handed to, must outlive it.
    """

    __slots__ = ("__weakref__", "_driver", "_model", "_order", "_readers", "_stream", "_type", "address")

    def __init__(self, driver: Driver, order: Order, model: weakref.ref[Any], type: TensorType, stream: int) -> None:
        self.address = driver.allocate(type.nbytes, stream)
        self._driver, self._order, self._model, self._type, self._stream = driver, order, model, type, stream
        self._readers: set[int] = set()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its elements, as NumPy has it."""
        return self._type.dtype.numpy

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self._type.shape

    def numpy(self) -> Array:
        """A copy on the host; see `DeviceArray.numpy`."""
        if (model := self._model()) is not None:
            model.wait()
        found: Array = np.empty(self.shape, self.dtype)
        if found.nbytes:
            self._driver.enter()
            self._driver.call("cuMemcpyDtoH", found.ctypes.data, self.address, found.nbytes)
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
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        reader = LEGACY_STREAM if stream is None else stream
        if reader not in (_NO_ORDER, self._stream):
            self._driver.enter()
            self._order.follow(reader)
            self._readers.add(reader)
        buffer = Buffer.from_handle(self.address, max(self._type.nbytes, 1), owner=self)
        view = StridedMemoryView.from_buffer(buffer, self.shape, dtype=self.dtype)
        return view.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device."""
        return CUDA, self._driver.ordinal

    def __del__(self) -> None:
        if not sys.is_finalizing():  # the driver gives everything back then
            self._driver.enter()
            self._order.gather(self._readers, self._stream)
            self._driver.call("cuMemFreeAsync", self.address, self._stream)

    def __repr__(self) -> str:
        return f"<rammer.CudaArray {self._type}>"
