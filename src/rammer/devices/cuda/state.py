"""States of a model in the GPU's memory. The host does not know whose turn it is: runs count that by themselves."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rammer.devices.cuda.architecture import MOST_BLOCKS
from rammer.devices.cuda.capture import refuse_while_capturing
from rammer.devices.cuda.driver import LEGACY_STREAM, NULL_STREAM, Driver
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.order import Order
from rammer.ir.types import TensorType

if TYPE_CHECKING:
    from rammer.ir.graph import Array

_ALIGNMENT_BYTES = 256
_HINT = "do it before or after the capture"


class GpuState:
    """Two places for each state, read and written in turn; see `rammer.devices.base.StateMemory`.

    Several models may use it, one run after another whatever their streams.

    Attributes:
        read: where each state lies that the first run reads.
        written: where it writes them; the next run reads them there.
        turns: the address of the counts of runs, `turn_count` of them.
        order: of the runs that use the states.
        lock: held by who gives a run of them to a stream.
        wait: waits for the runs of the model that used them last, and raises if one was given up.
    """

    def __init__(self, driver: Driver, types: Sequence[TensorType]) -> None:
        self._driver = driver
        self._types = tuple(types)
        driver.enter()
        self.order = Order(driver)
        self._memory = Memory(driver, self.order.wait)
        padded = (-(-type.nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for type in types)
        *offsets, total_bytes = itertools.accumulate(padded, initial=0)
        self.read, self.written = (
            [block + offset for offset in offsets] for block in (self._memory.device(total_bytes) for _ in range(2))
        )
        self.turn_count = driver.attribute("MULTIPROCESSOR_COUNT") * MOST_BLOCKS
        self.turns = self._memory.device(self.turn_count * np.dtype(np.uint32).itemsize)
        driver.call("cuStreamSynchronize", NULL_STREAM)  # streams that runs are given to do not wait for it
        self.lock = threading.RLock()
        self.wait: weakref.WeakMethod[Callable[[], None]] | None = None

    def load(self, positions: Sequence[int]) -> list[Array]:
        """What the next run will read of some states; see `StateMemory.load`."""
        refuse_while_capturing("a state cannot be read", _HINT)
        if self.wait is not None and (wait := self.wait()) is not None:
            wait()
        with self.lock:
            self._driver.enter()
            self.order.wait()
            places = self.written if self._turn() % 2 else self.read
            return [self._copy(places[position], self._types[position]) for position in positions]

    def store(self, values: Mapping[int, Array]) -> None:
        """Let the next run read other values; see `StateMemory.store`.

        Both places get them, for what the next run writes is not read before.
        """
        refuse_while_capturing("a state cannot be written", _HINT)
        with self.lock:
            self._driver.enter()
            self.order.before(LEGACY_STREAM)
            for position, value in values.items():
                array = np.ascontiguousarray(value)
                for place in (self.read[position], self.written[position]):
                    self._driver.call("cuMemcpyHtoDAsync", place, array.ctypes.data, array.nbytes, LEGACY_STREAM)
            self.order.after(LEGACY_STREAM)

    def turn_back(self) -> None:
        """Let the next run read what the last one read, which has ended."""
        turns = np.full(self.turn_count, self._turn() + 1, np.uint32)
        self._driver.call("cuMemcpyHtoD", self.turns, turns.ctypes.data, turns.nbytes)
        self._driver.call("cuStreamSynchronize", NULL_STREAM)

    def _turn(self) -> int:
        return int(self._copy_of(self.turns, np.empty(1, np.uint32))[0])

    def _copy(self, place: int, type: TensorType) -> Array:
        return self._copy_of(place, np.empty(type.shape, type.dtype.numpy))

    def _copy_of(self, place: int, into: Array) -> Array:
        if into.nbytes:
            self._driver.call("cuMemcpyDtoH", into.ctypes.data, place, into.nbytes)
        return into
