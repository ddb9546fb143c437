"""Where each slot lies: pointer tables on the GPU, one for each set of the caller's arrays that was seen lately.

A program reads its operands' addresses from a table. Those of the arena and of constants never change; those of the
caller's arrays may with every call, though most callers use few. So a run takes the table that fits, and a new one is
made only when there is none: a small copy, in the order of the run's stream.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from rammer.devices.codegen.tables import CALLER
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.memory import Memory

_KEPT = 8


class PointerTables:
    """Tables by the addresses of the model's inputs and outputs, in order."""

    def __init__(
        self, driver: Driver, memory: Memory, slots: npt.NDArray[np.void], segments: Mapping[int, int]
    ) -> None:
        """Take memory for all tables.

        Args:
            driver: the driver.
            memory: what the tables' memory is taken from.
            slots: a segment and an offset for each slot.
            segments: the addresses of all segments but the caller's.
        """
        self._driver = driver
        self._table = np.array(
            [segments.get(int(slot["segment"]), 0) + int(slot["offset_bytes"]) for slot in slots], dtype=np.uint64
        )
        self._callers = np.flatnonzero(slots["segment"] >= CALLER)
        self._arrays = slots["segment"][self._callers] - CALLER
        self._offsets = slots["offset_bytes"][self._callers]
        self._free = [memory.device(self._table.nbytes) for _ in range(_KEPT)]
        self._made: OrderedDict[tuple[int, ...], int] = OrderedDict()

    def at(self, caller: tuple[int, ...], stream: int) -> int:
        """The address of the table for arrays at `caller`, for a run that is given to `stream` next."""
        found = self._made.get(caller)
        if found is not None:
            self._made.move_to_end(caller)
            return found
        address = self._free.pop() if self._free else self._made.popitem(last=False)[1]
        self._table[self._callers] = np.array(caller, dtype=np.uint64)[self._arrays] + self._offsets
        # From memory that is not pinned: the driver takes its own copy before it returns.
        self._driver.call("cuMemcpyHtoDAsync", address, self._table.ctypes.data, self._table.nbytes, stream)
        self._made[caller] = address
        return address
