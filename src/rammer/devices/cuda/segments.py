"""Where each segment of operands lies: tables on the GPU, one for each set of the caller's arrays that was seen lately.

A program finds its operands at offsets into segments, whose addresses it reads from a table. Those of the arena and of
constants never change; those of the caller's arrays may with every call, though most callers use few. So a run takes
the table that fits, and a new one is made only when there is none: a small copy, in the order of the run's stream.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from rammer.devices.codegen.tables import ARENA, CALLER, CONSTANT
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.memory import Memory

_KEPT = 8


class SegmentTables:
    """Tables by the addresses of the model's inputs and outputs, in order."""

    def __init__(self, driver: Driver, memory: Memory, *, arena: int, constants: int, arrays: int) -> None:
        """Take memory for all tables.

        Args:
            driver: the driver.
            memory: what the tables' memory is taken from.
            arena: its address.
            constants: their address.
            arrays: the number of the model's inputs and outputs.
        """
        self._driver = driver
        self._table = np.zeros(CALLER + arrays, dtype=np.uint64)
        self._table[[ARENA, CONSTANT]] = arena, constants
        self._free = [memory.device(self._table.nbytes) for _ in range(_KEPT)]
        self._made: OrderedDict[tuple[int, ...], int] = OrderedDict()

    def at(self, caller: tuple[int, ...], stream: int) -> int:
        """The address of the table for arrays at `caller`, for a run that is given to `stream` next."""
        found = self._made.get(caller)
        if found is not None:
            self._made.move_to_end(caller)
            return found
        address = self._free.pop() if self._free else self._made.popitem(last=False)[1]
        self._table[CALLER:] = caller
        # From memory that is not pinned: the driver takes its own copy before it returns.
        self._driver.call("cuMemcpyHtoDAsync", address, self._table.ctypes.data, self._table.nbytes, stream)
        self._made[caller] = address
        return address
