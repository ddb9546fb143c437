"""Compile or load once in a process of its own, so that time and memory are those of a cold start.

    python -m benchmarks.harness.cold compile MODEL ARTIFACT CACHE DEVICE PRECISION VEUS
    python -m benchmarks.harness.cold load ARTIFACT CACHE
    python -m benchmarks.harness.cold start DEVICE

Prints one JSON object. Rammer's imports are not counted in the seconds, but are in the memory. The start of a GPU's
driver is counted; `start` is that alone.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness.environment import ROOT
from rammer.devices.registry import start_device
from rammer.options import CompileOptions
from rammer.pipelines.kinds import compile_with
from rammer.pipelines.loading import load

_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss
# NVRTC keeps what it compiled with what the driver compiled, wherever our own cache lies.
_WITHOUT_CACHE = {"CUDA_CACHE_DISABLE": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """A cold start: its time, and peaks of resident memory.

    Attributes:
        seconds: of all.
        build_seconds: of these, what the device's compiler and linker took.
        process_bytes: of the process itself.
        compiler_bytes: at most that much, of the largest C compiler process that it started. The system counts a
            new process from the size of the one that started it, so small ones look larger than they are.
    """

    seconds: float
    build_seconds: float
    process_bytes: int
    compiler_bytes: int


def cold_compile(model: Path, artifact: Path, cache_dir: Path, device: str, precision: str, veus: int) -> Cold:
    """Compile the ONNX file `model` in a fresh process into `artifact`. `cache_dir` should be empty."""
    return _in_process("compile", str(model), str(artifact), str(cache_dir), device, precision, str(veus))


def cold_load(artifact: Path, cache_dir: Path) -> Cold:
    """Load `artifact` in a fresh process."""
    return _in_process("load", str(artifact), str(cache_dir))


def cold_device(device: str) -> Cold:
    """Start what every program needs that uses a device, in a fresh process: bindings, driver and context of a GPU."""
    return _in_process("start", device)


def _in_process(*arguments: str) -> Cold:
    command = [sys.executable, "-m", "benchmarks.harness.cold", *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | _WITHOUT_CACHE, stdout=subprocess.PIPE, text=True, check=True
    )
    found: Mapping[str, float] = json.loads(done.stdout)
    return Cold(
        seconds=found["seconds"],
        build_seconds=found["build_seconds"],
        process_bytes=int(found["process_bytes"]),
        compiler_bytes=int(found["compiler_bytes"]),
    )


class _BuildClock:
    """Told how a compilation gets on, it knows how long the stage `build` took."""

    def __init__(self) -> None:
        self._times_s: list[float] = []

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage == "build":
            self._times_s.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        return max(self._times_s) - min(self._times_s) if self._times_s else 0.0


def main() -> None:
    """Do what the command line says."""
    build = _BuildClock()
    match sys.argv[1:]:
        case ["compile", model, artifact, cache_dir, device, precision, veus]:
            options = replace(
                CompileOptions(), cache_dir=Path(cache_dir), device=device, precision=precision, veus=int(veus)
            )
            start_s = time.perf_counter()
            executable = compile_with(model, options, build)
            seconds = time.perf_counter() - start_s
            executable.save(artifact)
        case ["load", artifact, cache_dir]:
            options = replace(CompileOptions(), cache_dir=Path(cache_dir))
            start_s = time.perf_counter()
            load(artifact, options)
            seconds = time.perf_counter() - start_s
        case ["start", device]:
            start_s = time.perf_counter()
            start_device(device)
            seconds = time.perf_counter() - start_s
        case _:
            sys.exit(__doc__)
    print(
        json.dumps(
            {
                "seconds": seconds,
                "build_seconds": build.seconds,
                "process_bytes": _own_peak_bytes(),
                "compiler_bytes": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * _UNIT_BYTES,
            }
        )
    )


def _own_peak_bytes() -> int:
    """Of this program alone where the system tells; rusage would count from the size of whoever started it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT_BYTES
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
