"""Calls on a processor whose cores are partly taken by others: the middle call and the slowest of a hundred.

    python -m benchmarks.busy --network mobilenet --veus 8
    python -m benchmarks.busy --network mobilenet --veus 2 --pinned

Processes that do nothing but count run beside the calls, `--busy` of them, each anywhere or (`--pinned`) on a core of
its own. Rammer and ONNX Runtime, with as many threads as Rammer has vEUs, take turns of `TURN` calls; between turns is
a pause, for threads of the one before that poll for more work.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from benchmarks.harness.cases import FORMS, build_case
from benchmarks.harness.onnx_runtime import OnnxRuntime
from benchmarks.harness.ours import Rammer

TURN = 20
_SETTLE_S, _PAUSE_S = 0.5, 0.1


@contextmanager
def neighbours(count: int, *, pinned: bool) -> Iterator[None]:
    """So many processes that take a core's whole time each."""
    cores = sorted(os.sched_getaffinity(0))
    running = []
    for number in range(count):
        # The parent's end ends it, however that comes.
        own = f"import os\nos.sched_setaffinity(0, {{{cores[number % len(cores)]}}})\n" if pinned else "import os\n"
        code = f"{own}parent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(1 << 20): pass"
        running.append(subprocess.Popen([sys.executable, "-c", code]))
    try:
        time.sleep(_SETTLE_S)
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def times_us(call: Callable[[], object], calls: int) -> list[float]:
    """How long each of some calls takes."""
    found = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - begin))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the median and the 99th percentile of both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=FORMS, default="mobilenet")
    parser.add_argument("--veus", type=int, default=2)
    parser.add_argument("--busy", type=int, default=1, help="processes beside the calls")
    parser.add_argument("--pinned", action="store_true", help="each of them stays on a core")
    parser.add_argument("--turns", type=int, default=25)
    chosen = parser.parse_args(arguments)
    case = build_case(chosen.network)
    calls = {
        "rammer": Rammer(policy="wavefront", device="cpu", precision="fp32", veus=chosen.veus).prepare(case).run,
        "onnxruntime": OnnxRuntime(threads=chosen.veus).prepare(case).run,
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    with neighbours(chosen.busy, pinned=chosen.pinned):
        for call in calls.values():
            times_us(call, TURN)
        for _ in range(chosen.turns):
            for name, call in calls.items():
                time.sleep(_PAUSE_S)
                found[name] += times_us(call, TURN)
    for name, times in found.items():
        middle, slowest = np.percentile(times, [50, 99]) / 1e3
        print(f"{chosen.network}, {chosen.veus} vEUs or threads, {name}: median {middle:.2f} ms, p99 {slowest:.2f}")


if __name__ == "__main__":
    main()
