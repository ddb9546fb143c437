"""Networks in int8 on an NVIDIA GPU, beside our own fp16 and float32.

    python -m benchmarks.quantised_gpu --networks mobilenet resnet bert

The models are those of `benchmarks.quantised`: ONNX Runtime's static quantiser makes them, as QDQ. In fp16 the network
itself is of float16. They take turns in one process; times are of the GPU alone, by CUDA events, medians in
microseconds. Printed are also how many rOperators multiply bytes, and how far int8's results are from float32's; with
`--trace` what the rTasks of each rOperator of int8 took in the quickest of some runs, beside what was predicted.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.harness.cases import Case, build_case
from benchmarks.harness.gpu import DeviceClock
from benchmarks.harness.kept import Kept
from benchmarks.harness.measure import Timing, in_turns
from benchmarks.harness.ours_gpu import RammerOnGpu
from benchmarks.quantised import case_of
from rammer.devices.registry import find_device
from rammer.inspection.timeline import bars
from rammer.ir.kernel_form import Instruction
from rammer.options import CompileOptions
from rammer.runtime.executable import Executable

DEFAULT = ("mobilenet", "resnet", "bert")
_TRACES = 5


def contestant(form: str, device: str) -> RammerOnGpu:
    """Rammer for a form; what int8 does not multiply in bytes is float32."""
    veus = find_device(device).describe(CompileOptions(device=device)).veu_count
    return RammerOnGpu(policy="wavefront", device=device, precision="fp16" if form == "fp16" else "fp32", veus=veus)


def cases_of(name: str, kept: Kept) -> dict[str, Case]:
    """A network by form."""
    return {"int8": case_of(name, kept), "fp16": build_case(name, "fp16"), "fp32": build_case(name)}


def measured(cases: Mapping[str, Case], device: str, rounds: int) -> tuple[dict[str, Timing], float]:
    """Times by form, and the relative difference of int8's results from float32's."""
    prepared = {form: contestant(form, device).prepare(case) for form, case in cases.items()}
    found, wanted = (prepared[form].outputs()[0].astype(np.float64) for form in ("int8", "fp32"))
    times_us = in_turns(prepared, DeviceClock(), rounds, lambda number: None)
    off = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
    return {form: Timing.of(times) for form, times in times_us.items()}, off


def line(name: str, timings: Mapping[str, Timing], off: float, net: Executable) -> str:
    """The figures of a network."""
    times = ", ".join(f"{form} {timing.median_us:.1f} us" for form, timing in timings.items())
    operators = net.report["operators"]
    details = [one["candidates"][one["chosen"]]["details"] for one in operators]
    of_bytes = sum(Instruction.MMA_I8 in text for text in details)
    return f"{name}: {times}; {of_bytes} of {len(operators)} rOperators multiply bytes; off float32 by {off:.1e}"


def traced(net: Executable, case: Case) -> Iterator[str]:
    """For each rOperator its rTasks, and what one of them took and was predicted to take."""
    run = min((net.trace(case.inputs) for _ in range(_TRACES)), key=lambda one: one.total_us)
    times_us: dict[int, list[float]] = {}
    for bar in bars(net.report, run.spans_ns):
        if bar.operator is not None:
            times_us.setdefault(bar.operator, []).append(bar.duration_us)
    for number, operator in enumerate(net.report["operators"]):
        chosen = operator["candidates"][operator["chosen"]]
        form = f"{chosen['skeleton']} {'x'.join(map(str, chosen['task']))}, {chosen['details']}"
        took = f"{mean(times_us[number]):.2f} us, predicted {chosen['predicted_us']:.2f}"
        yield f"  {operator['name']}: {chosen['tasks']} of {form}: {took}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=DEFAULT, metavar="NETWORK")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--keep", type=Path, help="a folder for quantised models, which take minutes to make")
    parser.add_argument("--trace", action="store_true", help="list what rTasks took")
    chosen = parser.parse_args(arguments)
    for name in chosen.networks:
        cases = cases_of(name, Kept(chosen.keep))
        timings, off = measured(cases, chosen.device, chosen.rounds)
        net = contestant("int8", chosen.device).compiled(cases["int8"])
        print(line(name, timings, off, net), flush=True)
        if chosen.trace:
            print(*traced(net, cases["int8"]), sep="\n", flush=True)


if __name__ == "__main__":
    main()
