"""Arrays in a GPU's memory that other libraries own, and those that a run leaves there for them. Nothing is copied.

Libraries meet by DLPack or by the CUDA array interface, both as `cuda.core` speaks them. Streams are numbers: handles
of the driver, or those that DLPack gives to the two default streams.
"""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rammer.devices.base import View
from rammer.devices.cuda.boxes import copy_box
from rammer.devices.cuda.capture import capture_of, refuse_while_capturing, unrestricted
from rammer.devices.cuda.driver import LEGACY_STREAM, NULL_STREAM, Driver
from rammer.devices.cuda.order import Order
from rammer.errors import OptionError, StreamCaptureError
from rammer.ir.types import TensorType

if TYPE_CHECKING:
    from rammer.ir.graph import Array

CUDA = 2
"""What DLPack calls memory of an NVIDIA GPU."""

_NO_ORDER = -1  # DLPack's "do not wait"
_KEPT = 8
_NOBODY: frozenset[int] = frozenset()


def stream_of(stream: object) -> int:
    """The handle of a stream: a number, or an object that tells one; None is the legacy default stream.

    Raises:
        OptionError: it is no stream.
        StreamCaptureError: it is the default stream by default, and PyTorch captures another.
    """
    if isinstance(stream, int) and stream >= 0:  # as in most calls
        return stream or LEGACY_STREAM
    if stream is None:
        refuse_while_capturing(
            "a run on the default stream", "give stream=torch.cuda.current_stream(), and outputs= to write into"
        )
        return LEGACY_STREAM
    handle: object
    if callable(told := getattr(stream, "__cuda_stream__", None)):
        _, handle = told()
    else:
        handle = getattr(stream, "cuda_stream", None)  # PyTorch's
    if not isinstance(handle, int) or handle < 0:
        raise OptionError(f"stream={stream!r}", hint="give a stream's handle, or an object with __cuda_stream__")
    return LEGACY_STREAM if handle == NULL_STREAM else handle


