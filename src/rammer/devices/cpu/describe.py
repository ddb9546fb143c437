"""The processor as a vDevice: facts from the machine, figures of a nominal core, or measured on request.

Nominal figures are those of a core with two vector multiply-adds and two vector loads a cycle, which holds for most
server and desktop processors of the last decade. Each figure says which it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from rammer.devices.cpu.machine import WIDE, Cache, Machine
from rammer.devices.vector.rules import VectorRules
from rammer.errors import OptionError
from rammer.ir.kernel_form import Skeleton
from rammer.ir.tree_forms import TreeStrategy
from rammer.ir.types import DType
from rammer.ir.vdevice import VEU, ByteProducts, Figure, MemoryLevel, VDevice

MAX_VEUS = 1024
SKELETONS = (
    Skeleton.MAP,
    Skeleton.REDUCE,
    Skeleton.GEMM,
    Skeleton.IMPLICIT_GEMM,
    Skeleton.GEMV,
    Skeleton.DEPTHWISE,
    Skeleton.ATTENTION,
    Skeleton.TREES,
    Skeleton.EXTERN,
)
_ASSUMED_GHZ = 3.0
_ASSUMED_CACHES = (
    Cache(level=1, capacity_bytes=32 << 10, line_bytes=64, sharers=1),
    Cache(level=2, capacity_bytes=1 << 20, line_bytes=64, sharers=1),
)
_CACHE_BYTES_PER_CYCLE = {2: 48, 3: 8, 4: 4}
_MEMORY_BYTES_PER_US = 15_000.0
_HANDOVER_US = 0.1
_TASK_OVERHEAD_US = 0.01
_LONGEST_TASK_US = 3e4  # Ctrl-C is to be heard within half a second, and predictions err
_TILE_PRODUCTS = 16 * 64  # a row of 16 lanes, of 64 bytes each
_STREAM_BYTES = 128  # cache lines are fetched in pairs, and half as many streams meet in a set
_STREAM_AHEAD_BYTES = 512  # measured: docs/experiments/processor.md


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What was measured on a machine, and how; what is missing here is nominal.

    Attributes:
        provenance: of all figures; why there are none, where there are none.
        compiler: that made the code that was measured.
        flops_per_us: multiply-adds of one vEU, each two operations, by the name of the dtype.
        bytes_per_us: reads from each memory level by its name: of one vEU alone, and of all cores together.
        handover_us: from a Signal on one vEU to the end of a Wait on another.
        task_overhead_us: what an rTask that does nothing takes.
    """

    provenance: str
    compiler: str = ""
    flops_per_us: Mapping[str, float] = field(default_factory=dict)
    bytes_per_us: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    handover_us: float | None = None
    task_overhead_us: float | None = None

    def figure(self, measured: float | None, nominal: float, basis: str) -> Figure:
        """A measured figure, or a nominal one with what it is based on and why it was not measured."""
        if measured is not None:
            return Figure(measured, self.provenance)
        return Figure(nominal, f"nominal: {basis}" if self.flops_per_us else f"nominal: {basis}; {self.provenance}")


NOT_MEASURED = Peaks(provenance="not asked to measure")


def describe(machine: Machine, veus: int | None, peaks: Peaks = NOT_MEASURED) -> VDevice:
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
    levels = tuple(_measured(level, count, peaks) for level in _levels(machine, vector_bytes, ghz, clock))
    return VDevice(
        kind="cpu",
        name=machine.name,
        veus=tuple(VEU(index=i, core=machine.core_of(i)) for i in range(count)),
        vector_bytes=vector_bytes,
        vector_registers=registers,
        levels=levels,
        flops_per_us=_flops_per_us(peaks, vector_bytes, ghz, clock),
        handover_us=peaks.figure(peaks.handover_us, _HANDOVER_US, "a cache line between two cores, there and back"),
        task_overhead_us=peaks.figure(
            peaks.task_overhead_us, _TASK_OVERHEAD_US, "reading a record and an indirect call"
        ),
        skeletons=SKELETONS,
        rules=VectorRules(),
        tree_strategies=tuple(TreeStrategy),
        byte_products=_byte_products(machine, vector_bytes),
        tile_flops_per_us=_tile_flops_per_us(machine, ghz, clock),
        alignment_bytes=64,
        stream_bytes=_STREAM_BYTES,
        stream_ahead_bytes=_STREAM_AHEAD_BYTES,
        own_cache_bytes=max((level.capacity_bytes for level in levels if not level.shared), default=0),
        streams_constants=True,
        longest_task_us=_LONGEST_TASK_US,
        compiler=peaks.compiler,
    )


def _flops_per_us(peaks: Peaks, vector_bytes: int, ghz: float, clock: str) -> dict[DType, Figure]:
    """Peaks by element type. An instruction multiplies four bytes in the time of a float32."""
    figures = {
        dtype: peaks.figure(
            peaks.flops_per_us.get(dtype.compute.value),
            2 * 2 * (vector_bytes // dtype.compute.itemsize_bytes) * ghz * 1e3,
            f"two multiply-adds of {vector_bytes}-byte vectors a cycle at {clock}",
        )
        for dtype in DType
    }
    single = figures[DType.FLOAT32]
    figures[DType.INT8] = Figure(4 * single.value, f"four times that of float32: {single.provenance}")
    return figures


def _byte_products(machine: Machine, vector_bytes: int) -> ByteProducts | None:
    """By four, where sums of four products of bytes are one instruction on whole vectors."""
    has_them = {64: "avx512_vnni", 32: "avx_vnni"}.get(vector_bytes) in machine.features
    return ByteProducts.QUADS if has_them else None


def _tile_flops_per_us(machine: Machine, ghz: float, clock: str) -> Figure | None:
    """The peak of products of bytes by tiles, if the machine has them and its vectors multiply bytes too."""
    if not {"amx_tile", "amx_int8", "avx512_vnni"} <= set(machine.features):
        return None
    basis = f"{_TILE_PRODUCTS} multiply-adds of bytes by tiles (amx_int8) a cycle at {clock}"
    return Figure(2 * _TILE_PRODUCTS * ghz * 1e3, f"nominal: {basis}")


def _vectors(machine: Machine) -> tuple[int, int]:
    """Bytes and number of the vector registers."""
    features = set(machine.features)
    if features >= WIDE:
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
                bandwidth_bytes_per_us=Figure(per_cycle * ghz * 1e3, f"{per_cycle} bytes a cycle at {clock}"),
                transaction_bytes=cache.line_bytes,
                shared=cache.sharers > caches[0].sharers,
            )
        )
    memory = MemoryLevel(
        name="memory",
        capacity_bytes=machine.memory_bytes,
        bandwidth_bytes_per_us=Figure(_MEMORY_BYTES_PER_US, "one core of a machine with DDR memory"),
        transaction_bytes=caches[-1].line_bytes,
        shared=True,
    )
    return (*levels, memory)


def _measured(level: MemoryLevel, veus: int, peaks: Peaks) -> MemoryLevel:
    """A level with nominal figures, as it was measured."""
    nominal = level.bandwidth_bytes_per_us
    alone, together = peaks.bytes_per_us.get(level.name, (None, None))
    total = None if alone is None or together is None else min(veus * alone, together)
    return replace(
        level,
        bandwidth_bytes_per_us=peaks.figure(alone, nominal.value, nominal.provenance),
        total_bandwidth_bytes_per_us=None if total is None else Figure(total, peaks.provenance),
    )
