"""The constants of a model on the GPU, each block once for all of its programs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from rammer.devices.base import Buffer, Source
from rammer.devices.codegen.constants import starts_of
from rammer.devices.codegen.source import MANIFEST
from rammer.devices.codegen.tables import CONSTANT, Manifest
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.source_files import DEVICE_RECORDS, TENSOR_MAPS
from rammer.devices.cuda.tables import SEGMENT_SHIFT, TENSOR_MAP, record_dtype


class Constants:
    """The constants of a program on the GPU, for all its instances.

    Blocks that other programs of the model have there, the very same bytes in the host's memory, are used where they
    lie; the rest lie side by side in memory of their own.

    Attributes:
        segment: where the constants begin if they lie as the program says; 0 if its `tables` have their addresses.
        lines: the address and the bytes of the largest part that lies together.
        added_bytes: what they take beside those of other programs.
    """

    def __init__(self, driver: Driver, source: Source, manifest: Manifest, known: Iterable[Constants] = ()) -> None:
        """Copy what is missing to the GPU.

        Args:
            driver: the driver, entered.
            source: the program.
            manifest: its manifest.
            known: constants of other programs.

        Raises:
            DeviceUnavailableError: there is too little memory.
        """
        self._blocks = {name: source.files[name] for name in manifest.constants}
        self._starts = np.array(manifest.constant_starts, dtype=np.uint64)
        self._others = [other for other in known if other._has_any(self._blocks)]
        places = {name: place for other in self._others for name, place in other._shared(self._blocks).items()}
        own = {name: np.frombuffer(block, np.uint8) for name, block in self._blocks.items() if name not in places}
        starts = starts_of((block.nbytes for block in own.values()), manifest.alignment_bytes)
        self.added_bytes = starts[-1]
        self._memory = Memory(driver)
        try:
            first = self._memory.side_by_side(list(own.values()), starts) if own else 0
        except BaseException:
            self._memory.free()
            raise
        places |= {name: first + start for name, start in zip(own, starts, strict=False)}
        self._places = places
        self._addresses = np.array([places[name] for name in self._blocks], dtype=np.uint64)
        together = self._addresses - self._starts[:-1] == self._addresses[:1]
        self.segment = int(self._addresses[0]) if together.all() else 0
        parts = [(first, starts[-1]), *(other.lines for other in self._others)]
        self.lines: tuple[int, int] = max(parts, key=lambda part: part[1])

    def _has_any(self, blocks: dict[str, Buffer]) -> bool:
        return any(self._blocks.get(name) is block for name, block in blocks.items())

    def _shared(self, blocks: dict[str, Buffer]) -> dict[str, int]:
        """Where those of some blocks lie that are among these."""
        return {name: self._places[name] for name, block in blocks.items() if self._blocks.get(name) is block}

    def missing_bytes(self, source: Source) -> int:
        """What those of another program would add."""
        manifest = Manifest.from_bytes(source.files[MANIFEST])
        blocks = {name: source.files[name] for name in manifest.constants}
        shared = self._shared(blocks)
        left = (len(block) for name, block in blocks.items() if name not in shared)
        return starts_of(left, manifest.alignment_bytes)[-1]

    def tables(self, source: Source, slots: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
        """A program's records, of so many slots, and tensor maps, with these constants where they lie."""
        records = np.frombuffer(source.files[DEVICE_RECORDS], dtype=record_dtype(slots))
        maps = np.frombuffer(source.files[TENSOR_MAPS], dtype=TENSOR_MAP)
        if self.segment:
            return records, maps
        records, maps = records.copy(), maps.copy()
        operands, looks, kept = records["operands"], records["ahead_bytes"] != 0, maps["segment"] == CONSTANT
        offset_mask = np.uint64((1 << SEGMENT_SHIFT) - 1)
        places = operands & ~offset_mask | self._at(operands & offset_mask)
        records["operands"] = np.where(operands >> np.uint64(SEGMENT_SHIFT) == CONSTANT, places, operands)
        records["ahead_offset"][looks] = self._at(records["ahead_offset"][looks])
        maps["offset_bytes"][kept] = self._at(maps["offset_bytes"][kept])
        return records, maps

    def _at(self, offsets_bytes: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """The addresses of places in the segment that tables say."""
        found = np.searchsorted(self._starts[1:-1], offsets_bytes, side="right")
        return self._addresses[found] + offsets_bytes - self._starts[found]
