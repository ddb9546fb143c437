"""What it costs vEUs of a GPU to hand over, as programs see it: `python -m benchmarks.handover --help`.

- Hand-overs by counter and by tags, between pairs of vEUs (`rammer/devices/cuda/handover.py` says how), and whole steps
  of the chains that measure them, with and without code that writes times.
- For each network, what all vEUs do with their time, by the times of every step of traced runs: run rTasks, stand at
  Waits, or neither (between steps, at barriers between rPrograms, done before the others). Tagged elements are waited
  for inside rTasks: that time counts as theirs.
- For Waits that waited: the time from the end of the last rTask that they waited for, where that ran on another vEU, to
  the end of the Wait. Clocks of two vEUs are some tenths of a microsecond apart, which cancels in a median over many.

Figures are of traced runs, which are a little slower: their code writes times.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console
from rich.table import Table

import rammer
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.gpu import gpu_facts
from benchmarks.harness.ours_gpu import RammerOnGpu
from benchmarks.networks import NETWORKS, PAPER, SMALL
from benchmarks.networks.builder import random_inputs
from rammer.devices.cuda.describe import describe
from rammer.devices.cuda.driver import find_driver, read_gpu
from rammer.devices.cuda.handover import TURNS, handover_plan
from rammer.devices.cuda.peaks import load_plan, measure_handovers
from rammer.devices.registry import find_device
from rammer.inspection.timeline import SpansNs, end_ns
from rammer.ir.vdevice import Figure
from rammer.options import CompileOptions

_WARMUP_RUNS, _RUNS = 10, 20
_UNTRACED_RUNS = 50
_COUNTER, _TAGS, _TASK = "by counter", "by tags", "an rTask of no work"
_COUNTER_STEP, _TAGGED_STEP = "a step by counter", "a step by tags"
_console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)

Step = Sequence[Any]
"""A step as a report has it."""
Queue = Sequence[Step]
Spans = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Times in microseconds: how many, the median, and what 10 % and 90 % of them are below."""

    count: int
    median_us: float
    p10_us: float
    p90_us: float

    @classmethod
    def of(cls, times_us: npt.ArrayLike) -> Spread:
        """Of one time or more."""
        found = np.asarray(times_us, dtype=np.float64)
        p10, median, p90 = (float(time_us) for time_us in np.percentile(found, [10, 50, 90]))
        return cls(count=found.size, median_us=median, p10_us=p10, p90_us=p90)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A traced run: shares of the time of all vEUs together, and of each Wait that waited how late it ended."""

    total_us: float
    computing: float
    waiting: float
    late_us: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A network's runs: medians of each figure. `waits` is how many there are in its program."""

    network: str
    waits: int
    traced_us: float
    computing: float
    waiting: float
    late: Spread | None


def read(report: Mapping[str, Any], spans_ns: SpansNs) -> Run:
    """What a traced run says.

    Args:
        report: the compiled model's report.
        spans_ns: `[program][veu][step]` -> (start, end) in nanoseconds.
    """
    computing_ns = waiting_ns = 0
    late_us: list[float] = []
    for program, times in zip(report["programs"], spans_ns, strict=True):
        signals = _signals(program, times)
        for veu, (queue, spans) in enumerate(zip(program, times, strict=True)):
            computing_ns += sum(end - start for _, start, end in _steps("execute", queue, spans))
            for (start, end), waits in _standing(queue, spans).items():
                waiting_ns += end - start
                last, giver = max(sorted(signals[counter])[threshold - 1] for _, counter, threshold in waits)
                if giver != veu and last > start:
                    late_us.append((end - last) / 1e3)
    veus = max(map(len, report["programs"]), default=0)
    all_ns = max(1, veus * end_ns(spans_ns))
    return Run(
        total_us=end_ns(spans_ns) / 1e3,
        computing=computing_ns / all_ns,
        waiting=waiting_ns / all_ns,
        late_us=tuple(late_us),
    )


def _steps(opcode: str, queue: Queue, spans: Spans) -> Iterator[tuple[Step, int, int]]:
    """The steps of a kind, with start and end in nanoseconds."""
    for step, (start, end) in zip(queue, spans, strict=True):
        if step[0] == opcode:
            yield step, int(start), int(end)


def _signals(program: Sequence[Queue], times: Sequence[Spans]) -> dict[int, list[tuple[int, int]]]:
    """By counter, when the rTasks before its Signals had ended, and on which vEU."""
    found: dict[int, list[tuple[int, int]]] = {}
    for veu, (queue, spans) in enumerate(zip(program, times, strict=True)):
        for (_, counter), start, _ in _steps("signal", queue, spans):
            found.setdefault(counter, []).append((start, veu))
    return found


def _standing(queue: Queue, spans: Spans) -> dict[tuple[int, int], list[Step]]:
    """The Waits of a vEU by start and end: those that stand side by side have the same."""
    found: dict[tuple[int, int], list[Step]] = {}
    for step, start, end in _steps("wait", queue, spans):
        found.setdefault((start, end), []).append(step)
    return found