class Exchange:
    """Arrays as `cuda.core` sees them; importing it takes longer than all else of a load, so the first array does."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._default_streams: dict[type, int] = {}

    @cached_property
    def _view_of(self) -> Callable[..., Any]:
        """What views an array of any library."""
        from cuda.core.utils import StridedMemoryView

        view_of: Callable[..., Any] = StridedMemoryView.from_any_interface
        return view_of

    def view(self, array: object, stream: int) -> View | None:
        """See `Resident.view`."""
        if isinstance(array, CudaArray):  # of Rammer's own: nobody else has to be asked
            return array.seen_on(stream)
        number = self._default_streams.get(type(array)) if stream == LEGACY_STREAM else None
        if number is None:
            if isinstance(array, np.ndarray):  # of the host; NumPy refuses to be asked for an order with a stream
                return None
            number = self._default_stream(array) if stream == LEGACY_STREAM else stream
        view_of = self._view_of
        try:
            seen = view_of(array, stream_ptr=number)
        except Exception:  # noqa: BLE001 - each library has an error of its own where no stream means anything
            told: Any = getattr(array, "__dlpack_device__", None)
            if told is None or told()[0] != CUDA:  # an array of the host
                return None
            self._driver.enter()  # `cuda.core` takes the context of the thread, and a new one has none
            seen = view_of(array, stream_ptr=number)
        if seen.device_id != self._driver.ordinal:  # -1 is the host
            return None
        return seen.ptr, seen.dtype, seen.shape, seen.strides, not seen.readonly

    def _default_stream(self, array: object) -> int:
        """The number of the legacy default stream for arrays of this type.

        DLPack has another one for it than the driver's null. Of PyTorch's tensors, `cuda.core` reads the stream itself
        where it knows PyTorch's version, and compares it with the given one: told the wrong number, it records an event
        and waits for it, in every call. Where it does not, PyTorch refuses null.
        """
        number = LEGACY_STREAM
        if type(array).__module__.startswith("torch"):
            self._driver.enter()
            try:
                self._view_of(array, stream_ptr=NULL_STREAM)
            except Exception:  # noqa: BLE001 - PyTorch's is an AssertionError
                pass
            else:
                number = NULL_STREAM
        self._default_streams[type(array)] = number
        return number

    def export(
        self,
        array: CudaArray,
        max_version: tuple[int, int] | None,
        dl_device: tuple[int, int] | None,
        copy: bool | None,
    ) -> object:
        """An array by DLPack; what comes out keeps it alive."""
        from cuda.core import Buffer
        from cuda.core.utils import StridedMemoryView

        buffer = Buffer.from_handle(array.address, max(array.type.nbytes, 1), owner=array)
        view = StridedMemoryView.from_buffer(buffer, array.shape, dtype=array.dtype)
        return view.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)


class Kept:
    """Memory of one size that came back, by the stream on which it may be taken again: for all rooms of this size.

    Attributes:
        by_stream: the addresses.
        most: of them for a stream.
    """

    def __init__(self, driver: Driver) -> None:
        self.by_stream: defaultdict[int, list[int]] = defaultdict(list)
        self.most = 0
        self._finalizer = weakref.finalize(self, _release, driver, self.by_stream)
        self._finalizer.atexit = False


class Room:
    """Memory for one of a model's outputs, in the order of streams. What comes back is kept for the next run there.

    `wait` ends when the model's runs have; None once the model is gone, which what it left may outlive.
    """

    def __init__(
        self,
        type: TensorType,
        *,
        driver: Driver,
        exchange: Exchange,
        order: Order,
        wait: weakref.WeakMethod[Callable[[], None]],
        kept: Kept | None,
    ) -> None:
        self.type = type
        self.driver, self.exchange, self.order, self.wait = driver, exchange, order, wait
        self._size_bytes = type.nbytes
        self._kept = kept
        if kept is not None:
            kept.most += _KEPT

    def take(self, stream: int) -> CudaArray:
        """An array for a run on a stream to write.

        Raises:
            DeviceUnavailableError: there is too little memory.
            StreamCaptureError: the stream is captured: a graph writes the same array each time.
        """
        if capture_of(self.driver, stream) is not None:
            raise StreamCaptureError(
                "a captured run has no array of its own to write an output into",
                hint="give outputs=, or bind() the model before the capture",
            )
        kept = None if self._kept is None else self._kept.by_stream[stream]
        try:
            address = kept.pop() if kept else self._allocated(stream)
        except IndexError:  # another thread took it
            address = self._allocated(stream)
        return CudaArray(self.type, Held(self, stream, address))

    def _allocated(self, stream: int) -> int:
        self.driver.enter()
        return self.driver.allocate(self._size_bytes, stream)

    def of(self, type: TensorType) -> Room:
        """Room for an array of another type beside this one, whose memory is kept for nobody."""
        return Room(type, driver=self.driver, exchange=self.exchange, order=self.order, wait=self.wait, kept=None)

    def give(self, address: int, stream: int) -> None:
        """Take the memory of an array back, once `stream` has done what it was given so far."""
        kept = self._kept
        if kept is not None and len(kept.by_stream[stream]) < kept.most:
            kept.by_stream[stream].append(address)
        else:
            self.driver.enter()
            with unrestricted(self.driver):
                self.driver.call("cuMemFreeAsync", address, stream)

    def __del__(self) -> None:
        if self._kept is not None:
            self._kept.most -= _KEPT


def _release(driver: Driver, kept: dict[int, list[int]]) -> None:
    driver.enter()
    with unrestricted(driver):
        for stream, addresses in kept.items():
            for address in addresses:
                driver.call("cuMemFreeAsync", address, stream)


class Held:
    """Memory of a room that a run on a stream writes, while somebody refers to it, and the streams that read it."""

    __slots__ = ("__weakref__", "address", "is_copied", "readers", "room", "stream")

    def __init__(self, room: Room, stream: int, address: int) -> None:
        self.address = address
        self.room = room
        self.stream = stream
        self.readers: frozenset[int] = _NOBODY
        self.is_copied = False  # behind the run: the stream alone knows when it is there

    def wait(self) -> None:
        """Wait until what was to be written is there.

        Raises:
            RunTimeoutError: a run stopped making progress.
        """
        if (wait := self.room.wait()) is not None:
            wait()
        if self.is_copied:
            self.room.driver.enter()
            self.room.driver.call("cuStreamSynchronize", self.stream)

    def follow(self, reader: int) -> None:
        """Let work given to another stream from now on follow what writes it."""
        driver = self.room.driver
        driver.enter()
        self.room.order.follow(reader)
        if self.is_copied:
            event = driver.call("cuEventCreate", int(driver.api.CUevent_flags.CU_EVENT_DISABLE_TIMING))
            driver.call("cuEventRecord", event, self.stream)
            driver.call("cuStreamWaitEvent", reader, event, 0)
            driver.call("cuEventDestroy", event)
        self.readers |= {reader}

    def __del__(self) -> None:
        if sys.is_finalizing():  # the driver gives everything back then
            return
        if self.readers:
            self.room.driver.enter()
            self.room.order.gather(self.readers, self.stream)
        self.room.give(self.address, self.stream)


class CudaArray:
    """An output in the GPU's memory, or the beginning of one; see `rammer.devices.base.DeviceArray`.

    Its memory goes back, in the order of the stream that the run was given to, when nobody refers to it any more:
    neither to it nor to what another library made of it. That stream, and those that it was handed to, must outlive it.
    """

    __slots__ = ("__weakref__", "_held", "address", "type")

    def __init__(self, type: TensorType, held: Held) -> None:
        self.type = type
        self.address = held.address
        self._held = held

    def seen_on(self, stream: int) -> View:
        """The array as work given to a stream from now on sees it."""
        if stream != self._held.stream:
            self._held.follow(stream)
        return self.address, self.dtype, self.shape, None, True

    def cut(self, shape: tuple[int, ...]) -> CudaArray:
        """The elements below some extents; see `DeviceArray.cut`."""
        part, held = TensorType(self.type.dtype, shape), self._held
        if shape[1:] == self.shape[1:]:
            return CudaArray(part, held)
        found = held.room.of(part).take(held.stream)
        found._copy(self.address, self.shape, shape)
        return found

    def fill(self, address: int, extents: tuple[int, ...]) -> None:
        """Begin with an array of some extents, row by row at an address, and be 0 elsewhere, in the stream's order."""
        driver, held = self._held.room.driver, self._held
        driver.enter()
        if self.type.nbytes:
            driver.call("cuMemsetD8Async", self.address, 0, self.type.nbytes, held.stream)
        self._copy(address, extents, extents)

    def _copy(self, address: int, extents: tuple[int, ...], box: tuple[int, ...]) -> None:
        """Copy a box of an array of some extents to the beginning, in the stream's order."""
        driver, held = self._held.room.driver, self._held
        driver.enter()
        into, start = (self.address, self.shape), (address, extents)
        itemsize_bytes = self.type.dtype.itemsize_bytes
        copy_box(driver, into=into, start=start, box=box, itemsize_bytes=itemsize_bytes, stream=held.stream)
        held.is_copied = True

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
        self._held.wait()
        found: Array = np.empty(self.shape, self.dtype)
        if found.nbytes:
            driver = self._held.room.driver
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
            "stream": self._held.stream,
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
        held = self._held
        if reader not in (_NO_ORDER, held.stream):
            held.follow(reader)
        return held.room.exchange.export(self, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device."""
        return CUDA, self._held.room.driver.ordinal

    def __repr__(self) -> str:
        return f"<rammer.CudaArray {self.type}>"
