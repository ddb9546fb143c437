"""What is compared on each device. A new device is a function and a line in `SETUPS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.harness.clock import Clock, WallClock
from benchmarks.harness.contestant import Contestant
from benchmarks.harness.environment import Json
from benchmarks.harness.gpu import DeviceClock, gpu_facts
from benchmarks.harness.onnx_runtime import OnnxRuntime
from benchmarks.harness.open_vino import OpenVino
from benchmarks.harness.ours import Rammer
from benchmarks.harness.ours_gpu import RammerOnGpu
from benchmarks.harness.pytorch import PyTorch
from benchmarks.harness.xla import Xla

TOLERANCES: Mapping[str, float] = {"fp32": 1e-4, "tf32": 2e-3, "fp16": 1e-2, "bf16": 1e-2}
"""By precision, the largest relative difference (norm) of outputs from the reference's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How time is taken on a device, who runs there beside Rammer, and who knows the right outputs.

    Attributes:
        region: what is timed, in words.
        tolerance: the largest relative difference (norm) of outputs from the reference's.
        ours: Rammer with a policy, given its name.
        facts: what else is to be known about the machine, asked when the measurement begins.
    """

    region: str
    clock: Clock
    tolerance: float
    reference: Contestant
    peers: tuple[Contestant, ...]
    ours: Callable[[str], Contestant]
    facts: Callable[[], dict[str, Json]] = dict


def _cpu(veus: int, precision: str) -> Setup:
    return Setup(
        region=f"the whole call: NumPy arrays in, NumPy arrays out; {veus} threads each",
        clock=WallClock(),
        tolerance=TOLERANCES[precision],
        reference=OnnxRuntime(threads=veus),
        peers=(OnnxRuntime(threads=veus), OnnxRuntime(threads=veus, spinning=False), OpenVino(threads=veus)),
        ours=lambda policy: Rammer(policy=policy, device="cpu", precision=precision, veus=veus),
    )


def _cuda(veus: int, precision: str) -> Setup:
    forms = ("eager", "graph", "inductor", "frozen", "max-autotune")
    return Setup(
        region="on the GPU, from the first kernel's start to the last one's end",
        clock=DeviceClock(),
        tolerance=TOLERANCES[precision],
        reference=PyTorch(form="eager", precision="fp64"),
        peers=(*(PyTorch(form=form, precision=precision) for form in forms), Xla(precision=precision)),
        ours=lambda policy: RammerOnGpu(policy=policy, device="cuda", precision=precision, veus=veus),
        facts=gpu_facts,
    )


SETUPS: Mapping[str, Callable[[int, str], Setup]] = {"cpu": _cpu, "cuda": _cuda}
"""By device, given how many execution units (threads, for the others) everybody may use, and the precision."""
