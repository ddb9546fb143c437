"""The evaluation as a page: tables, charts, and where the idea does not pay, from the file of measurements alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.evaluation.charts import Bars, chart
from benchmarks.evaluation.paper import CELLS_OVER_BARRIERS, CELLS_OVER_BASE, REPORTED, REPORTED_SPEEDUPS
from benchmarks.harness.ranking import kendall
from benchmarks.networks import LARGER

_TITLES = {
    "resnext": "ResNeXt-29",
    "nasnet": "NASNet-CIFAR",
    "alexnet": "AlexNet",
    "deepspeech2": "DeepSpeech2",
    "lstm_tc": "LSTM-TC",
    "seq2seq": "Seq2Seq",
    "resnext101": "ResNeXt-101 64x4d (224 x 224)",
    "nasnet_mobile": "NASNet-mobile (224 x 224)",
}
_BASE, _OURS = "base-fast", "rammer-select"
_PAYS = 1.05
Figures = Mapping[str, Any]
SPEEDUPS, CELLS = "speedups", "cells"


_OF_GPUS = "evaluation.md"
_NEAR = {
    True: ", and its base launches a kernel for each operator: ours is one kernel already, with a barrier for a launch",
    False: "; a processor has a few units, which one operator mostly fills",
}
"""How near this machine is to the paper's, by whether it is a GPU."""


def page_name(kind: str) -> str:
    """The file of the page of a kind of device: the paper is about GPUs, whose page has no other name."""
    return _OF_GPUS if kind.startswith("cuda") else f"evaluation-{kind}.md"


def _place(key: str) -> tuple[bool, int, int]:
    """Where a network has its row: by batch, those of the paper before larger ones, in whatever order they came."""
    name, batch = key.rsplit("-", 1)
    return name in LARGER, int(batch), list(_TITLES).index(name)


def write_page(data: Figures) -> tuple[str, dict[str, str]]:
    """The page's text, and its pictures by file name.

    Args:
        data: "settings", "networks" by name and batch ("resnext-16"), the "commits" that they were measured at, and
            "cells" by seed.
    """
    networks = {key: data["networks"][key] for key in sorted(data["networks"], key=_place)}
    cells, settings = list(data["cells"].values()), data["settings"]
    parts = [_HEAD.format(**settings)]
    pictures = {}
    if networks:
        pictures[_picture(SPEEDUPS, settings)] = _speedups(networks)
        parts += [_latency(networks, data["commits"], settings), _paper(networks, settings), _does_not_pay(networks)]
    if cells:
        pictures[_picture(CELLS, settings)] = _histogram(cells)
        parts.append(_cells(cells, settings))
    return "\n\n".join(parts) + "\n", pictures


_HEAD = """\
# The paper's evaluation, here

What the [Rammer paper](https://www.usenix.org/conference/osdi20/presentation/ma) measures in its section 5, by one
command, on {device} with {veus} execution units, float32; commit {commit}, {time}:

```
python -m benchmarks.evaluation --device {kind}
```

Times are kept as they are measured, and the command goes on where it was ended; the simulator has figures of the
machine as {known} (`RAMMER_FIGURES`). *Base* runs operator after operator with a barrier behind each, as the paper's
RammerBase does; *Rammer* places the tiles of all operators together. *Fast* takes the rKernels that are fastest alone,
*select* those that suit what runs beside them. All of them are Rammer's own code: other runtimes are compared
[elsewhere](experiments/README.md)."""


def _picture(name: str, settings: Figures) -> str:
    """The file of a picture."""
    return page_name(settings["kind"]).replace(".md", f"-{name}.svg")


def _latency(networks: Figures, commits: Mapping[str, str], settings: Figures) -> str:
    rows = []
    for key, programs in networks.items():
        times = [f"{programs[name]['run_us']:,.0f}" for name in programs]
        ratio = programs[_BASE]["run_us"] / programs[_OURS]["run_us"]
        busy = _percents(*(programs[name]["busy_share"] for name in (_BASE, _OURS)))
        outside = [f"{programs[name]['outside_us']:,.0f}" for name in (_BASE, _OURS)]
        rows.append([_called(key), *times, f"{ratio:.2f}", busy, " to ".join(outside)])
    names = list(next(iter(networks.values())))
    heads = ["network, batch", *names, f"{_BASE} / {_OURS}", "units busy, %", "outside of rTasks, us"]
    mean = math.exp(statistics.fmean(math.log(p[_BASE]["run_us"] / p[_OURS]["run_us"]) for p in networks.values()))
    gaps = [abs(one["simulated_us"] / one["run_us"] - 1) for p in networks.values() for one in p.values()]
    taus = [kendall([(one["simulated_us"], one["run_us"]) for one in p.values()]) for p in networks.values()]
    missing = [title for name, title in _TITLES.items() if f"{name}-1" not in networks]
    left_out = f" Not measured at batch 1: {', '.join(missing)}." if missing else ""
    earlier: dict[str, list[str]] = {}
    for key in networks:
        commit = commits.get(key, "unknown")  # of files from before commits were kept
        if commit != settings["commit"]:
            earlier.setdefault(commit, []).append(_called(key))
    left_out += "".join(f" Measured at commit {commit}: {'; '.join(names)}." for commit, names in earlier.items())
    return f"""## The paper's networks

Medians of whole runs in microseconds, the programs in turns. The last two columns are {_BASE}'s and {_OURS}'s: the part
of all units' time that rTasks take, and what a unit spends outside of them, in the mean.{left_out}

{_table(heads, rows)}

![Bars: how many times as long the base takes, here and in the paper](images/{_picture(SPEEDUPS, settings)})

The geometric mean of the ratios is {mean:.2f}. The simulator is off by {100 * statistics.median(gaps):.0f} % in the
median and by {100 * max(gaps):.0f} % at most; it orders the programs of a network as the measurement does with a
Kendall correlation of {statistics.fmean(taus):.2f} in the mean. Programs that differ by
less than runs do count there, too."""


