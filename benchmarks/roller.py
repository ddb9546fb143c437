"""How good construction and prediction are: `python -m benchmarks.roller --help`.

Operators are drawn from all networks of `benchmarks.networks`. For each, the candidates are constructed, compiled,
checked and measured alone on one vEU. From that come

- the time of construction, without a compiler;
- *top-1*: the measured time of the candidate that is predicted to be the fastest, over that of the fastest measured;
- the rank correlation (Spearman) of predicted and measured times, over all candidates of a class of operators, and over
  those of one operator (its mean), where more than noise tells them apart.

The time of an rOperator is that of its rounds of rTasks on all vEUs, and of the hand-overs.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.harness.cases import FORMS
from benchmarks.harness.environment import OUT, environment
from benchmarks.networks import NETWORKS
from benchmarks.networks.precision import ELEMENT_TYPES, converted
from rammer.compiler import lower_graph
from rammer.devices.cuda.architecture import KIND as CUDA
from rammer.devices.cuda.build import compile_source
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.task import RKernel, ROperator
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.options import CompileOptions
from rammer.profiler.measure import emit, measure
from rammer.roller.construct import construct, whole_us
from rammer.roller.model import predict
from rammer.tiling.pattern import contraction

_INSTANCES = 100
# Of networks whose layers are alike these have all their operators.
_FEWER: Mapping[str, Mapping[str, int]] = {
    "llama": {"layers": 2},
    "whisper": {"layers": 2},
    "vit": {"layers": 2},
    "bert": {"layers": 2},
    "lstm_tc": {"steps": 4},
    "seq2seq": {"steps": 4, "decoder_steps": 3},
}
_APART = 1.1  # times of an operator's candidates have to differ by this for their ranks to mean anything
_console = Console(width=160, highlight=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One operator of a model: what has to be computed, of what."""

    model: str
    name: str
    kind: str
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What construction, prediction and measurement gave for an operator, best predicted first."""

    model: str
    name: str
    kind: str
    construct_ms: float
    tiles: tuple[str, ...]
    predicted_us: tuple[float, ...]
    measured_us: tuple[float, ...]
    profile_s: float

    @property
    def ratio(self) -> float:
        """Top-1's time over the best's."""
        return self.measured_us[0] / min(self.measured_us)

    @property
    def is_apart(self) -> bool:
        """Whether more than noise tells the candidates apart."""
        return max(self.measured_us) > _APART * min(self.measured_us)


def instances(vdevice: VDevice, count: int, options: CompileOptions, pool: Executor) -> list[Instance]:
    """`count` distinct operators, evenly from each network and each kind."""
    queues: dict[tuple[str, str], list[Instance]] = defaultdict(list)
    seen: set[Workload] = set()
    for found in pool.map(partial(_instances_of, vdevice=vdevice, options=options), NETWORKS):
        for one in found:
            if one.workload not in seen:
                seen.add(one.workload)
                queues[one.kind, one.model].append(one)
    return list(_deal(queues, count))


def _instances_of(name: str, vdevice: VDevice, options: CompileOptions) -> list[Instance]:
    """The distinct operators of a network that can be measured alone."""
    found: dict[Workload, Instance] = {}
    tasks = lower_graph(load_graph(_model(name, options.precision)), vdevice, options, Dump(None))
    for operator in tasks.operators:
        kernel = operator.kernels[0]
        workload = Workload(kernel.expr, kernel.layouts, kernel.alignments, kernel.constants)
        if not any(layout.tagged for layout in kernel.layouts):  # tags are of other rTasks
            one = Instance(model=name, name=operator.name, kind=_kind(operator, kernel), workload=workload)
            found.setdefault(workload, one)
    return list(found.values())


def _deal(queues: Mapping[tuple[str, str], list[Instance]], count: int) -> Iterator[Instance]:
    """One of each queue in turn, from evenly spread places, until there are `count`."""
    spread = {
        key: [found[i] for i in np.random.default_rng(0).permutation(len(found))] for key, found in queues.items()
    }
    left = count
    while left and any(spread.values()):
        for found in spread.values():
            if found and left:
                left -= 1
                yield found.pop()


def _model(name: str, precision: str) -> onnx.ModelProto:
    """A network as the other benchmarks run it, with few of its equal layers."""
    model = NETWORKS[name](seed=0, **_FEWER.get(name, {}))
    return converted(model, precision) if FORMS[name].converts and precision in ELEMENT_TYPES else model


def _kind(operator: ROperator, kernel: RKernel) -> str:
    """The class of an operator in the table."""
    head = operator.kind.split("+")[0]
    found = contraction(kernel.expr)
    if found is None:
        return "pooling, reduction" if kernel.expr.reductions else "elementwise, movement"
    if "Cell" in head:
        return "recurrent cell"
    if head == "Conv":
        return "depthwise convolution" if found.shared else "convolution"
    rows = math.prod(axis.extent for axis in kernel.expr.axes) // max(axis.extent for axis in kernel.expr.axes)
    return "matrix product" if rows > 1 else "matrix-vector"


def outcome(instance: Instance, vdevice: VDevice, options: CompileOptions) -> Outcome:
    """Construct, predict and measure."""
    start_s = time.perf_counter()
    kernels = construct(instance.workload, vdevice, to_measure=True)
    constructed_s = time.perf_counter()
    tasks_us = measure(kernels, find_device(options.device), vdevice, options)
    done_s = time.perf_counter()
    predicted = {kernel: whole_us(kernel.task_count, vdevice, predict(kernel, vdevice).task_us) for kernel in kernels}
    measured = {kernel: whole_us(kernel.task_count, vdevice, us) for kernel, us in zip(kernels, tasks_us, strict=True)}
    ranked = sorted(kernels, key=lambda kernel: predicted[kernel])
    return Outcome(
        model=instance.model,
        name=instance.name,
        kind=instance.kind,
        construct_ms=1e3 * (constructed_s - start_s),
        tiles=tuple(
            f"{kernel.form.skeleton} {kernel.tile.task} {kernel.form.details} x {kernel.task_count}"
            for kernel in ranked
        ),
        predicted_us=tuple(predicted[kernel] for kernel in ranked),
        measured_us=tuple(measured[kernel] for kernel in ranked),
        profile_s=done_s - constructed_s,
    )


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; equal values share their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    array = np.asarray(values)
    return [float((array < value).sum() + ((array == value).sum() - 1) / 2) for value in array]


def build(chosen: Sequence[Instance], vdevice: VDevice, options: CompileOptions, pool: Executor) -> None:
    """Compile all candidates and say how long that took; what the cache has takes no time."""
    builds_s = []
    with _console.status("") as status:
        for number, build_s in enumerate(pool.map(partial(_build_s, vdevice=vdevice, options=options), chosen)):
            status.update(f"built {number + 1} of {len(chosen)}: {chosen[number].name}")
            builds_s.append(build_s)
    _console.print(
        f"candidates of an operator built in {statistics.median(builds_s):.1f} s, at most {max(builds_s):.1f} s"
    )


def _build_s(instance: Instance, vdevice: VDevice, options: CompileOptions) -> float:
    """Compile an operator's candidates; returns how long that took. A GPU's are compiled once more to write times."""
    kernels, device = construct(instance.workload, vdevice, to_measure=True), find_device(options.device)
    start_s = time.perf_counter()
    source = emit(kernels, device, vdevice)
    binary = device.build(source, options)
    if binary.device == CUDA:
        compile_source(source, binary.machine["architecture"], options, trace=True)
    return time.perf_counter() - start_s


def measured(
    chosen: Sequence[Instance], known: Sequence[Outcome], vdevice: VDevice, options: CompileOptions, seconds: float
) -> list[Outcome]:
    """The outcomes that are `known`, of the first operators, and those of as many others as `seconds` allow."""
    outcomes = list(known)
    end_s = time.perf_counter() + seconds
    with _console.status("") as status:
        for instance in chosen[len(known) :]:
            if time.perf_counter() > end_s:
                break
            status.update(f"measuring {len(outcomes)} of {len(chosen)}: {instance.name}")
            outcomes.append(outcome(instance, vdevice, options))
    return outcomes


def main() -> None:
    """Measure, print a table and leave JSON."""
    arguments = _arguments()
    options = CompileOptions(device=arguments.device, precision=arguments.precision)
    vdevice = find_device(options.device).describe(options)
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        chosen = instances(vdevice, arguments.operators, options, pool)
        if not arguments.measure_only:
            build(chosen, vdevice, options, pool)
    if arguments.build_only:
        return
    path = arguments.json or OUT / f"roller-{vdevice.kind}-{options.precision}.json"
    known = read(path) if arguments.resume else []
    outcomes = measured(chosen, known, vdevice, options, arguments.seconds)
    kinds = sorted({one.kind for one in outcomes})
    rows = [_row(kind, [one for one in outcomes if one.kind == kind]) for kind in kinds]
    rows.append(_row("all", outcomes))
    _print(rows)
    data = {**environment([]), "rows": rows, "operators": [asdict(one) for one in outcomes]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    _console.print(f"{len(outcomes)} of {len(chosen)} operators, wrote {path}", soft_wrap=True)


def read(path: Path) -> list[Outcome]:
    """The outcomes that an earlier call has left."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["operators"]
    series = ("tiles", "predicted_us", "measured_us")
    return [Outcome(**{**one, **{name: tuple(one[name]) for name in series}}) for one in found]


