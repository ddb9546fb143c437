"""Roller's rules for units that compute with vectors: a block of rows and vectors stays in registers."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from rammer.devices.vector.kernels import vector_kernels
from rammer.devices.vector.time import compute_us, results_us
from rammer.ir.task import RKernel
from rammer.ir.vdevice import Brought, VDevice
from rammer.ir.workload import Workload

_MEASURED_TILES = 4  # register tiles for each number of rTasks, where they are measured


@dataclass(frozen=True, slots=True)
class VectorRules:
    """`TileRules` of units with vector registers."""

    def candidates(self, workload: Workload, vdevice: VDevice, *, to_measure: bool) -> list[RKernel]:
        """Candidate rKernels, in no order; see `TileRules.candidates`."""
        return vector_kernels(workload, vdevice, _MEASURED_TILES if to_measure else 1)

    def late_slots(self, workload: Workload, vdevice: VDevice) -> frozenset[int]:
        """Nothing is tagged; see `TileRules`."""
        return frozenset()

    def first_bytes(self, kernel: RKernel, unwritten: Collection[int]) -> int:
        """Nothing; see `TileRules`."""
        return 0

    def brought(self, kernel: RKernel) -> Brought:
        """Its results; see `TileRules`."""
        points = math.prod(kernel.tile.task)
        return Brought(written_bytes=sum(points * output.type.dtype.itemsize_bytes for output in kernel.expr.outputs))

    def late_us(self, kernel: RKernel) -> float:
        """Nothing is taken late; see `TileRules`."""
        return 0.0

    def persistent(self, workload: Workload, vdevice: VDevice) -> tuple[RKernel, ...]:
        """None: registers keep nothing from rTask to rTask."""
        return ()

    def compute_us(self, kernel: RKernel, vdevice: VDevice) -> float:
        """The time of one full rTask's arithmetic, in microseconds."""
        return compute_us(kernel, vdevice)

    def results_us(self, kernel: RKernel, vdevice: VDevice) -> float:
        """Of that, the operations on sums of products; see `TileRules`."""
        return results_us(kernel, vdevice)
