"""What `rammer.adapt` gains on a GPU, after how many calls, and what it does to calls meanwhile.

    python -m benchmarks.adapting --device cuda --networks nasnet,resnext,alexnet --bits any --out adapting.json

Each network is called by real inputs until nothing is tried any more, by a process of its own; on the GPU they take
turns. Every output is compared with that of the program of the policy `wavefront`, bit for bit. Then the program that
was kept and those of some policies are timed in turns.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import rammer
from benchmarks.harness.cases import build_case
from benchmarks.harness.gpu import DeviceClock
from benchmarks.networks.builder import random_inputs
from benchmarks.networks.torch_modules import as_tensor
from rammer.runtime.adaptive import AdaptiveModel
from rammer.runtime.executable import Executable

_INPUTS = 8
_WAYS = 3  # to time a call
_CHUNK, _FEW = 40, 8  # calls while a process has the GPU, with programs compared and without
_IDLE_S = 0.05  # between those without
_ROUNDS, _RUNS = 9, 25


@dataclass(slots=True, kw_only=True)
class Calls:
    """Calls that were made while the model was in one state.

    `device_us` are the times of their runs on the GPU, `synchronous_us` those of calls with the wait for their end, and
    `host_us` those of calls alone, one after another.
    """

    device_us: list[float] = field(default_factory=list)
    synchronous_us: list[float] = field(default_factory=list)
    host_us: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        """Medians and the greatest of each."""
        found: dict[str, float] = {"calls": sum(map(len, asdict(self).values()))}
        for name, times in asdict(self).items():
            if times:
                found |= {name: statistics.median(times), f"slowest {name}": max(times)}
        return found


class Caller:
    """Calls a model by inputs in the GPU's memory, and compares what it gives."""

    def __init__(self, reference: Executable, model: onnx.ModelProto) -> None:
        import torch

        self._torch = torch
        self._clock = DeviceClock()
        self._inputs = [
            {name: as_tensor(array).cuda() for name, array in random_inputs(model, seed=seed).items()}
            for seed in range(_INPUTS)
        ]
        self._wanted = [self._bits(reference.run(inputs)) for inputs in self._inputs]
        self._next = self._mode = 0
        self.differing = 0
        self.greatest_difference = 0.0

    def call(self, model: AdaptiveModel, calls: Calls, count: int) -> None:
        """Call a model so many times, timed in one of the ways, which come in turns."""
        ways = (self._by_device, self._synchronously, self._alone)
        self._mode = (self._mode + 1) % len(ways)
        results = []
        for _ in range(count):
            self._next = (self._next + 1) % _INPUTS
            results.append((self._next, ways[self._mode](model, calls)))
        self._torch.cuda.synchronize()
        for number, result in results:
            for found, wanted in zip(self._bits(result), self._wanted[number], strict=True):
                if not np.array_equal(found.view(np.uint8), wanted.view(np.uint8)):
                    self.differing += 1
                    difference = float(np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max())
                    self.greatest_difference = max(self.greatest_difference, difference)

    def _by_device(self, model: AdaptiveModel, calls: Calls) -> dict[str, Any]:
        found = {}

        def run() -> None:
            found.update(self._run(model))

        calls.device_us += self._clock.time_us(run, 1)
        return found

    def _synchronously(self, model: AdaptiveModel, calls: Calls) -> dict[str, Any]:
        begin_s = time.perf_counter()
        found = self._run(model)
        self._torch.cuda.synchronize()
        calls.synchronous_us.append(1e6 * (time.perf_counter() - begin_s))
        return found

    def _alone(self, model: AdaptiveModel, calls: Calls) -> dict[str, Any]:
        begin_s = time.perf_counter()
        found = self._run(model)
        calls.host_us.append(1e6 * (time.perf_counter() - begin_s))
        return found

    def _run(self, model: AdaptiveModel) -> dict[str, Any]:
        return model.run(self._inputs[self._next], stream=self._torch.cuda.current_stream())

    @staticmethod
    def _bits(results: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
        return [np.ascontiguousarray(array.numpy()) for array in results.values()]


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """With the GPU for this process alone."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def compile_policy(network: str, policy: str, device: str, precision: str, path: str) -> str:
    """Compile a network by a policy into a file."""
    rammer.compile(build_case(network, precision).model, device, policy=policy, precision=precision).save(path)
    return path


def measure(network: str, chosen: argparse.Namespace, folder: str) -> dict[str, Any]:
    """All there is to say about a network."""
    lock, begin_s = Path(folder) / "lock", time.perf_counter()
    policies = dict.fromkeys(["wavefront", *chosen.policies.split(",")])
    with ProcessPoolExecutor(len(policies), get_context("spawn")) as pool:
        files: dict[str, Future[str]] = {
            policy: pool.submit(
                compile_policy, network, policy, chosen.device, chosen.precision, f"{folder}/{network}.{policy}"
            )
            for policy in policies
        }
        case = build_case(network, chosen.precision)
        model = rammer.adapt(
            case.model, chosen.device, precision=chosen.precision, bits=chosen.bits, budget_runs=chosen.budget_runs
        )
        reference = rammer.load(files["wavefront"].result())
        with alone(lock):
            caller = Caller(reference, case.model)
        states = {"building": Calls(), "trying": Calls(), "settled": Calls()}
        called_s = time.perf_counter()
        _settle(model, caller, states, lock, called_s + chosen.deadline_s)
        settled_s = time.perf_counter()
        best = model.freeze()
        with alone(lock):
            for _ in range(5 * _WAYS):
                caller.call(model, states["settled"], _CHUNK)
        programs = {policy: rammer.load(file.result()) for policy, file in files.items()}
    with alone(lock):
        times_us = in_turns({**programs, "adapted": best}, case.model)
    return {
        "network": network,
        "bits": chosen.bits,
        "compiled_s": called_s - begin_s,
        "settled_s": settled_s - called_s,
        "history": [asdict(outcome) for outcome in model.history],
        "calls": {name: calls.summary() for name, calls in states.items()},
        "outputs that differ": caller.differing,
        "greatest difference": caller.greatest_difference,
        "in turns, us": times_us,
    }


def _settle(model: AdaptiveModel, caller: Caller, states: dict[str, Calls], lock: Path, deadline_s: float) -> None:
    """Call until nothing is tried any more."""
    while not model.is_settled and time.perf_counter() < deadline_s:
        state, count = ("trying", _CHUNK) if model.is_trying else ("building", _FEW)
        with alone(lock):
            caller.call(model, states[state], count)
        if not model.is_trying:
            time.sleep(_IDLE_S)


def in_turns(programs: dict[str, Executable], model: onnx.ModelProto) -> dict[str, float]:
    """The median device time of each program, in us."""
    import torch

    clock, times_us = DeviceClock(), {name: [] for name in programs}  # type: ignore[var-annotated]
    inputs = {name: as_tensor(array).cuda() for name, array in random_inputs(model, seed=0).items()}
    calls: dict[str, Callable[[], object]] = {
        name: program.bind(inputs, stream=torch.cuda.current_stream()) for name, program in programs.items()
    }
    for number in range(_ROUNDS):
        for name, call in calls.items():
            found_us = clock.time_us(call, _RUNS)
            if number:  # the first warms up
                times_us[name] += found_us
    return {name: statistics.median(times) for name, times in times_us.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--networks", default="nasnet,resnext,alexnet")
    parser.add_argument("--policies", default="critical-path,ios-tiles", help="timed beside wavefront")
    parser.add_argument("--bits", default="any")
    parser.add_argument("--budget-runs", type=int, default=2000)
    parser.add_argument("--deadline-s", type=float, default=1e9, help="after which no more is tried")
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args(arguments)
    networks = chosen.networks.split(",")
    with tempfile.TemporaryDirectory() as folder:
        runs = [(network, bits) for network in networks for bits in chosen.bits.split(",")]
        with ProcessPoolExecutor(len(runs), get_context("spawn")) as pool:
            found = [
                pool.submit(measure, network, argparse.Namespace(**{**vars(chosen), "bits": bits}), folder)
                for network, bits in runs
            ]
            results = [one.result() for one in found]
    text = json.dumps(results, indent=1)
    print(text)
    if chosen.out is not None:
        chosen.out.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
