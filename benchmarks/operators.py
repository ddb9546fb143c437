"""Operators alone, against the floor that the machine sets: `python -m benchmarks.operators --help`.

The floor is the longer of an operator's arithmetic at the rate of a saturated micro-kernel and its traffic at the
bandwidth of the innermost memory level that holds all of it, both as the vDevice has them. The share of the floor is
that of the rTasks, from the start of the first to the end of the last as a trace shows them: in the best of many runs,
as the vDevice's figures are those of the best, for clocks and caches are shared with whatever else the host does.
Ratios to other runtimes are of the medians of whole calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import rammer
from benchmarks.harness.cases import Case
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.measure import Row, measure
from benchmarks.harness.setups import SETUPS
from benchmarks.harness.single import SINGLES, Single
from rammer.devices.registry import find_device
from rammer.inspection.timeline import bars
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.options import CompileOptions

_TRACES = 100
_console = Console(width=160, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """An operator on some execution units.

    Attributes:
        best_us: from the start of the first rTask to the end of the last, in the best run of the better form.
        median_us: the same, in the median of that form's runs.
        floor_us: what the machine allows.
        bound: "arithmetic", or the memory level that sets the floor.
    """

    name: str
    veus: int
    best_us: float
    median_us: float
    floor_us: float
    bound: str
    rows: tuple[Row, ...]

    @property
    def share(self) -> float:
        """Of the floor in the best time of the rTasks."""
        return self.floor_us / self.best_us


def floor(single: Single, vdevice: VDevice) -> tuple[float, str]:
    """The least time of an operator on all units of a vDevice in microseconds, and what sets it."""
    veus = vdevice.veu_count
    arithmetic_us = single.flops / (vdevice.flops_per_us[DType.FLOAT32].value * veus)
    part_bytes = single.traffic_bytes / veus
    level = next(
        (
            level
            for level in vdevice.levels
            if (single.traffic_bytes if level.shared else part_bytes) <= level.capacity_bytes
        ),
        vdevice.levels[-1],
    )
    together = level.total_bandwidth_bytes_per_us
    alone_us = part_bytes / level.bandwidth_bytes_per_us.value
    traffic_us = alone_us if together is None else max(alone_us, single.traffic_bytes / together.value)
    return (arithmetic_us, "arithmetic") if arithmetic_us >= traffic_us else (traffic_us, level.name)


def tasks_us(case: Case, veus: int) -> tuple[float, float]:
    """The best and the median time of a model's rTasks over some traced runs, in microseconds."""
    executable = rammer.compile(case.model, "cpu", veus=veus)
    report = executable.report
    times_us = []
    for _ in range(_TRACES):
        tasks = [bar for bar in bars(report, executable.trace(case.inputs).spans_ns) if bar.operator is not None]
        times_us.append(max(bar.end_us for bar in tasks) - min(bar.start_us for bar in tasks))
    return min(times_us), statistics.median(times_us)


def figures(single: Single, veus: int, rounds: int) -> Figures:
    """Measure an operator in all its forms; with no `rounds`, without other runtimes beside it."""
    setup = SETUPS["cpu"](veus, "fp32")
    contestants = (*setup.peers, setup.ours("wavefront"))
    rows = [
        measure(case, contestants, setup, rounds=rounds, progress=lambda _: None) for case in single.cases if rounds
    ]
    best_us, median_us = min(tasks_us(case, veus) for case in single.cases)
    floor_us, bound = floor(single, find_device("cpu").describe(CompileOptions(device="cpu", veus=veus)))
    return Figures(
        name=single.name,
        veus=veus,
        best_us=best_us,
        median_us=median_us,
        floor_us=floor_us,
        bound=bound,
        rows=tuple(rows),
    )


def _table(found: Sequence[Figures]) -> Table:
    grid = Table(
        title="Operators alone; ratios of calls, each in its best form", title_justify="left", box=box.SIMPLE_HEAD
    )
    for name in (
        "operator",
        "units",
        "median us",
        "best us",
        "floor us",
        "bound",
        "share",
        "ratio to best peer",
        "best peer",
    ):
        grid.add_column(name, justify="left" if name in ("operator", "bound", "best peer") else "right", no_wrap=True)
    for one in found:
        times = [f"{us:.1f}" for us in (one.median_us, one.best_us, one.floor_us)]
        grid.add_row(one.name, str(one.veus), *times, one.bound, f"{one.share:.0%}", *_ratio(one.rows))
    return grid


def _ratio(rows: Sequence[Row]) -> tuple[str, str]:
    """How many times as long the best peer takes, and which one it is."""
    refusals = [row.refusal for row in rows if row.refusal]
    if refusals or not rows:
        return "; ".join(refusals), ""
    ours = "rammer wavefront"
    peer_us = {name: min(row.timings[name].median_us for row in rows) for name in rows[0].timings if name != ours}
    quickest = min(peer_us, key=lambda name: peer_us[name])
    return f"{peer_us[quickest] / min(row.timings[ours].median_us for row in rows):.2f}", quickest


def main() -> None:
    """Measure, print a table and leave JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description=__doc__)
    parser.add_argument("--operators", nargs="*", choices=list(SINGLES), default=list(SINGLES))
    parser.add_argument("--veus", nargs="*", type=int, default=[1, 2], help="execution units (default: 1 2)")
    parser.add_argument("--rounds", type=int, default=10, help="turns for each runtime; 0: Rammer alone (default: 10)")
    parser.add_argument("--json", type=Path, default=OUT / "operators-cpu.json", metavar="FILE")
    arguments = parser.parse_args()
    found: list[Figures] = []
    with _console.status("") as status:
        for name in arguments.operators:
            single = SINGLES[name]()
            for veus in arguments.veus:
                status.update(f"{name}: {veus} units")
                found.append(figures(single, veus, arguments.rounds))
    settings = environment(SETUPS["cpu"](1, "fp32").peers)
    data = {**settings, "rounds": arguments.rounds, "figures": [asdict(one) | {"share": one.share} for one in found]}
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    _console.print(_table(found))
    _console.print(f"wrote {arguments.json}", soft_wrap=True)


if __name__ == "__main__":
    main()
