"""Run networks on a GPU many times: the same bits each time, no hang. `python -m benchmarks.stress --help`.

Some inputs take turns, so that whatever is left of the run before would show. Arrays are PyTorch's, many runs are on
their way at a time, and matrix products of PyTorch run beside them. With `--delays` any warp stands still now and then.
`--alone` does without PyTorch and other work, one run at a time; `--small` makes networks of little work, for tools:

    compute-sanitizer --tool memcheck python -m benchmarks.stress --small --alone --runs 3
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.gpu import gpu_facts
from benchmarks.harness.ours_gpu import RammerOnGpu
from benchmarks.networks import NETWORKS, PAPER, SMALL
from benchmarks.networks.builder import Array, random_inputs
from rammer.options import CompileOptions
from rammer.pipelines.kinds import compile_with
from rammer.runtime.executable import Executable

_ON_THEIR_WAY = 50  # runs that are given to the GPU before their results are looked at
_INPUTS = 3  # that take turns
_ROWS = 2048  # of the other work's matrices

Batch = Callable[[int], Iterator[Mapping[str, Any]]]
"""Given a number of runs, their results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A network's runs: how many gave other bits than the first of their input, and how long all took in seconds."""

    network: str
    runs: int
    different: int
    seconds: float


def stress(network: str, runs: int, *, small: bool, alone: bool, delays: bool, policy: str) -> Outcome:
    """Run a network.

    Raises:
        RunTimeoutError: a run stopped making progress.
    """
    model = NETWORKS[network](**SMALL[network] if small else {})
    net = compile_with(model, CompileOptions(device="cuda", policy=policy, delays=delays))
    given = [random_inputs(model, seed=seed) for seed in range(_INPUTS)]
    expected = [_bits(net.run(inputs)) for inputs in given]
    batch = _one_by_one(net, given) if alone else _in_flight(net, given)
    start_s = time.perf_counter()
    different = 0
    for first in range(0, runs, _ON_THEIR_WAY):
        results = enumerate(batch(min(_ON_THEIR_WAY, runs - first)))
        different += sum(_bits(found) != expected[i % _INPUTS] for i, found in results)
    return Outcome(network=network, runs=runs, different=different, seconds=time.perf_counter() - start_s)


def _bits(results: Mapping[str, Any]) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in results.values()]


def _one_by_one(net: Executable, given: Sequence[Mapping[str, Any]]) -> Batch:
    return lambda count: (net.run(given[i % _INPUTS]) for i in range(count))


def _in_flight(net: Executable, given: Sequence[Mapping[str, Array]]) -> Batch:
    import torch

    tensors = [{name: torch.from_numpy(array).cuda() for name, array in inputs.items()} for inputs in given]
    one_by_one = _one_by_one(net, tensors)
    return lambda count: iter(list(one_by_one(count)))


@contextmanager
def _other_work() -> Iterator[None]:
    """Matrix products on a stream of their own, one after another."""
    import torch

    ended = threading.Event()

    def work() -> None:
        a = torch.randn(_ROWS, _ROWS, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            while not ended.is_set():
                for _ in range(10):
                    torch.mm(a, a)
                torch.cuda.current_stream().synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main() -> int:
    """Run the networks; 1 where any run gave other bits."""
    arguments = _arguments()
    outcomes = []
    with nullcontext() if arguments.alone else _other_work():
        for network in arguments.networks:
            outcome = stress(
                network,
                arguments.runs,
                small=arguments.small,
                alone=arguments.alone,
                delays=arguments.delays,
                policy=arguments.policy,
            )
            outcomes.append(outcome)
            verdict = f"{outcome.different} with other bits" if outcome.different else "all with the same bits"
            print(f"{network}: {outcome.runs:,} runs in {outcome.seconds:.1f} s, {verdict}", flush=True)
    settings = (
        environment([RammerOnGpu(device="cuda", policy=arguments.policy, precision="fp32", veus=0)]) | gpu_facts()
    )
    beside = "nothing" if arguments.alone else f"float32 products of {_ROWS} x {_ROWS} matrices"
    data = {
        **settings,
        "beside": beside,
        "small": arguments.small,
        "delays": arguments.delays,
        "outcomes": [asdict(one) for one in outcomes],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    return int(any(outcome.different for outcome in outcomes))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stress", description=__doc__)
    parser.add_argument("--networks", nargs="*", choices=list(NETWORKS), default=list(PAPER))
    parser.add_argument("--policy", default="wavefront")
    parser.add_argument("--runs", type=int, default=10_000, help="of each network (default: 10,000)")
    parser.add_argument("--small", action="store_true", help="networks of little work")
    parser.add_argument("--alone", action="store_true", help="no other work, no PyTorch, one run at a time")
    parser.add_argument("--delays", action="store_true", help="any warp stands still now and then")
    parser.add_argument("--json", type=Path, default=OUT / "stress-cuda.json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
