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
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

import rammer
from benchmarks.harness.clock import Clock, WallClock
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.gpu import gpu_facts

CLASSES, LENGTH = 10, 8
COMPARED_STEPS = 20
TOLERANCE = 1e-4
_TURN = 20  # calls
_WARMUP_TURNS = 2
_WARMUP_STEPS = 3  # before a capture

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Recurrent(torch.nn.Module):
    """A recurrent layer, whose last output is classified."""

    def __init__(self, kind: type[torch.nn.Module], features: int, width: int) -> None:
        super().__init__()
        self.layer = kind(features, width, batch_first=True)
        self.head = torch.nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Transformer(torch.nn.Module):
    """Two layers of attention over tokens, whose mean is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(64, 64)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(64, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(x)).mean(1))


def cnn() -> torch.nn.Module:
    """Two convolutions over an image of 28 x 28."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 16, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(400, CLASSES),
    )


def mlp() -> torch.nn.Module:
    """Two hidden layers of 64."""
    layers = [torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, CLASSES))


NETWORKS: Mapping[str, tuple[Callable[[], torch.nn.Module], Callable[[int], torch.Tensor]]] = {
    "mlp": (mlp, lambda batch: torch.randn(batch, 8)),
    "cnn": (cnn, lambda batch: torch.randn(batch, 1, 28, 28)),
    "lstm": (lambda: Recurrent(torch.nn.LSTM, 16, 64), lambda batch: torch.randn(batch, LENGTH, 16)),
    "gru": (lambda: Recurrent(torch.nn.GRU, 16, 64), lambda batch: torch.randn(batch, LENGTH, 16)),
    "transformer": (Transformer, lambda batch: torch.randint(0, 64, (batch, 16))),
}
OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
}


def loss_of(module: torch.nn.Module, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """What is trained."""
    return torch.nn.functional.cross_entropy(module(x), target)


def eager_step(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """A step as PyTorch's tutorials write it."""

    def step(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(module, x, target)
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

    def replay(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for place, tensor in zip(own, (x, target), strict=True):
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


def measured(
    name: str, optimizer: str, batch: int, *, turns: int, device: str, veus: int | None, inductor: bool
) -> Row:
    """Time a network's step, after twenty steps that are compared."""
    torch.manual_seed(0)
    on_gpu = device == "cuda"
    make, inputs = NETWORKS[name]
    original, make_optimizer = make().to(device), OPTIMIZERS[optimizer]
    data = [
        (inputs(batch).to(device), torch.randint(0, CLASSES, (batch,), device=device)) for _ in range(COMPARED_STEPS)
    ]
    steps: dict[str, Step] = {}
    compile_s: dict[str, float] = {}
    contestants = ["rammer", "eager"] + ["inductor"] * inductor + ["rammer graph", "eager graph"] * on_gpu
    for contestant in contestants:
        module = copy.deepcopy(original)
        optimizer_ = make_optimizer(module.parameters())
        start = time.perf_counter()
        if contestant.startswith("rammer"):
            steps[contestant] = rammer.compile_step(loss_of, module, optimizer_, device, args=data[0], veus=veus)
        else:
            for group in optimizer_.param_groups if contestant == "eager graph" else ():
                group["capturable"] = True  # what Adam needs, others do not look at it
            steps[contestant] = eager_step(module, optimizer_)
        if contestant == "inductor":
            steps[contestant] = torch.compile(steps[contestant], dynamic=False)
            steps[contestant](*data[0])
        if contestant.endswith("graph"):
            steps[contestant] = captured(steps[contestant], data[0])
        if contestant != "eager":
            compile_s[contestant] = time.perf_counter() - start
    losses = {who: [steps[who](*each).item() for each in data] for who in ("rammer", "eager")}
    disagreement = max(abs(a / b - 1) for a, b in zip(losses["rammer"], losses["eager"], strict=True))
    clock: Clock = QueueClock() if on_gpu else WallClock()
    times_us: dict[str, list[float]] = {contestant: [] for contestant in steps}
    for turn in range(_WARMUP_TURNS + turns):
        for contestant, step in steps.items():
            taken_us = clock.time_us(lambda step=step: step(*data[0]), _TURN)  # type: ignore[misc]
            if turn >= _WARMUP_TURNS:
                times_us[contestant] += taken_us
    return Row(
        network=name,
        optimizer=optimizer,
        batch=batch,
        times_us={contestant: statistics.median(taken) for contestant, taken in times_us.items()},
        compile_s=compile_s,
        disagreement=disagreement,
    )


def main() -> int:
    """Print a line for each case and the geometric mean of the ratios; 1 where losses disagree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--veus", type=int, default=1, help="on the processor: of Rammer, and threads of PyTorch")
    parser.add_argument("--turns", type=int, default=10, help=f"of {_TURN} steps for each contestant")
    parser.add_argument("--no-inductor", action="store_true", help="eager alone: compiling takes minutes")
    given = parser.parse_args()
    unknown = set(given.networks) - set(NETWORKS)
    if unknown:
        parser.error(f"no network {', '.join(sorted(unknown))}")
    torch.set_num_threads(given.veus)
    rows = []
    for name in given.networks or NETWORKS:
        for batch in given.batches:
            torch.compiler.reset()
            row = measured(
                name,
                given.optimizer,
                batch,
                turns=given.turns,
                device=given.device,
                veus=given.veus if given.device == "cpu" else None,
                inductor=not given.no_inductor,
            )
            rows.append(row)
            print(row, flush=True)
    print(f"geometric mean x{math.exp(statistics.fmean(math.log(row.ratio) for row in rows)):.2f}")
    settings = environment([]) | {"torch": torch.__version__, "veus": given.veus, "turns": given.turns}
    settings |= gpu_facts() if given.device == "cuda" else {}
    OUT.mkdir(exist_ok=True)
    content = {"settings": settings, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
    (OUT / "training.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
    return int(any(row.disagreement > TOLERANCE for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
