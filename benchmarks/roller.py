"""How good construction and prediction are: `python -m benchmarks.roller --help`.

Operators are drawn from all networks of `benchmarks.networks`. For each, the candidates are constructed, compiled,
checked and measured alone: on a processor on one vEU, on a GPU on all, which share its L2, behind another run of the
same rKernel. From that come

- the time of construction, without a compiler;
- *top-1*: the measured time of the candidate that is predicted to be the fastest, over that of the fastest measured;
- the rank correlation (Spearman) of predicted and measured times, over all candidates of a class of operators, and over
  those of one operator (its mean), where more than noise tells them apart; and how far they are apart, as a factor;
- the same of rTasks.

The time of an rOperator is that of its rounds of rTasks on all vEUs, and of the hand-overs.

A GPU need not be here to compile for it: `--device cuda:sm_90 --save FOLDER` leaves rKernels and machine code there,
`--saved FOLDER` measures them where the GPU is, and the same with `--predict` shows what a changed model says of them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
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
from benchmarks.harness.saved_candidates import SavedCandidates, save
from benchmarks.harness.saved_candidates import read as read_candidates
from benchmarks.networks import NETWORKS
from benchmarks.networks.precision import ELEMENT_TYPES, converted
from rammer.devices.base import Source
from rammer.devices.cuda.architecture import KIND as CUDA
from rammer.devices.cuda.build import build_traced, compile_source
from rammer.devices.registry import find_device
from rammer.errors import DeviceError, VerificationError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.expr import Call, TensorExpr
from rammer.ir.task import RKernel, ROperator
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.options import CompileOptions
from rammer.pipelines.planning import lower_graph
from rammer.profiler.measure import emit, expected, measure, timed
from rammer.roller.construct import construct, whole_us
from rammer.roller.model import predict
from rammer.tiling.pattern import contraction, is_gathered, values

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

    @property
    def about(self) -> dict[str, str]:
        """Which it is."""
        return {"model": self.model, "name": self.name, "kind": self.kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What construction, prediction and measurement gave for an operator, best predicted first.

    Times in microseconds are of the operator on all vEUs, those named `task` of one rTask; on a GPU `first_task_us` is
    what that took as its code was new to the multiprocessors.
    """

    model: str
    name: str
    kind: str
    construct_ms: float
    tiles: tuple[str, ...]
    predicted_us: tuple[float, ...]
    measured_us: tuple[float, ...]
    predicted_task_us: tuple[float, ...]
    measured_task_us: tuple[float, ...]
    first_task_us: tuple[float, ...]
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
    """`count` distinct operators, evenly from each class, and of a class from each network."""
    queues: dict[str, dict[str, list[Instance]]] = defaultdict(lambda: defaultdict(list))
    seen: set[Workload] = set()
    for found in pool.map(partial(_instances_of, vdevice=vdevice, options=options), NETWORKS):
        for one in found:
            if one.workload not in seen:
                seen.add(one.workload)
                queues[one.kind][one.model].append(one)
    return list(
        itertools.islice(_in_turns([list(_in_turns(map(_spread, of.values()))) for of in queues.values()]), count)
    )


def _instances_of(name: str, vdevice: VDevice, options: CompileOptions) -> list[Instance]:
    """The distinct operators of a network that can be measured alone."""
    found: dict[Workload, Instance] = {}
    tasks = lower_graph(load_graph(_model(name, options.precision)), vdevice, options, Dump(None))
    for operator in tasks.operators:
        kernel = operator.kernels[0]
        workload = Workload(kernel.expr, kernel.layouts, kernel.alignments, kernel.constants)
        is_tagged = any(layout.tagged for layout in kernel.layouts)  # tags are of other rTasks
        if not is_tagged and _lineup(construct(workload, vdevice), vdevice)[0]:
            one = Instance(model=name, name=operator.name, kind=_kind(operator, kernel), workload=workload)
            found.setdefault(workload, one)
    return list(found.values())


def _spread(found: Sequence[Instance]) -> list[Instance]:
    """The same in an order whose beginnings are of all places."""
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))]


def _in_turns(queues: Iterable[Sequence[Instance]]) -> Iterator[Instance]:
    """One of each queue in turn."""
    for turn in itertools.zip_longest(*queues):
        yield from (one for one in turn if one is not None)


