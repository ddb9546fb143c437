"""Models that are called together: one after another, as one program and, on a GPU, as two on streams of their own.

    python -m benchmarks.together --device cuda --models resnext,nasnet
    python -m benchmarks.together --device cpu --models lstm_tc,nasnet --small

Programs take turns; times are medians, in microseconds: on a GPU of the programs alone, by events, elsewhere of bound
calls. The programs on streams have an even share of the units each.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rammer
from benchmarks.harness.clock import Clock, WallClock
from benchmarks.networks import NETWORKS, SMALL
from rammer.runtime.arrays import random_inputs

ROUNDS = 10
CALLS = 15
Run = Callable[[], object]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a time for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", default="nasnet,nasnet", help="names of networks with commas between them")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--tune", default="none")
    parser.add_argument("--policy", default="wavefront")
    parser.add_argument("--small", action="store_true", help="networks of little work")
    chosen = parser.parse_args(arguments)
    built = {name: NETWORKS[name](seed=0, **(SMALL[name] if chosen.small else {})) for name in chosen.models.split(",")}
    models = [built[name] for name in chosen.models.split(",")]
    options = {"device": chosen.device, "precision": chosen.precision, "tune": chosen.tune, "policy": chosen.policy}
    on_gpu = chosen.device == "cuda"
    alone = {name: rammer.compile(model, **options) for name, model in built.items()}
    whole = rammer.compile(models, **options)
    runs = {f"{name} alone": _bound(net, on_gpu=on_gpu) for name, net in alone.items()}
    runs["one program"] = _bound(whole, on_gpu=on_gpu)
    if on_gpu:
        share = whole.report["device"]["veus"] // len(models)
        runs[f"programs of {share} units on streams"] = _on_streams(
            [rammer.compile(model, **options, veus=share) for model in models]
        )
    times_us = _times_us(runs, on_gpu=on_gpu)
    for name, time_us in times_us.items():
        print(f"{name}: {time_us:,.1f} us")
    sum_us = sum(times_us[f"{name} alone"] for name in chosen.models.split(","))
    print(f"one after another: {sum_us:,.1f} us; one program takes {times_us['one program'] / sum_us:.2f} of it")


def _times_us(runs: Mapping[str, Run], *, on_gpu: bool) -> dict[str, float]:
    """The median time of each run; they take turns."""
    clock: Clock = WallClock()
    if on_gpu:
        from benchmarks.harness.gpu import DeviceClock

        clock = DeviceClock()
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(1 + ROUNDS):  # the first warms up
        for name, run in runs.items():
            found[name].append(statistics.median(clock.time_us(run, CALLS)))
    return {name: statistics.median(times_us[1:]) for name, times_us in found.items()}


def _bound(net: rammer.Executable, *, on_gpu: bool, stream: object = None) -> Run:
    """Runs of a model on arrays that stay where they are."""
    inputs: Mapping[str, Any] = random_inputs(net.signature)
    if on_gpu:
        import torch

        inputs = {name: torch.from_numpy(array).cuda() for name, array in inputs.items()}
        return net.bind(inputs, stream=stream or torch.cuda.current_stream())
    return net.bind(inputs)


def _on_streams(nets: Sequence[rammer.Executable]) -> Run:
    """Runs of several models side by side, which PyTorch's current stream waits for."""
    import torch

    streams = [torch.cuda.Stream() for _ in nets]
    calls = [_bound(net, on_gpu=True, stream=stream) for net, stream in zip(nets, streams, strict=True)]

    def run() -> None:
        current = torch.cuda.current_stream()
        for stream, call in zip(streams, calls, strict=True):
            stream.wait_stream(current)
            call()
        for stream in streams:
            current.wait_stream(stream)

    return run


if __name__ == "__main__":
    main()
