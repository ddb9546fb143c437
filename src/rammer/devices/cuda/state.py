"""States of a model in the GPU's memory. The host does not know whose turn it is: runs count that by themselves."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rammer.devices.base import check_whole
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
    """Two places for each state, read and written in turn, one for those in place; see `devices.base.StateMemory`.

    Several models may use it, one run after another whatever their streams.

    Attributes:
        read: where each state lies that the first run reads.
        written: where it writes them; the next run reads them there. For a state in place that is the same.
        turns: the address of the counts of runs, `turn_count` of them.
        order: of the runs that use the states.
        lock: held by who gives a run of them to a stream.
        wait: waits for the runs of the model that used them last, and raises if one was given up.
    """

    def __init__(self, driver: Driver, types: Sequence[TensorType], in_place: Sequence[int] = ()) -> None:
        self._driver = driver
        self._types = tuple(types)
        self._in_place = tuple(in_place)
        self._torn: set[int] = set()
        driver.enter()
        self.order = Order(driver)
        self._memory = Memory(driver, self.order.wait)
        self.read = self._places(range(len(types)))
        turning = [position for position in range(len(types)) if position not in in_place]
        others = dict(zip(turning, self._places(turning), strict=True))
        self.written = [others.get(position, place) for position, place in enumerate(self.read)]
        self.turn_count = driver.attribute("MULTIPROCESSOR_COUNT") * MOST_BLOCKS
        self.turns = self._memory.device(self.turn_count * np.dtype(np.uint32).itemsize)
        self.lock = threading.RLock()
        self.wait: weakref.WeakMethod[Callable[[], None]] | None = None

    def _places(self, positions: Sequence[int]) -> list[int]:
        """New places for some states."""
        padded = (-(-self._types[i].nbytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES for i in positions)
        *offsets, total_bytes = itertools.accumulate(padded, initial=0)
        block = self._memory.device(total_bytes)
        return [block + offset for offset in offsets]

    def load(self, positions: Sequence[int]) -> list[Array]:
        """What the next run will read of some states; see `StateMemory.load`."""
        refuse_while_capturing("a state cannot be read", _HINT)
        if self.wait is not None and (wait := self.wait()) is not None:
            wait()
        with self.lock:
            check_whole(self._torn.intersection(positions))
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
                for place in dict.fromkeys((self.read[position], self.written[position])):
                    self._driver.call("cuMemcpyHtoDAsync", place, array.ctypes.data, array.nbytes, LEGACY_STREAM)
            self.order.after(LEGACY_STREAM)
            self._torn.difference_update(values)

    def check_whole(self) -> None:
        """Refuse a run of states that another one may have written in part.

        Raises:
            StateError: it was given up, and updates a state in place.
        """
        check_whole(self._torn)

    def tear(self) -> None:
        """A run was given up, which may have written what it updates in place in part."""
        self._torn.update(self._in_place)

    def kept(self) -> dict[int, Array]:
        """What the states in place hold, by position: `store` puts it back."""
        return dict(zip(self._in_place, self.load(self._in_place), strict=True)) if self._in_place else {}

    def turn_back(self) -> None:
        """Let the next run read what the last one read, which has ended, but for states in place."""
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