def _model(name: str, precision: str) -> onnx.ModelProto:
    """A network as the other benchmarks run it, with few of its equal layers."""
    model = NETWORKS[name](seed=0, **_FEWER.get(name, {}))
    return converted(model, precision) if FORMS[name].converts and precision in ELEMENT_TYPES else model


def _kind(operator: ROperator, kernel: RKernel) -> str:
    """The class of an operator in the table."""
    head = operator.kind.split("+")[0]
    found = contraction(kernel.expr)
    if "Attention" in head:
        return "attention"
    if found is None:
        return _kind_of_others(head, kernel.expr)
    if "Cell" in head:
        return "recurrent cell"
    if head == "Conv":
        return "depthwise convolution" if found.shared else "convolution"
    rows = math.prod(axis.extent for axis in kernel.expr.axes) // max(axis.extent for axis in kernel.expr.axes)
    return "matrix product" if rows > 1 else "matrix-vector"


def _kind_of_others(head: str, expr: TensorExpr) -> str:
    """The class of what is no product."""
    if head.endswith(("Softmax", "Normalization")):
        return "softmax, normalisation"
    if expr.reductions:
        return "pooling, reduction"
    if is_gathered(expr):
        return "gather"
    return "elementwise" if any(isinstance(node, Call) for node in values(*expr.roots)) else "copy"


def outcome(instance: Instance, vdevice: VDevice, options: CompileOptions) -> Outcome:
    """Construct, predict and measure."""
    start_s = time.perf_counter()
    kernels = construct(instance.workload, vdevice, to_measure=True)
    constructed_s = time.perf_counter()
    repeated, veus = _lineup(kernels, vdevice)
    tasks_us = measure(repeated, find_device(options.device), vdevice, options, veus)
    about = {**instance.about, "construct_ms": 1e3 * (constructed_s - start_s)}
    return _outcome(about, repeated, tasks_us, vdevice, time.perf_counter() - constructed_s)


def _lineup(kernels: Sequence[RKernel], vdevice: VDevice) -> tuple[list[RKernel], int]:
    """Candidates in the order in which they run, and on how many vEUs.

    On a GPU each stands twice: the first run of them brings its code to the multiprocessors. What keeps its weights
    there does not stand among them, for the second run would find them.
    """
    if vdevice.kind == CUDA:
        return [kernel for kernel in kernels if not kernel.form.kept_bytes for _ in range(2)], vdevice.veu_count
    return list(kernels), 1


def _outcome(
    about: Mapping[str, Any], lineup: Sequence[RKernel], tasks_us: Sequence[float], vdevice: VDevice, profile_s: float
) -> Outcome:
    """What was measured beside what is predicted; of a candidate that ran twice the second time counts."""
    measured_task_us = dict(zip(lineup, tasks_us, strict=True))
    first_task_us = dict(zip(reversed(lineup), reversed(tasks_us), strict=True))
    task_us = {kernel: predict(kernel, vdevice).task_us for kernel in measured_task_us}
    predicted = {kernel: whole_us(kernel.task_count, vdevice, us) for kernel, us in task_us.items()}
    measured = {kernel: whole_us(kernel.task_count, vdevice, us) for kernel, us in measured_task_us.items()}
    ranked = sorted(task_us, key=lambda kernel: predicted[kernel])
    return Outcome(
        **about,
        tiles=tuple(map(_tile, ranked)),
        predicted_us=tuple(predicted[kernel] for kernel in ranked),
        measured_us=tuple(measured[kernel] for kernel in ranked),
        predicted_task_us=tuple(task_us[kernel] for kernel in ranked),
        measured_task_us=tuple(measured_task_us[kernel] for kernel in ranked),
        first_task_us=tuple(first_task_us[kernel] for kernel in ranked),
        profile_s=profile_s,
    )