def outcome(network: str, device: str, *, small: bool) -> Outcome:
    """Compile a network and trace it."""
    model = NETWORKS[network](**SMALL[network] if small else {})
    net = rammer.compile(model, device)
    inputs, report = random_inputs(model, seed=0), net.report
    runs = [read(report, net.trace(inputs).spans_ns) for _ in range(_WARMUP_RUNS + _RUNS)][_WARMUP_RUNS:]
    late_us = [late for run in runs for late in run.late_us]
    return Outcome(
        network=network,
        waits=sum(step[0] == "wait" for program in report["programs"] for queue in program for step in queue),
        traced_us=statistics.median(run.total_us for run in runs),
        computing=statistics.median(run.computing for run in runs),
        waiting=statistics.median(run.waiting for run in runs),
        late=Spread.of(late_us) if late_us else None,
    )


def handovers(options: CompileOptions) -> dict[str, Spread]:
    """Hand-overs on this GPU, measured now, by what they are."""
    found = measure_handovers(read_gpu(find_driver()), options)
    samples = {
        _COUNTER: found.counter_us,
        _TAGS: found.tagged_us,
        _TASK: found.task_us,
        _COUNTER_STEP: found.counter_step_us,
        _TAGGED_STEP: found.tagged_step_us,
    }
    return {name: Spread.of(times_us) for name, times_us in samples.items()}


def untraced_us(options: CompileOptions) -> dict[str, float]:
    """Steps of both chains in code that writes no times, by what they are: what a run takes longer with more steps."""
    gpu = read_gpu(find_driver())
    vdevice = describe(gpu, None)

    def run_us(**turns: int) -> float:
        plan = handover_plan(vdevice, **turns)
        x = np.zeros(plan.graph.tensors[plan.graph.inputs[0]].type.shape, np.float32)
        return statistics.median(load_plan(plan, gpu, options).measure_us([x], _UNTRACED_RUNS))

    base_us, more = run_us(), vdevice.veu_count // 2 * TURNS
    return {
        _COUNTER_STEP: (run_us(counted=2 * TURNS) - base_us) / more,
        _TAGGED_STEP: (run_us(tagged=2 * TURNS) - base_us) / more,
    }


def main() -> None:
    """Measure, print tables and leave JSON."""
    arguments = _arguments()
    options = CompileOptions(device=arguments.device)
    found = handovers(options)
    vdevice = find_device(arguments.device).describe(options)
    used = {_COUNTER: vdevice.handover_us, _TAGS: vdevice.tagged_handover_us, _TASK: vdevice.task_overhead_us}
    untraced = untraced_us(options)
    _print_handovers(found, untraced, used)
    outcomes = []
    with _console.status("") as status:
        for network in arguments.networks:
            status.update(f"{network}: compiling and running")
            outcomes.append(outcome(network, arguments.device, small=arguments.small))
    _print_outcomes(outcomes)
    ours = RammerOnGpu(device=arguments.device, policy="wavefront", precision="fp32", veus=vdevice.veu_count)
    data = {
        **environment([ours]),
        **gpu_facts(),
        "device": arguments.device,
        "small": arguments.small,
        "handovers": {name: asdict(spread) for name, spread in found.items()},
        "untraced_us": untraced,
        "used": {name: asdict(figure) for name, figure in used.items() if figure is not None},
        "networks": [asdict(one) for one in outcomes],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    _console.print(f"wrote {arguments.json}", soft_wrap=True)


def _print_handovers(
    found: Mapping[str, Spread], untraced: Mapping[str, float], used: Mapping[str, Figure | None]
) -> None:
    grid = _table("Hand-overs in us", "", "median", "p10", "p90", "untraced", "compiling uses", "which is")
    grid.caption = (
        "A hand-over: from the end of an rTask to where the next one, on another vEU, begins to compute. A step: from "
        "end to end. Untraced: in code that writes no times, by the time of whole runs."
    )
    for name, spread in found.items():
        cells = [f"{value:.3f}" for value in (spread.median_us, spread.p10_us, spread.p90_us)]
        cells.append(f"{untraced[name]:.3f}" if name in untraced else "")
        figure = used.get(name)
        grid.add_row(name, *cells, *(("", "") if figure is None else (f"{figure.value:.3f}", figure.provenance)))
    _console.print(grid)


def _print_outcomes(outcomes: Iterable[Outcome]) -> None:
    grid = _table(
        "Time of all vEUs", "network", "us, traced", "rTasks", "Waits", "neither", "number of Waits", "late by us"
    )
    grid.caption = (
        "Waits for tagged elements are inside rTasks and count as theirs. Neither: between steps, at barriers between "
        "rPrograms, done before the others. Late: from the end of the last awaited rTask on another vEU to the end of "
        "the Wait, median (p10 to p90) of those that waited."
    )
    for one in outcomes:
        late = "" if one.late is None else f"{one.late.median_us:.2f} ({one.late.p10_us:.2f} to {one.late.p90_us:.2f})"
        shares = (one.computing, one.waiting, 1 - one.computing - one.waiting)
        grid.add_row(
            one.network, f"{one.traced_us:,.0f}", *(f"{100 * share:.1f} %" for share in shares), f"{one.waits:,}", late
        )
    _console.print(grid)


def _table(title: str, *columns: str) -> Table:
    grid = Table(title=title, title_justify="left", caption_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    for number, name in enumerate(columns):
        grid.add_column(name, justify="right" if number else "left")
    return grid


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.handover",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--networks", nargs="*", choices=list(NETWORKS), default=list(PAPER))
    parser.add_argument(
        "--device", default="cuda", help="cuda:sm_90 and the like compile networks by nominal figures (default: cuda)"
    )
    parser.add_argument("--small", action="store_true", help="networks of little work")
    parser.add_argument("--json", type=Path, default=OUT / "handover-cuda.json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
