"""GPU architectures as data: what their multiprocessors hold, and a well-known GPU of each for compiling without one.

Limits of an architecture are those of the CUDA Programming Guide (table "Technical Specifications per Compute
Capability"), figures of a GPU those of its maker's data sheet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rammer.errors import OptionError

KIND = "cuda"
ARRAY_ALIGNMENT_BYTES = 16  # of callers' arrays: what one load brings
MOST_BLOCKS = 2  # on a multiprocessor
OLDEST = (8, 0)  # cp.async and red.release, which the interpreter is made of
_PREFIX = "sm_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Facts about a GPU. `provenance` says where they come from.

    Of a multiprocessor's shared memory, each resident block takes `shared_bytes_reserved` beyond what it asks for.
    `lanes_per_multiprocessor` are float32 multiply-adds a clock, `memory_bytes_per_us` is device memory's peak.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock_ghz: float
    shared_bytes_per_multiprocessor: int
    shared_bytes_reserved: int
    registers_per_multiprocessor: int
    lanes_per_multiprocessor: int
    l2_bytes: int
    memory_bytes: int
    memory_bytes_per_us: float
    provenance: str

    @property
    def architecture(self) -> str:
        """What the compiler calls it."""
        return f"{_PREFIX}{self.capability[0]}{self.capability[1]}"


def _sheet(
    name: str,
    capability: tuple[int, int],
    multiprocessors: int,
    clock_ghz: float,
    shared_kib: int,
    lanes: int,
    l2_mib: int,
    memory_gib: int,
    memory_gb_per_s: float,
) -> Gpu:
    return Gpu(
        name=name,
        capability=capability,
        multiprocessors=multiprocessors,
        clock_ghz=clock_ghz,
        shared_bytes_per_multiprocessor=shared_kib << 10,
        shared_bytes_reserved=1 << 10,
        registers_per_multiprocessor=65_536,
        lanes_per_multiprocessor=lanes,
        l2_bytes=l2_mib << 20,
        memory_bytes=memory_gib << 30,
        memory_bytes_per_us=memory_gb_per_s * 1e3,
        provenance=f"nominal: data sheet of the {name}",
    )


NAMED: Mapping[str, Gpu] = {
    gpu.architecture: gpu
    for gpu in (
        _sheet("NVIDIA A100-SXM4-80GB", (8, 0), 108, 1.41, 164, 64, 40, 80, 2039.0),
        _sheet("NVIDIA L40S", (8, 9), 142, 2.52, 100, 128, 96, 48, 864.0),
        _sheet("NVIDIA H200", (9, 0), 132, 1.98, 228, 128, 60, 141, 4800.0),
        _sheet("NVIDIA B200", (10, 0), 148, 1.965, 228, 128, 126, 180, 8000.0),
        _sheet("NVIDIA GeForce RTX 5090", (12, 0), 170, 2.407, 100, 128, 96, 32, 1792.0),
    )
}
"""A GPU for each architecture that can be compiled for by name."""


def named(architecture: str) -> Gpu:
    """The GPU that stands for `architecture` ("sm_90").

    Raises:
        OptionError: it is none of those in the table.
    """
    if architecture not in NAMED:
        raise OptionError(f"architecture '{architecture}'", hint=f"choose one of {', '.join(NAMED)}")
    return NAMED[architecture]


def target_of(architecture: str) -> str:
    """What the compiler is told, so that it knows the instructions that later architectures do not have."""
    return "sm_90a" if architecture == "sm_90" else architecture


def lanes_of(capability: tuple[int, int]) -> int:
    """Float32 multiply-adds a clock of one multiprocessor: of the named GPU with the nearest capability below."""
    known = [gpu for gpu in NAMED.values() if gpu.capability <= capability]
    return known[-1].lanes_per_multiprocessor if known else 64