def _tile(kernel: RKernel) -> str:
    """What tells a candidate from the others of its operator."""
    return f"{kernel.form.skeleton} {kernel.tile.task} {kernel.form.details} x {kernel.task_count}"


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """The correlation of ranks; equal values share their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    array = np.asarray(values)
    return [float((array < value).sum() + ((array == value).sum() - 1) / 2) for value in array]


def build(
    chosen: Sequence[Instance], vdevice: VDevice, options: CompileOptions, pool: Executor, folder: Path | None
) -> None:
    """Compile all candidates, into a folder if there is one; say how long that took. What is known takes no time."""
    builds_s = []
    work = partial(_build_s, vdevice=vdevice, options=options)
    paths = [None if folder is None else folder / f"{number:03}.npz" for number in range(len(chosen))]
    with _console.status("") as status:
        for number, build_s in enumerate(pool.map(work, chosen, paths)):
            status.update(f"built {number + 1} of {len(chosen)}: {chosen[number].name}")
            builds_s.append(build_s)
    _console.print(
        f"candidates of an operator built in {statistics.median(builds_s):.1f} s, at most {max(builds_s):.1f} s"
    )


def _build_s(instance: Instance, path: Path | None, vdevice: VDevice, options: CompileOptions) -> float:
    """Compile an operator's candidates; returns how long that took. A GPU's are compiled once more to write times."""
    start_s = time.perf_counter()
    lineup, veus = _lineup(construct(instance.workload, vdevice, to_measure=True), vdevice)
    constructed_s = time.perf_counter()
    device = find_device(options.device)
    source = emit(lineup, device, vdevice, veus)
    if path is not None:
        if not path.exists():
            about = {**instance.about, "construct_ms": 1e3 * (constructed_s - start_s)}
            binary = build_traced(source, options.device.partition(":")[2], options)
            right = tuple(expected(lineup))
            save(path, SavedCandidates(about=about, kernels=tuple(lineup), binary=binary, right=right), vdevice, veus)
    else:
        binary = device.build(source, options)
        if binary.device == CUDA:
            compile_source(source, binary.machine["architecture"], options, trace=True)
    return time.perf_counter() - constructed_s


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


def measured_saved(
    paths: Sequence[Path],
    known: Sequence[Outcome],
    vdevice: VDevice,
    options: CompileOptions,
    seconds: float,
    pool: Executor,
) -> list[Outcome]:
    """The outcomes of candidates that were saved, those that are `known` and as many others as `seconds` allow.

    Sources are made side by side. What computes something else is said, and left out; the first other error ends it.
    """
    outcomes = list(known)
    done = {_identity(one.model, one.name, one.tiles) for one in known}
    end_s = time.perf_counter() + seconds
    device = find_device(options.device)
    prepared = pool.map(partial(_prepared, vdevice=vdevice, options=options), paths)
    for path, (candidates, source) in zip(paths, prepared, strict=True):
        start_s = time.perf_counter()
        if start_s > end_s:
            break
        if _identity_of(candidates) in done:
            continue
        lineup, veus = list(candidates.kernels), _lineup((), vdevice)[1]
        try:
            loaded = device.load(source, candidates.binary, options)
            tasks_us = timed(lineup, loaded, vdevice, candidates.right, veus=veus)
        except VerificationError as error:
            _console.print(f"{path}: {error}")
            continue
        except DeviceError as error:
            _console.print(f"{path}: {error}")
            break
        profile_s = time.perf_counter() - start_s
        outcomes.append(_outcome(candidates.about, lineup, tasks_us, vdevice, profile_s))
    return outcomes


def _prepared(path: Path, vdevice: VDevice, options: CompileOptions) -> tuple[SavedCandidates, Source]:
    """Candidates that were saved, and their source."""
    candidates = read_candidates(path)
    veus = _lineup((), vdevice)[1]
    source = emit(candidates.kernels, find_device(options.device), vdevice, veus)
    return candidates, replace(source, files={name: bytes(data) for name, data in source.files.items()})


def predicted_again(paths: Iterable[Path], known: Sequence[Outcome], vdevice: VDevice) -> list[Outcome]:
    """Outcomes with what is predicted now, of candidates that were saved."""
    measured = {_identity(one.model, one.name, one.tiles): one for one in known}
    outcomes = []
    for candidates in map(read_candidates, paths):
        one = measured.get(_identity_of(candidates))
        if one is not None:
            pairs = zip(one.first_task_us, one.measured_task_us, strict=True)
            times_us = dict(zip(one.tiles, pairs, strict=True))
            tasks_us = [us for kernel in candidates.kernels[::2] for us in times_us[_tile(kernel)]]
            outcomes.append(_outcome(candidates.about, candidates.kernels, tasks_us, vdevice, one.profile_s))
    return outcomes


def _identity(model: str, name: str, tiles: Iterable[str]) -> tuple[str, str, frozenset[str]]:
    """What tells operators apart: names alone do not."""
    return model, name, frozenset(tiles)


def _identity_of(candidates: SavedCandidates) -> tuple[str, str, frozenset[str]]:
    return _identity(candidates.about["model"], candidates.about["name"], map(_tile, candidates.kernels))


def main() -> None:
    """Measure, print a table and leave JSON."""
    arguments = _arguments()
    options = CompileOptions(device=arguments.device, precision=arguments.precision)
    vdevice = find_device(options.device).describe(options)
    path = arguments.json or OUT / f"roller-{vdevice.kind}-{options.precision}.json"
    known = read(path) if arguments.resume or arguments.predict else []
    saved = sorted(arguments.saved.glob("*.npz")) if arguments.saved else []
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        if arguments.predict:
            outcomes = predicted_again(saved, known, vdevice)
        elif arguments.saved:
            outcomes = measured_saved(saved, known, vdevice, options, arguments.seconds, pool)
        else:
            chosen = instances(vdevice, arguments.operators, options, pool)
            if arguments.save:
                arguments.save.mkdir(parents=True, exist_ok=True)
            if not arguments.measure_only:
                build(chosen, vdevice, options, pool, arguments.save)
            if arguments.build_only or arguments.save:
                return
            outcomes = measured(chosen, known, vdevice, options, arguments.seconds)
    if not outcomes:
        raise SystemExit("nothing was measured")
    rows = [_row(kind, [one for one in outcomes if one.kind == kind]) for kind in sorted({o.kind for o in outcomes})]
    rows.append(_row("all", outcomes))
    _print(rows)
    if arguments.predict:
        return
    data = {**environment([]), "rows": rows, "operators": [asdict(one) for one in outcomes]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    _console.print(f"{len(outcomes)} operators, wrote {path}", soft_wrap=True)


def read(path: Path) -> list[Outcome]:
    """The outcomes that an earlier call has left."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["operators"]
    series = ("tiles", "predicted_us", "measured_us", "predicted_task_us", "measured_task_us", "first_task_us")
    return [Outcome(**{**one, **{name: tuple(one[name]) for name in series}}) for one in found]


