"""Time and facts of an NVIDIA GPU."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from benchmarks.harness.environment import Json

_HEAD_START_CYCLES = 200_000  # some 100 us, in which the host gives the work to the GPU
_FACTS = ("name", "driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "temperature.gpu")


class DeviceClock:
    """For work on PyTorch's current stream: from its first kernel's start to its last one's end, by CUDA events.

    The GPU is kept busy while the host gives it the work. What the host takes longer for (a network of many kernels,
    launched one by one) counts, as it would for a user.
    """

    def time_us(self, run: Callable[[], object], count: int) -> list[float]:
        """The times of `count` calls, one after another, in microseconds."""
        import torch

        times_us = []
        for _ in range(count):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(_HEAD_START_CYCLES)
            start.record()
            run()
            end.record()
            end.synchronize()
            times_us.append(1e3 * start.elapsed_time(end))
        return times_us


def gpu_facts() -> dict[str, Json]:
    """What `nvidia-smi` says of the GPUs now, a row for each; nothing where there is no such command."""
    command = ["nvidia-smi", f"--query-gpu={','.join(_FACTS)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return {"gpus": [dict(zip(_FACTS, row, strict=True)) for row in rows]}
