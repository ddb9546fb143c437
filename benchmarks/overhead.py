"""What Rammer costs beside the work: calls, idling, compiling and loading. `python -m benchmarks.overhead --help`.

Calls are those of the processor; `benchmarks.calls` has those of a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich import box
from rich.console import Console
from rich.table import Table

import rammer
from benchmarks.harness.cases import FORMS, build_case
from benchmarks.harness.clock import WallClock
from benchmarks.harness.cold import Cold, cold_compile, cold_device, cold_load
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.ours import Rammer
from rammer.devices.registry import find_device
from rammer.inspection.timeline import bars
from rammer.options import CompileOptions

_CALLS = 2000
_IDLE_S = 1.0
_console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """A call of a model with one tiny operator, from Python to Python.

    Attributes:
        call_us: median of the whole call.
        work_us: median of what its rTasks took, as traced.
        after_pause_us: median of a call after the workers went to sleep.
        idle_share: processor time of the whole process per second without a call, in seconds.
    """

    call_us: float
    work_us: float
    after_pause_us: float
    idle_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A network's cold start, and the device's alone, which is part of both."""

    network: str
    compiled: Cold
    loaded: Cold
    device: Cold
    artifact_bytes: int


def call_cost(veus: int) -> CallCost:
    """Measure calls of `x + y` over four elements."""
    executable = rammer.compile(_add_model(), "cpu", veus=veus)
    x = {name: np.ones(4, np.float32) for name in ("x", "y")}
    clock = WallClock()
    clock.time_us(lambda: executable.run(x), _CALLS)
    call_us = clock.time_us(lambda: executable.run(x), _CALLS)
    report = executable.report
    work_us = []
    for _ in range(100):
        drawn = bars(report, executable.trace(x).spans_ns)
        work_us.append(sum(bar.end_us - bar.start_us for bar in drawn if bar.operator is not None))
    after_pause_us = []
    for _ in range(50):
        time.sleep(0.01)
        after_pause_us += clock.time_us(lambda: executable.run(x), 1)
    start_s = time.process_time()
    time.sleep(_IDLE_S)
    return CallCost(
        call_us=statistics.median(call_us),
        work_us=statistics.median(work_us),
        after_pause_us=statistics.median(after_pause_us),
        idle_share=(time.process_time() - start_s) / _IDLE_S,
    )


def cold_start(network: str, device: str, precision: str, veus: int) -> Start:
    """Compile and load a network, each in a process of its own with an empty cache."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, artifact = folder / "model.onnx", folder / "model.rammer"
        onnx.save(build_case(network).model, model)
        compiled = cold_compile(model, artifact, folder / "cache", device, precision, veus)
        return Start(
            network=network,
            compiled=compiled,
            loaded=cold_load(artifact, folder / "empty"),
            device=cold_device(device),
            artifact_bytes=artifact.stat().st_size,
        )


def main() -> None:
    """Measure, print tables and leave JSON."""
    arguments = _arguments()
    device: str = arguments.device
    veus = find_device(device).describe(CompileOptions(device=device, veus=arguments.veus)).veu_count
    calls = call_cost(veus) if device == "cpu" else None
    starts: list[Start] = []
    with _console.status("") as status:
        for network in arguments.networks:
            status.update(f"{network}: compiling")
            starts.append(cold_start(network, device, arguments.precision, veus))
    settings = environment([Rammer(policy="wavefront", device=device, precision=arguments.precision, veus=veus)])
    data = {**settings, "veus": veus, "starts": [asdict(start) for start in starts]}
    if calls is not None:
        data["call"] = asdict(calls)
        _print_calls(calls)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    _print_starts(starts)
    _console.print(f"wrote {arguments.json}", soft_wrap=True)


def _print_calls(calls: CallCost) -> None:
    grid = Table(title="A call of one tiny operator", title_justify="left", show_header=False, box=box.SIMPLE_HEAD)
    grid.add_row("the whole call", f"{calls.call_us:.1f} us")
    grid.add_row("of which work", f"{calls.work_us:.2f} us")
    grid.add_row("a call after 10 ms of rest", f"{calls.after_pause_us:.1f} us")
    grid.add_row("processor use while idle", f"{100 * calls.idle_share:.2f} %")
    _console.print(grid)


def _print_starts(starts: Sequence[Start]) -> None:
    grid = Table(title="Cold starts, in a fresh process with an empty cache", title_justify="left", box=box.SIMPLE_HEAD)
    compiled = ("compile s", "of it build", "peak MB", "peak MB of cc", "artifact MB")
    for name in ("network", *compiled, "load s", "driver s", "peak MB"):
        grid.add_column(name, justify="left" if name == "network" else "right")
    for start in starts:
        cold, loaded = start.compiled, start.loaded
        grid.add_row(
            start.network,
            f"{cold.seconds:.1f}",
            f"{cold.build_seconds:.1f}",
            f"{cold.process_bytes / 1e6:.0f}",
            f"{cold.compiler_bytes / 1e6:.0f}",
            f"{start.artifact_bytes / 1e6:.1f}",
            f"{loaded.seconds:.3f}",
            f"{start.device.seconds:.3f}",
            f"{loaded.process_bytes / 1e6:.0f}",
        )
    _console.print(grid)


def _add_model() -> onnx.ModelProto:
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (4,)) for name in "xyz")
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"], name="add")], "add", [x, y], [z])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("--networks", nargs="*", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", default="fp32", help="of products, as `rammer.compile` takes it (default: fp32)")
    parser.add_argument("--veus", type=int, help="execution units (default: all)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where results go (default: out/overhead-DEVICE.json)"
    )
    arguments = parser.parse_args()
    arguments.json = arguments.json or OUT / f"overhead-{arguments.device}.json"
    return arguments


if __name__ == "__main__":
    main()
