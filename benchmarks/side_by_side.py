"""Calls of one model from several threads: how many a second, beside one thread's.

    python -m benchmarks.side_by_side --network mobilenet --threads 2
    python -m benchmarks.side_by_side --network mobilenet --threads 16 --device cuda --precision fp16

On a processor the model has one vEU, so that each call takes one core: needs as many idle cores as threads. Rounds of
one thread and of several take turns, each as long as the others; the middle ratio counts. Inputs are NumPy arrays.
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


def calls_a_second(call: Callable[[], object], threads: int) -> float:
    """What so many threads do together while a round lasts."""
    counts = [0] * threads
    together = threading.Barrier(threads + 1)
    end_s = [0.0]

    def work(number: int) -> None:
        together.wait()
        while time.perf_counter() < end_s[0]:
            call()
            counts[number] += 1

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    begin_s = time.perf_counter()
    end_s[0] = begin_s + ROUND_S
    together.wait()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - begin_s)


def ratios(net: rammer.Executable, threads: int) -> list[float]:
    """Calls a second of so many threads over those of one, by round; prints both."""
    inputs = random_inputs(net.signature)

    def call() -> object:
        return net.run(inputs)

    calls_a_second(call, threads)  # makes the instances
    found = []
    for _ in range(ROUNDS):
        alone, together = calls_a_second(call, 1), calls_a_second(call, threads)
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
    chosen = parser.parse_args(arguments)
    net: rammer.Executable = rammer.compile(
        NETWORKS[chosen.network](),
        chosen.device,
        precision=chosen.precision,
        veus=1 if chosen.device == "cpu" else None,
    )
    middle = statistics.median(ratios(net, chosen.threads))
    print(f"{chosen.network}: {middle:.2f} times as many calls with {chosen.threads} threads")


if __name__ == "__main__":
    main()