def _row(kind: str, outcomes: Sequence[Outcome]) -> dict[str, float | str | None]:
    pooled = [pair for one in outcomes for pair in zip(one.predicted_us, one.measured_us, strict=True)]
    tasks = [pair for one in outcomes for pair in zip(one.predicted_task_us, one.measured_task_us, strict=True)]
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
        "error": _off_by(pooled),
        "spearman_task": spearman(*zip(*tasks, strict=True)) if len(tasks) > 2 else None,
        "error_task": _off_by(tasks),
    }


def _off_by(pairs: Sequence[tuple[float, float]]) -> float:
    """The factor between predicted and measured times, whichever is larger; the geometric mean."""
    return math.exp(statistics.fmean(abs(math.log(predicted / measured)) for predicted, measured in pairs))


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
        "Spearman, rTask",
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
    parser.add_argument(
        "--save", type=Path, metavar="FOLDER", help="compile for a GPU that is not here, and leave it there"
    )
    parser.add_argument("--saved", type=Path, metavar="FOLDER", help="measure that")
    parser.add_argument("--predict", action="store_true", help="or predict anew what the JSON file has of it")
    parser.add_argument("--jobs", type=int, default=1, help="processes that lower and compile")
    parser.add_argument("--measure-only", action="store_true", help="do not compile first: it was done before")
    parser.add_argument("--seconds", type=float, default=math.inf, help="measure no further operator after so long")
    parser.add_argument("--resume", action="store_true", help="go on after the operators that the JSON file has")
    parser.add_argument("--json", type=Path, metavar="FILE", help="by default one for each device and precision")
    return parser.parse_args()


if __name__ == "__main__":
    main()
