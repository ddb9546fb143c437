"""Compile or load once in a process of its own, so that time and memory are those of a cold start.

    python -m benchmarks.harness.cold compile MODEL ARTIFACT CACHE VEUS
    python -m benchmarks.harness.cold load ARTIFACT CACHE

Prints one JSON object. Imports are not counted in the seconds, but are in the memory.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.harness.environment import ROOT
from rammer.compiler import compile_with, load
from rammer.options import CompileOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """A cold start: its time, and the peaks of this process and of its largest compiler process."""

    seconds: float
    process_bytes: int
    compiler_bytes: int


def cold_compile(model: Path, artifact: Path, cache_dir: Path, veus: int) -> Cold:
    """Compile the ONNX file `model` in a fresh process into `artifact`. `cache_dir` should be empty."""
    return _in_process("compile", str(model), str(artifact), str(cache_dir), str(veus))


def cold_load(artifact: Path, cache_dir: Path) -> Cold:
    """Load `artifact` in a fresh process."""
    return _in_process("load", str(artifact), str(cache_dir))


def _in_process(*arguments: str) -> Cold:
    command = [sys.executable, "-m", "benchmarks.harness.cold", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: Mapping[str, float] = json.loads(done.stdout)
    return Cold(
        seconds=found["seconds"],
        process_bytes=int(found["process_bytes"]),
        compiler_bytes=int(found["compiler_bytes"]),
    )


def main() -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["compile", model, artifact, cache_dir, veus]:
            options = replace(CompileOptions(), cache_dir=Path(cache_dir), veus=int(veus))
            start_s = time.perf_counter()
            executable = compile_with(model, options)
            seconds = time.perf_counter() - start_s
            executable.save(artifact)
        case ["load", artifact, cache_dir]:
            options = replace(CompileOptions(), cache_dir=Path(cache_dir))
            start_s = time.perf_counter()
            load(artifact, options)
            seconds = time.perf_counter() - start_s
        case _:
            sys.exit(__doc__)
    print(
        json.dumps(
            {
                "seconds": seconds,
                "process_bytes": _peak_bytes(resource.RUSAGE_SELF),
                "compiler_bytes": _peak_bytes(resource.RUSAGE_CHILDREN),
            }
        )
    )


def _peak_bytes(who: int) -> int:
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(who).ru_maxrss * unit_bytes


if __name__ == "__main__":
    main()
