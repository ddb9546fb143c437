"""The processor as a vDevice: facts from the machine, figures from a nominal core.

The figures rank tiles and schedules before anything is measured. They are those of a core with two vector
multiply-adds and two vector loads a cycle, which holds for most server and desktop processors of the last decade.
"""

from __future__ import annotations

from rammer.devices.cpu.machine import Cache, Machine
from rammer.errors import OptionError
from rammer.ir.pattern import Skeleton
from rammer.ir.types import DType
from rammer.ir.vdevice import VEU, Figure, MemoryLevel, VDevice

MAX_VEUS = 1024
SKELETONS = (Skeleton.MAP, Skeleton.REDUCE, Skeleton.CONTRACT)
_ASSUMED_GHZ = 3.0
_ASSUMED_CACHES = (
    Cache(level=1, capacity_bytes=32 << 10, line_bytes=64, sharers=1),
    Cache(level=2, capacity_bytes=1 << 20, line_bytes=64, sharers=1),
)
_CACHE_BYTES_PER_CYCLE = {2: 32, 3: 16, 4: 8}
_MEMORY_BYTES_PER_US = 15_000.0
_HANDOVER_US = 0.2
_TASK_OVERHEAD_US = 0.02


def describe(machine: Machine, veus: int | None) -> VDevice:
    """The vDevice with `veus` execution units; None takes one for each usable core.

    Raises:
        OptionError: more units than the runtime has room for.
    """
    count = machine.usable_cores if veus is None else veus
    if count > MAX_VEUS:
        raise OptionError(f"veus={count}", hint=f"the processor takes up to {MAX_VEUS}")
    vector_bytes, registers = _vectors(machine)
    ghz = machine.clock_ghz or _ASSUMED_GHZ
    clock = f"{ghz:g} GHz" if machine.clock_ghz else f"{ghz:g} GHz, assumed"
    return VDevice(
        kind="cpu",
        name=machine.name,
        veus=tuple(VEU(index=i, core=machine.core_of(i)) for i in range(count)),
        vector_bytes=vector_bytes,
        vector_registers=registers,
        levels=_levels(machine, vector_bytes, ghz, clock),
        flops_per_us={
            dtype: Figure(
                2 * 2 * (vector_bytes // dtype.compute.itemsize_bytes) * ghz * 1e3,
                f"nominal: two multiply-adds of {vector_bytes}-byte vectors a cycle at {clock}",
            )
            for dtype in DType
        },
        handover_us=Figure(_HANDOVER_US, "nominal: a cache line between two cores, there and back"),
        task_overhead_us=Figure(_TASK_OVERHEAD_US, "nominal: reading a record and an indirect call"),
        skeletons=SKELETONS,
        alignment_bytes=64,
    )


def _vectors(machine: Machine) -> tuple[int, int]:
    """Bytes and number of the vector registers."""
    features = set(machine.features)
    if {"avx512f", "avx512vl", "avx512bw", "avx512dq"} <= features:
        return 64, 32
    if {"avx2", "fma"} <= features:
        return 32, 16
    if "asimd" in features or machine.architecture in ("aarch64", "arm64"):
        return 16, 32
    return 16, 16


def _levels(machine: Machine, vector_bytes: int, ghz: float, clock: str) -> tuple[MemoryLevel, ...]:
    caches = machine.caches or _ASSUMED_CACHES
    levels = []
    for cache in caches:
        per_cycle = _CACHE_BYTES_PER_CYCLE.get(cache.level, 2 * vector_bytes)
        levels.append(
            MemoryLevel(
                name=f"L{cache.level}",
                capacity_bytes=cache.capacity_bytes,
                bandwidth_bytes_per_us=Figure(per_cycle * ghz * 1e3, f"nominal: {per_cycle} bytes a cycle at {clock}"),
                transaction_bytes=cache.line_bytes,
                shared=cache.sharers > caches[0].sharers,
            )
        )
    memory = MemoryLevel(
        name="memory",
        capacity_bytes=machine.memory_bytes,
        bandwidth_bytes_per_us=Figure(_MEMORY_BYTES_PER_US, "nominal: one core of a machine with DDR memory"),
        transaction_bytes=caches[-1].line_bytes,
        shared=True,
    )
    return (*levels, memory)
