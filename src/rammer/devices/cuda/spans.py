"""The times that a traced run writes, on their way to the host: how long each rProgram took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rammer.devices.codegen.tables import RECORD, SIGNAL, WAIT, Manifest
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.tables import CLOCK, COUNTER, NOTHING, SPAN

if TYPE_CHECKING:
    from rammer.devices.base import Buffer

Room = npt.NDArray[np.uint8]
"""Pinned memory for the times of one run."""

_ROOMS = 4  # runs whose times are not read yet


class Spans:
    """Times of runs, each in a room of its own until they are read."""

    def __init__(
        self,
        driver: Driver,
        memory: Memory,
        program: Any,  # noqa: ANN401 - a structure of ctypes
        records: npt.NDArray[np.void],
        manifest: Manifest,
        steps: Buffer,
    ) -> None:
        """Take room, and find where the first and the last step of each rProgram write their times.

        Args:
            driver: of the GPU.
            memory: owns the room.
            program: what the kernel is told, of a model whose code writes times.
            records: those of the device.
            manifest: of the program.
            steps: its steps, of all vEUs one after another.
        """
        self._api = driver.api
        self._meeting = program.counters + program.met * COUNTER.itemsize
        self._times, self._times_bytes = program.spans, len(records) * SPAN.itemsize
        self._clocks, self._clocks_bytes = program.clocks, manifest.veus * CLOCK.itemsize
        self._free = [memory.pinned(self._times_bytes + self._clocks_bytes) for _ in range(_ROOMS)]
        self._edges = _edges(records, manifest, np.frombuffer(steps, dtype=RECORD)["opcode"])
        self._programs = len(manifest.steps)

    def take(self) -> Room:
        """A room for a run."""
        return self._free.pop()

    def give(self, room: Room) -> None:
        """Take a room back."""
        self._free.append(room)

    def begin(self, stream: int) -> Any:  # noqa: ANN401 - what the driver answers
        """What comes before the launch: where blocks meet is emptied."""
        return self._api.cuMemsetD8Async(self._meeting, 0, COUNTER.itemsize, stream)

    def fetch(self, room: Room, stream: int) -> Any:  # noqa: ANN401 - what the driver answers
        """What comes behind it: the times go to the host."""
        copy, address = self._api.cuMemcpyDtoHAsync, room.ctypes.data
        answer = copy(address, self._times, self._times_bytes, stream)
        return answer if answer[0] else copy(address + self._times_bytes, self._clocks, self._clocks_bytes, stream)

    def programs_us(self, room: Room) -> tuple[float, ...]:
        """How long each rProgram took, from its first step to its last, in us; 0 without steps."""
        times = room[: self._times_bytes].view(np.int64).reshape(-1, SPAN.itemsize // np.dtype(np.int64).itemsize)
        clocks = room[self._times_bytes :].view(CLOCK)
        ns_per_cycle = clocks["nanoseconds"] / np.maximum(1, clocks["cycles"])
        programs, veus, first, first_column, last, last_column = self._edges
        begins_ns = times[first, first_column] * ns_per_cycle[veus]
        ends_ns = times[last, last_column] * ns_per_cycle[veus]
        begin_ns, end_ns = np.full(self._programs, np.inf), np.full(self._programs, -np.inf)
        np.minimum.at(begin_ns, programs, begins_ns)
        np.maximum.at(end_ns, programs, ends_ns)
        return tuple(np.maximum(0.0, end_ns - begin_ns) / 1e3)


def _edges(
    records: npt.NDArray[np.void], manifest: Manifest, opcodes: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.int64], ...]:
    """For each rProgram and vEU: their numbers, and the record and column of its begin and of its end."""
    counts = records["wait_count"].astype(np.int64) + records["signal_count"] + (records["kernel"] != NOTHING)
    record_of = np.repeat(np.arange(len(records)), counts)
    columns = np.where(opcodes == WAIT, 0, np.where(opcodes == SIGNAL, 2, 1))
    found = []
    for veu, start in enumerate(manifest.starts[:-1]):
        begins = manifest.first_records(veu)
        for number, lengths in enumerate(manifest.steps):
            if lengths[veu]:
                first = start + begins[number]
                last = first + lengths[veu] - 1
                found.append((number, veu, record_of[first], columns[first], record_of[last], columns[last] + 1))
    return tuple(np.array(found, dtype=np.int64).reshape(-1, 6).T)
