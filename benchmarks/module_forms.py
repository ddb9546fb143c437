"""A network as an ONNX model and as a PyTorch module: is the program as good? `python -m benchmarks.module_forms`.

Both are planned, not built, so no device is needed (`--device cuda:sm_90`). A line for each network: operators, rTasks
and predicted times of both, and how many times the ONNX form's the module's time is. Exit code 1 where it is more than
3 % longer. `--save FOLDER` leaves the programs of both there instead, and `--saved FOLDER` measures them on a GPU, in
turns; several processes may save, as compiling takes long.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

import rammer
import rammer.frontends.torch as torch_front_end
from benchmarks.harness.cases import SEED
from benchmarks.harness.gpu import DeviceClock
from benchmarks.networks import NETWORKS
from benchmarks.networks.builder import random_inputs
from benchmarks.networks.precision import ELEMENT_TYPES, converted
from benchmarks.networks.torch_modules import module_inputs, torch_module
from rammer.devices.registry import find_device
from rammer.frontends.dispatch import Example
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.options import CompileOptions, GivenInputs
from rammer.pipelines.planning import lower_graph
from rammer.roller.model import ModelCosts
from rammer.runtime.arrays import random_inputs as random_arrays
from rammer.schedule.policies import POLICIES
from rammer.schedule.simulator import simulate

MOST = 1.03
_ROUNDS, _CALLS = 6, 25
_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What a form became."""

    operators: int
    tasks: int
    predicted_us: float


def planned(graph: Graph, options: CompileOptions) -> Planned:
    """Lower and schedule a graph."""
    vdevice = find_device(options.device).describe(options)
    costs = ModelCosts(vdevice)
    tasks = lower_graph(graph, vdevice, options, Dump(None))
    schedule = POLICIES[options.policy](tasks, vdevice, costs)
    return Planned(
        operators=len(tasks.operators),
        tasks=sum(1 for program in schedule.programs for _ in program.tasks()),
        predicted_us=simulate(tasks, schedule, vdevice, costs).total_us,
    )


def measured(folder: Path) -> Iterator[tuple[str, float]]:
    """Each network's time as a module over that as an ONNX model, on the GPU, medians of runs in turns."""
    clock = DeviceClock()
    for path in sorted(folder.glob("*.onnx")):
        calls = {}
        for form in ("onnx", "module"):
            net = rammer.load(path.with_suffix(f".{form}"))
            arrays = random_arrays(net.signature)
            inputs = {name: torch.from_numpy(array).cuda() for name, array in arrays.items()}
            calls[form] = net.bind(inputs, stream=torch.cuda.current_stream())
        times_us: dict[str, list[float]] = {form: [] for form in calls}
        for _ in range(_ROUNDS):
            for form, call in calls.items():
                times_us[form] += clock.time_us(call, _CALLS)
        onnx_us, module_us = map(statistics.median, times_us.values())
        print(f"{path.stem:12} onnx {onnx_us:7.1f} us  module {module_us:7.1f}  x{module_us / onnx_us:.3f}", flush=True)
        yield path.stem, module_us / onnx_us


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.module_forms", description=__doc__)
    parser.add_argument("networks", nargs="*", default=["mobilenet", "resnet", "bert", "vit"])
    parser.add_argument("--device", default="cuda:sm_90")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="leave programs to measure there")
    parser.add_argument("--saved", type=Path, metavar="FOLDER", help="measure those, on a GPU")
    given = parser.parse_args()
    if given.saved:
        ratios = dict(measured(given.saved))
        return int(max(ratios.values()) > MOST)
    options = CompileOptions(device=given.device, precision=given.precision)
    slower = False
    for name in given.networks:
        model = NETWORKS[name](seed=SEED)
        module = torch_module(name, model)
        if given.precision in ELEMENT_TYPES:
            module, model = module.to(_DTYPES[given.precision]), converted(model, given.precision)
        inputs = module_inputs(name, random_inputs(model, SEED))
        if given.save:
            given.save.mkdir(parents=True, exist_ok=True)
            for form, net in (
                ("onnx", rammer.compile(model, given.device, precision=given.precision)),
                ("module", rammer.compile(module, given.device, args=inputs, precision=given.precision)),
            ):
                net.save(given.save / f"{name}.{form}")
            continue
        imported = torch_front_end.load_model(module, Example(args=inputs), GivenInputs())
        of_onnx = planned(load_graph(model, input_shapes={}), options)
        of_module = planned(imported.graph, options)
        ratio = of_module.predicted_us / of_onnx.predicted_us
        slower |= ratio > MOST
        print(f"{name:12} onnx {of_onnx}  module {of_module}  x{ratio:.3f}", flush=True)
    return int(slower)


if __name__ == "__main__":
    raise SystemExit(main())