def _row(kind: str, outcomes: Sequence[Outcome]) -> dict[str, float | str | None]:
    pooled = [pair for one in outcomes for pair in zip(one.predicted_us, one.measured_us, strict=True)]
    apart = [one for one in outcomes if one.is_apart and len(one.tiles) > 2]
    within = [spearman(one.predicted_us, one.measured_us) for one in apart]
    return {
        "class": kind,
        "operators": len(outcomes),
        "candidates": len(pooled),
        "construct_ms": max(one.construct_ms for one in outcomes),
        "profile_s": max(one.profile_s for one in outcomes),
        "top1_over_best": math.exp(statistics.fmean(math.log(one.ratio) for one in outcomes)),
        "worst_top1": max(one.ratio for one in outcomes),
        "spearman": spearman(*zip(*pooled, strict=True)) if len(pooled) > 2 else None,
        "spearman_within": statistics.fmean(within) if within else None,
        "error": math.exp(statistics.fmean(abs(math.log(p / m)) for p, m in pooled)),
    }


def _print(rows: Sequence[Mapping[str, float | str | None]]) -> None:
    grid = Table(box=box.SIMPLE_HEAD)
    names = (
        "class",
        "operators",
        "candidates",
        "construct ms",
        "measure s",
        "top-1 / best",
        "worst",
        "Spearman",
        "within",
        "off by",
    )
    for name in names:
        grid.add_column(name, justify="left" if name == "class" else "right")
    for row in rows:
        grid.add_row(
            *(
                "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
                for value in row.values()
            )
        )
    _console.print(grid)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.roller", description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--operators", type=int, default=_INSTANCES, help="operators to draw")
    parser.add_argument("--build-only", action="store_true", help="compile all candidates, and end")
    parser.add_argument("--jobs", type=int, default=1, help="processes that lower and compile")
    parser.add_argument("--measure-only", action="store_true", help="do not compile first: it was done before")
    parser.add_argument("--seconds", type=float, default=math.inf, help="measure no further operator after so long")
    parser.add_argument("--resume", action="store_true", help="go on after the operators that the JSON file has")
    parser.add_argument("--json", type=Path, metavar="FILE", help="by default one for each device and precision")
    return parser.parse_args()


if __name__ == "__main__":
    main()
