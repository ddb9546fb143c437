"""What is compared on each device. A new device is a function and a line in `SETUPS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness.clock import Clock, WallClock
from benchmarks.harness.contestant import Contestant
from benchmarks.harness.onnx_runtime import OnnxRuntime
from benchmarks.harness.open_vino import OpenVino


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How time is taken on a device and who runs there beside Rammer.

    Attributes:
        region: what is timed, in words.
        tolerance: the largest relative difference (norm) of outputs from the reference's.
    """

    region: str
    clock: Clock
    peers: tuple[Contestant, ...]
    tolerance: float


def _cpu(threads: int) -> Setup:
    return Setup(
        region="the whole call: NumPy arrays in, NumPy arrays out",
        clock=WallClock(),
        peers=(OnnxRuntime(threads=threads), OnnxRuntime(threads=threads, spinning=False), OpenVino(threads=threads)),
        tolerance=1e-4,
    )


SETUPS: Mapping[str, Callable[[int], Setup]] = {"cpu": _cpu}
"""By device, given the number of threads that everybody may use."""
