"""Whole training steps beside eager PyTorch and TorchInductor: `python -m benchmarks.training`.

A step is forward pass, loss, backward pass and update. Inductor compiles the whole step where Dynamo captures it, and
else in the parts that it finds. The contestants take turns, in one process on equally many threads. A line for each
network and batch: medians in microseconds, how often Rammer's fits into the best other one, the seconds that compiling
took, and the greatest difference of twenty losses from eager's, relative to them.

With `--device cuda` there is a CUDA graph of eager PyTorch's step, too, and one of Rammer's. Times are then those of a
step among many that the host gives to the GPU as fast as it can: of the GPU where that is the slower one.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import multiprocessing
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch

import rammer
from benchmarks.harness.clock import Clock, WallClock
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.gpu import gpu_facts
from benchmarks.training_networks import NETWORKS, SMALL, Loss

COMPARED_STEPS = 20
TOLERANCE = 1e-4
_TURN = 20  # calls
_WARMUP_TURNS = 2
_WARMUP_STEPS = 3  # before a capture

Step = Callable[..., torch.Tensor]

OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
}


def eager_step(loss_of: Loss, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """A step as PyTorch's tutorials write it."""

    def step(*data: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(module, *data)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def captured(step: Step, data: Sequence[torch.Tensor]) -> Step:
    """A step as a CUDA graph; its arguments are copied to where the graph reads them."""
    own = [tensor.clone() for tensor in data]
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARMUP_STEPS):
            step(*own)
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        loss = step(*own)

    def replay(*data: torch.Tensor) -> torch.Tensor:
        for place, tensor in zip(own, data, strict=True):
            place.copy_(tensor)
        graph.replay()
        return loss

    return replay


