"""What the Rammer paper reports (Ma et al., OSDI 2020, section 5), on a V100 in float32."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """A network at batch 1: times in milliseconds, busy multiprocessors in percent, for RammerBase and Rammer."""

    base_ms: float
    rammer_ms: float
    base_busy: int
    rammer_busy: int
    base_outside_ms: float
    rammer_outside_ms: float


REPORTED: Mapping[str, Reported] = MappingProxyType(
    {
        name: Reported(
            base_ms=base,
            rammer_ms=ours,
            base_busy=base_busy,
            rammer_busy=busy,
            base_outside_ms=base_outside,
            rammer_outside_ms=outside,
        )
        for name, base, ours, base_busy, busy, base_outside, outside in (
            ("resnext", 10.94, 4.63, 58, 79, 0.82, 0.15),
            ("nasnet", 2.97, 1.74, 29, 50, 0.62, 0.24),
            ("alexnet", 0.961, 0.958, 90, 90, 0.02, 0.02),
            ("deepspeech2", 7.89, 4.69, 36, 64, 1.58, 0.47),
            ("lstm_tc", 29.71, 4.73, 23, 54, 7.21, 0.39),
            ("seq2seq", 9.27, 3.66, 10, 15, 3.32, 0.91),
        )
    }
)
REPORTED_SPEEDUPS: Mapping[str, float] = MappingProxyType(
    {name: reported.base_ms / reported.rammer_ms for name, reported in REPORTED.items()}
    | {"resnext101": 74.9 / 13.5, "nasnet_mobile": 3.07 / 2.12}
)
"""Of Rammer over RammerBase at batch 1: of the networks above, and of those with larger inputs."""

CELLS_OVER_BASE, CELLS_OVER_BARRIERS = 1.28, 1.11
"""Mean speed-ups over 5,000 cells of NAS-Bench-101: over RammerBase, and over global barriers on irregular ones."""
