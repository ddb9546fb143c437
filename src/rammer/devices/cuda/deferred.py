"""A model for a GPU that need not be here: it is loaded by its first run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rammer.devices.base import Binary, DeviceArray, Lap, Source, StateMemory, Trace, View
from rammer.devices.cuda.architecture import ARRAY_ALIGNMENT_BYTES
from rammer.ir.types import TensorType

if TYPE_CHECKING:
    from rammer.devices.cuda.launch import LoadedModel
    from rammer.ir.graph import Array


class DeferredModel:
    """What `load` returns, once it is needed; see `rammer.devices.base.Resident`."""

    def __init__(self, load: Callable[[], LoadedModel]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._loaded: LoadedModel | None = None

    def clone(self) -> DeferredModel:
        """The same model once more; see `Loaded.clone`."""
        return DeferredModel(lambda: self._model().clone())

    def new_state(self, types: Sequence[TensorType], in_place: Sequence[int] = ()) -> StateMemory:
        """Memory for states; see `Resident.new_state`."""
        return self._model().new_state(types, in_place)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], state: StateMemory | None = None) -> None:
        """Run the model once; see `Resident.run`."""
        self._model().run(inputs, outputs, state)

    def trace(self, inputs: Sequence[Array], outputs: Sequence[Array], state: StateMemory | None = None) -> Trace:
        """Run the model once and measure every step; see `Resident.trace`."""
        return self._model().trace(inputs, outputs, state)

    @property
    def array_alignment_bytes(self) -> int:
        """What addresses of arrays are multiples of; see `Resident.array_alignment_bytes`."""
        return ARRAY_ALIGNMENT_BYTES

    def stream_of(self, stream: object) -> int:
        """The caller's stream; see `Resident.stream_of`."""
        return self._model().stream_of(stream)

    def view(self, array: object, stream: int) -> View | None:
        """An array as it lies on the GPU; see `Resident.view`."""
        return self._model().view(array, stream)

    def room(self, type: TensorType) -> Callable[[int], DeviceArray]:
        """Room for outputs of a type; see `Resident.room`."""
        return self._model().room(type)

    def padded(self, address: int, given: TensorType, shape: tuple[int, ...], stream: int) -> DeviceArray:
        """An array that begins with a given one; see `Resident.padded`."""
        return self._model().padded(address, given, shape, stream)

    def fill(self, address: int, array: Array) -> None:
        """Copy an array to the GPU; see `Resident.fill`."""
        self._model().fill(address, array)

    def enqueue(self, arrays: Sequence[int], stream: int, state: StateMemory | None = None) -> None:
        """Give a run to a stream; see `Resident.enqueue`."""
        self._model().enqueue(arrays, stream, state)

    def again(self, arrays: Sequence[int], stream: int, state: StateMemory | None = None) -> None:
        """Give another run to a stream; see `Resident.again`."""
        self._model().again(arrays, stream, state)

    def wait(self) -> None:
        """Wait until all runs are over; see `Resident.wait`."""
        self._model().wait()

    def allow_capture(self, *, may: bool) -> None:
        """Say whether runs may be captured; see `Swappable.allow_capture`."""
        self._model().allow_capture(may=may)

    def beside(self, source: Source, binary: Binary, *, by_program: bool = False) -> LoadedModel | DeferredModel:
        """Another program of the model, loaded by its first run unless this one is there; see `Swappable.beside`."""
        if self._loaded is None:
            return DeferredModel(lambda: self._model().beside(source, binary, by_program=by_program))
        return self._loaded.beside(source, binary, by_program=by_program)

    def added_bytes(self, source: Source) -> int:
        """What `beside` takes; see `Swappable.added_bytes`."""
        return self._model().added_bytes(source)

    def timed(self) -> AbstractContextManager[Lap]:
        """Time a run; see `Swappable.timed`."""
        return self._model().timed()

    def timed_by_program(self) -> AbstractContextManager[Lap]:
        """Time a run's rPrograms; see `Swappable.timed_by_program`."""
        return self._model().timed_by_program()

    def _model(self) -> LoadedModel:
        with self._lock:
            if self._loaded is None:
                self._loaded = self._load()
            return self._loaded