def _paper(networks: Figures, settings: Figures) -> str:
    rows = []
    for name, reported in REPORTED.items():
        programs = networks.get(f"{name}-1")
        if programs is None:
            continue
        base, ours = programs[_BASE], programs[_OURS]
        rows.append(
            [
                _TITLES[name],
                f"{reported.base_ms / reported.rammer_ms:.2f}",
                f"{base['run_us'] / ours['run_us']:.2f}",
                f"{reported.base_busy} to {reported.rammer_busy}",
                _percents(base["busy_share"], ours["busy_share"]),
                _percents(reported.base_outside_ms / reported.base_ms, reported.rammer_outside_ms / reported.rammer_ms),
                _percents(base["outside_us"] / base["run_us"], ours["outside_us"] / ours["run_us"]),
            ]
        )
    heads = ["batch 1", "speed-up, paper", "here", "units busy %, paper", "here", "overhead %, paper", "here"]
    return f"""## Beside the paper's figures

The paper's machine is a V100 with 80 multiprocessors{_NEAR[page_name(settings["kind"]) == _OF_GPUS]}. The
paper's overhead is the time between kernels, ours the part of a run that a unit spends outside of rTasks.

{_table(heads, rows)}"""


def _does_not_pay(networks: Figures) -> str:
    ratios = {key: p[_BASE]["run_us"] / p[_OURS]["run_us"] for key, p in networks.items()}
    poor = [f"{_called(key)} ({ratio:.2f})" for key, ratio in ratios.items() if ratio < _PAYS]
    chosen = [
        f"{_called(key)} ({p['rammer-fast']['run_us'] / p[_OURS]['run_us']:.2f})"
        for key, p in networks.items()
        if p["rammer-fast"]["run_us"] < p[_OURS]["run_us"]
    ]
    return f"""## Where it does not pay

Placing tiles of several operators together gains less than {100 * (_PAYS - 1):.0f} % over operator after operator here:
{"; ".join(poor) or "nowhere"}. Choosing rKernels for what runs beside them is slower than always the fastest in:
{"; ".join(chosen) or "no case"}.

The idea gains where operators are too small for the device, and where barriers are dear. A network whose every operator
fills all units for long, as large batches do, has nothing to gain but the barriers."""


def _cells(cells: Sequence[Figures], settings: Figures) -> str:
    over_base = [one["base_us"] / one["waits_us"] for one in cells]
    over_barriers = [one["barriers_us"] / one["waits_us"] for one in cells]
    slower = sum(ratio < 1 for ratio in over_barriers)
    return f"""## Waits between tiles against global barriers

{len(cells)} random cells as in NAS-Bench-101 (4 to 7 convolutions and poolings of 64 channels, 16 x 16), simulated: the
same rKernels, units and order with Waits between tiles, and with a barrier between depths of the graph. With Waits they
are {_mean(over_barriers):.2f} times as fast in the geometric mean ({min(over_barriers):.2f} to
{max(over_barriers):.2f}; slower in {slower}), and {_mean(over_base):.2f} times as fast as operator after operator. The
paper measures {CELLS_OVER_BARRIERS} on its irregular cells, and {CELLS_OVER_BASE} over its base.

![Bars: in how many cells Waits gain how much over barriers](images/{_picture(CELLS, settings)})"""


def _speedups(networks: Figures) -> str:
    bars = []
    for key, programs in networks.items():
        name = key.rpartition("-")[0]
        here = programs[_BASE]["run_us"] / programs[_OURS]["run_us"]
        values = {"here": here}
        if key.endswith("-1") and name in REPORTED_SPEEDUPS:
            values["paper"] = REPORTED_SPEEDUPS[name]
        bars.append(Bars(_called(key), values))
    return chart("Base over Rammer: blue here, grey in the paper (V100)", bars)


def _histogram(cells: Sequence[Figures]) -> str:
    ratios = [one["barriers_us"] / one["waits_us"] for one in cells]
    width = 0.05
    first, last = math.floor(min(ratios) / width), math.floor(max(ratios) / width)
    counts = [sum(math.floor(ratio / width) == place for ratio in ratios) for place in range(first, last + 1)]
    bars = [
        Bars(f"{place * width:.2f} to {(place + 1) * width:.2f}", {"here": float(count)})
        for place, count in zip(range(first, last + 1), counts, strict=True)
    ]
    return chart("Cells by how many times as long they take with global barriers", bars, digits=0)


def _mean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def _percents(before: float, after: float) -> str:
    return f"{100 * before:.0f} to {100 * after:.0f}"


def _called(key: str) -> str:
    name, _, batch = key.rpartition("-")
    return f"{_TITLES.get(name, name)}, {batch}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows))
