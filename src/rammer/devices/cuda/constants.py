"""The constants of a model on the GPU."""

from __future__ import annotations

import numpy as np

from rammer.devices.base import Source
from rammer.devices.codegen.source import MANIFEST
from rammer.devices.codegen.tables import Manifest
from rammer.devices.cuda.driver import Driver
from rammer.devices.cuda.memory import Memory


class Constants:
    """The constants of a model on the GPU, for all its instances, and for other programs that have the same."""

    def __init__(self, driver: Driver, source: Source, manifest: Manifest) -> None:
        self._blocks = {name: source.files[name] for name in manifest.constants}
        blocks = [np.frombuffer(block, dtype=np.uint8) for block in self._blocks.values()]
        self._starts = manifest.constant_starts
        self._memory = Memory(driver)
        try:
            self.address = self._memory.side_by_side(blocks, self._starts)
            self.size_bytes = sum(block.nbytes for block in blocks)
        except BaseException:
            self._memory.free()
            raise

    def are_those_of(self, source: Source) -> bool:
        """Whether a source has the same blocks, the very same bytes in the host's memory, at the same places."""
        manifest = Manifest.from_bytes(source.files[MANIFEST])
        return (
            list(manifest.constants) == list(self._blocks)
            and manifest.constant_starts == self._starts
            and all(source.files[name] is block for name, block in self._blocks.items())
        )