class QueueClock:
    """For steps that go on on the GPU when their calls return: what a step among many takes."""

    def time_us(self, run: Callable[[], object], count: int) -> list[float]:
        """The mean of `count` calls in microseconds."""
        torch.cuda.synchronize()
        start_ns = time.perf_counter_ns()
        for _ in range(count):
            run()
        torch.cuda.synchronize()
        return [(time.perf_counter_ns() - start_ns) / 1e3 / count]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One network at one batch.

    Attributes:
        times_us: medians by contestant.
        compile_s: seconds of compiling by contestant; Inductor's are those of its first call.
        disagreement: the greatest relative difference of Rammer's losses from eager's.
    """

    network: str
    optimizer: str
    batch: int
    times_us: Mapping[str, float]
    compile_s: Mapping[str, float]
    disagreement: float

    @property
    def ratio(self) -> float:
        """How often Rammer's better time fits into the best other one."""
        others = (us for name, us in self.times_us.items() if not name.startswith("rammer"))
        return min(others) / min(us for name, us in self.times_us.items() if name.startswith("rammer"))

    def __str__(self) -> str:
        times = "  ".join(f"{name} {us:7.0f}" for name, us in self.times_us.items())
        seconds = ", ".join(f"{name} {s:.1f} s" for name, s in self.compile_s.items())
        return (
            f"{self.network:12} {self.optimizer:5} batch {self.batch:3}  {times}  x{self.ratio:5.2f}"
            f"  compiled in {seconds}  losses within {self.disagreement:.1e}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network at one batch, and how its step is measured.

    Attributes:
        turns: of `_TURN` steps for each contestant.
        veus: of Rammer; None on a GPU.
    """

    network: str
    optimizer: str
    batch: int
    device: str
    turns: int
    veus: int | None
    inductor: bool

    def __str__(self) -> str:
        return f"{self.network}:{self.batch}:{self.optimizer}"


def prepared(case: Case) -> Callable[[], Row]:
    """Compile what takes part; what comes back compares twenty steps, and takes the times."""
    torch.manual_seed(0)
    training, make_optimizer = NETWORKS[case.network], OPTIMIZERS[case.optimizer]
    original = training.make().to(case.device)
    data = [[tensor.to(case.device) for tensor in training.data(case.batch)] for _ in range(COMPARED_STEPS)]
    steps: dict[str, Step] = {}
    compile_s: dict[str, float] = {}
    for contestant in ["rammer", "eager"] + ["inductor"] * case.inductor + ["eager graph"] * (case.device == "cuda"):
        module = copy.deepcopy(original)
        optimizer = make_optimizer(module.parameters())
        start = time.perf_counter()
        if contestant == "rammer":
            steps[contestant] = rammer.compile_step(
                training.loss, module, optimizer, case.device, args=data[0], veus=case.veus
            )
        else:
            for group in optimizer.param_groups if contestant == "eager graph" else ():
                group["capturable"] = True  # what Adam needs, others do not look at it
            steps[contestant] = eager_step(training.loss, module, optimizer)
        if contestant == "inductor":
            steps[contestant] = torch.compile(steps[contestant], dynamic=False)
            steps[contestant](*data[0])
        if contestant != "eager":
            compile_s[contestant] = time.perf_counter() - start
    return lambda: _measured(case, steps, data, compile_s)


def _measured(
    case: Case, steps: dict[str, Step], data: Sequence[Sequence[torch.Tensor]], compile_s: Mapping[str, float]
) -> Row:
    """Compare twenty steps, and take the times of many."""
    losses = {who: [steps[who](*each).item() for each in data] for who in ("rammer", "eager")}
    disagreement = max(abs(a / b - 1) for a, b in zip(losses["rammer"], losses["eager"], strict=True))
    on_gpu = case.device == "cuda"
    if on_gpu:
        steps["rammer graph"] = captured(steps["rammer"], data[0])
        steps["eager graph"] = captured(steps["eager graph"], data[0])
    clock: Clock = QueueClock() if on_gpu else WallClock()
    times_us: dict[str, list[float]] = {contestant: [] for contestant in steps}
    for turn in range(_WARMUP_TURNS + case.turns):
        for contestant, step in steps.items():
            taken_us = clock.time_us(lambda step=step: step(*data[0]), _TURN)  # type: ignore[misc]
            if turn >= _WARMUP_TURNS:
                times_us[contestant] += taken_us
    return Row(
        network=case.network,
        optimizer=case.optimizer,
        batch=case.batch,
        times_us={contestant: statistics.median(taken) for contestant, taken in times_us.items()},
        compile_s=compile_s,
        disagreement=disagreement,
    )


def _alone(case: Case) -> Row:
    """Compile beside others' compiling, and measure when nobody compiles any more, one after another."""
    set_up(case)
    try:
        measure = prepared(case)
    finally:
        with suppress(threading.BrokenBarrierError):  # one takes too long: the others go on
            _together.compiled.wait(_together.patience_s)
    with _together.measuring:
        return measure()


@dataclass(frozen=True, slots=True)
class _Together:
    """What processes that compile side by side share."""

    compiled: Any
    measuring: Any
    patience_s: float


_together: _Together


def _join(together: _Together) -> None:
    global _together  # noqa: PLW0603 - a pool hands such things to its processes once
    _together = together


def set_up(case: Case) -> None:
    """PyTorch's settings: float32 is float32 in convolutions, too."""
    torch.compiler.reset()
    torch.backends.cudnn.allow_tf32 = False
    if case.device == "cpu":
        torch.set_num_threads(case.veus or 1)


def side_by_side(cases: Sequence[Case], patience_s: float) -> Iterator[Row]:
    """Compile all in processes of their own at once, then measure one after another; a row as soon as it is there."""
    spawn = multiprocessing.get_context("spawn")
    together = _Together(spawn.Barrier(len(cases)), spawn.Lock(), patience_s)
    with ProcessPoolExecutor(len(cases), spawn, _join, (together,)) as pool:
        waiting = {pool.submit(_alone, case): case for case in cases}
        for done in as_completed(waiting):
            if (error := done.exception()) is None:
                yield done.result()
            else:
                print(f"{waiting[done]}: {type(error).__name__}: {str(error)[:300]}", flush=True)


def one_by_one(cases: Sequence[Case]) -> Iterator[Row]:
    """Compile and measure one after another."""
    for case in cases:
        set_up(case)
        yield prepared(case)()


def _cases(given: argparse.Namespace) -> list[Case]:
    """What is asked for: names with a batch and an optimiser of their own, or with all batches."""
    cases = []
    for named in given.networks or SMALL:
        name, *rest = named.split(":")
        for batch in [int(rest[0])] if rest else given.batches:
            cases.append(
                Case(
                    network=name,
                    optimizer=rest[1] if len(rest) > 1 else given.optimizer,
                    batch=batch,
                    device=given.device,
                    turns=given.turns,
                    veus=given.veus if given.device == "cpu" else None,
                    inductor=not given.no_inductor,
                )
            )
    return cases


def main() -> int:
    """Print a line for each case and the geometric mean of the ratios; 1 where losses disagree or a case fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "networks",
        nargs="*",
        metavar="NETWORK[:BATCH[:OPTIMIZER]]",
        help=f"of {', '.join(NETWORKS)}; {', '.join(SMALL)} by default",
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--veus", type=int, default=1, help="on the processor: of Rammer, and threads of PyTorch")
    parser.add_argument("--turns", type=int, default=10, help=f"of {_TURN} steps for each contestant")
    parser.add_argument("--no-inductor", action="store_true", help="eager alone: compiling takes minutes")
    parser.add_argument("--together", type=float, metavar="S", help="compile all at once, for so many seconds at most")
    given = parser.parse_args()
    cases = _cases(given)
    unknown = {case.network for case in cases} - set(NETWORKS)
    if unknown:
        parser.error(f"no network {', '.join(sorted(unknown))}")
    rows = []
    settings = environment([]) | {"torch": torch.__version__, "veus": given.veus, "turns": given.turns}
    settings |= gpu_facts() if given.device == "cuda" else {}
    OUT.mkdir(exist_ok=True)
    for row in side_by_side(cases, given.together) if given.together else one_by_one(cases):
        rows.append(row)
        print(row, flush=True)
        content = {"settings": settings, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
        (OUT / "training.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    print(f"geometric mean x{math.exp(statistics.fmean(math.log(row.ratio) for row in rows)):.2f}")
    return int(len(rows) < len(cases) or any(row.disagreement > TOLERANCE for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
