"""Calls of one model from several threads: how many a second, beside one thread's.

    python -m benchmarks.side_by_side --network mobilenet --threads 2
    python -m benchmarks.side_by_side --network mobilenet --threads 16 --device cuda --precision fp16

On a processor the model has one vEU, so that each call takes one core: needs as many idle cores as threads. Rounds of
one thread and of several take turns, each as long as the others; the middle ratio counts. Inputs are NumPy arrays, or
(`--bound`, on a GPU) tensors of PyTorch in its memory that each thread has bound, with a stream of its own that it
waits for. With `--ahead` nobody waits: calls are given to the streams as long as their queues take them.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import rammer
from benchmarks.networks import NETWORKS
from rammer.runtime.arrays import random_inputs

ROUNDS = 5
ROUND_S = 1.0


def calls_a_second(calls: Sequence[Callable[[], object]], end: Callable[[], object]) -> float:
    """What a thread for each call does together with the others while a round lasts; `end` waits for what is left."""
    threads = len(calls)
    counts = [0] * threads
    together = threading.Barrier(threads + 1)
    end_s = [0.0]

    def work(number: int) -> None:
        together.wait()
        while time.perf_counter() < end_s[0]:
            calls[number]()
            counts[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    begin_s = time.perf_counter()
    end_s[0] = begin_s + ROUND_S
    together.wait()
    for worker in workers:
        worker.join()
    end()
    return sum(counts) / (time.perf_counter() - begin_s)


def bound(net: rammer.Executable, *, ahead: bool) -> Callable[[], object]:
    """A call on tensors and a stream of its own, in a GPU's memory; the result is waited for unless `ahead`."""
    import torch

    inputs = {name: torch.from_numpy(array).cuda() for name, array in random_inputs(net.signature).items()}
    stream = torch.cuda.Stream()
    run = net.bind(inputs, stream=stream)

    def call() -> None:
        run()
        stream.synchronize()

    return run if ahead else call


def ratios(net: rammer.Executable, threads: int, *, is_bound: bool = False, ahead: bool = False) -> list[float]:
    """Calls a second of so many threads over those of one, by round; prints both."""
    inputs = random_inputs(net.signature)
    calls = [bound(net, ahead=ahead) if is_bound else lambda: net.run(inputs) for _ in range(threads)]
    calls_a_second(calls, net.wait)  # makes the instances
    found = []
    for _ in range(ROUNDS):
        alone, together = calls_a_second(calls[:1], net.wait), calls_a_second(calls, net.wait)
        found.append(together / alone)
        print(f"1 thread {alone:,.1f} calls/s, {threads} threads {together:,.1f}: {found[-1]:.2f} times", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rates of each round, and the middle ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=NETWORKS, default="mobilenet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32", help="of a GPU's products")
    parser.add_argument("--bound", action="store_true", help="bound tensors in a GPU's memory")
    parser.add_argument("--ahead", action="store_true", help="with --bound: do not wait for results")
    chosen = parser.parse_args(arguments)
    net: rammer.Executable = rammer.compile(
        NETWORKS[chosen.network](),
        chosen.device,
        precision=chosen.precision,
        veus=1 if chosen.device == "cpu" else None,
    )
    middle = statistics.median(ratios(net, chosen.threads, is_bound=chosen.bound, ahead=chosen.ahead))
    print(f"{chosen.network}: {middle:.2f} times as many calls with {chosen.threads} threads")


if __name__ == "__main__":
    main()
