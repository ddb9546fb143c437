"""What a call costs the host on a GPU, beside the driver's own part of it: `python -m benchmarks.calls --help`.

The model is one product. The driver's part is what any program would ask it for: the launch of a kernel that does
nothing, of as many blocks and threads; for NumPy arrays also the copy of the input and the wait, while results are
written into the host's memory by the kernel. A call that waits for the model's kernel waits longer than for one that
does nothing: that is told apart, by CUDA events. Calls and the driver's part take turns; the GPU is idle when a turn
begins, and a turn is too short to fill its queue.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx

import rammer
from benchmarks.harness.clock import WallClock
from benchmarks.harness.contestant import installed_version
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.gpu import DeviceClock, gpu_facts
from benchmarks.harness.ours_gpu import RammerOnGpu
from benchmarks.networks.builder import GraphBuilder
from rammer.devices.cpu.machine import read_machine
from rammer.devices.cuda.describe import MULTIPROCESSOR_THREADS
from rammer.devices.cuda.driver import LEGACY_STREAM, check, find_driver, read_gpu
from rammer.devices.cuda.kernel import load_kernel
from rammer.devices.cuda.memory import Memory
from rammer.devices.cuda.toolchain import find_toolchain

_WIDTH = 64
_BYTES = 4 * _WIDTH  # of an input, and of an output
_TURN = 50  # calls; a GPU's queue has room for some hundred
_WARMUP_TURNS = 10
_NOTHING = 'extern "C" __global__ void rammer_run() {}'
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_VERSIONS = ("torch", "cuda-bindings", "cuda-core")

Call = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """Host time of one way to call a model, in microseconds.

    Attributes:
        arrays: the way: what goes in and where results go.
        call_us: median of the call.
        driver_us: median of the driver's part alone.
        model_us: what the call waits for the model's kernel longer than the driver's part for its own.
    """

    arrays: str
    call_us: float
    driver_us: float
    model_us: float

    @property
    def own_us(self) -> float:
        """What the call adds to the driver's and the GPU's time."""
        return self.call_us - self.driver_us - self.model_us


def call_cost(arrays: str, call: Call, driver: Call, settle: Call, turns: int, *, model_us: float = 0.0) -> CallCost:
    """Time a call and the driver's part of it in turns; `settle` waits until the GPU is idle.

    `model_us` is what the call waits for the model's kernel longer than the driver's part for its own.
    """
    clock = WallClock()
    times_us: tuple[list[float], list[float]] = ([], [])
    for turn in range(_WARMUP_TURNS + turns):
        for run, kept_us in zip((call, driver), times_us, strict=True):
            taken_us = clock.time_us(run, _TURN)
            settle()
            if turn >= _WARMUP_TURNS:
                kept_us += taken_us
    call_us, driver_us = map(statistics.median, times_us)
    return CallCost(arrays=arrays, call_us=call_us, driver_us=driver_us, model_us=model_us)


def call_costs(turns: int) -> Iterator[CallCost]:
    """Measure each way to call the model.

    Raises:
        DeviceUnavailableError: there is no GPU.
    """
    import torch

    net = rammer.compile(_product(), "cuda")
    array = np.ones((1, _WIDTH), np.float32)
    x = torch.from_numpy(array).cuda()
    y = torch.empty_like(x)
    part = DriverPart()
    settle = torch.cuda.synchronize
    yield call_cost("tensor in, fresh results", lambda: net(x), part.launch, settle, turns)

    def given() -> None:
        net.run({"x": x}, outputs={"y": y})

    yield call_cost("tensor in, given outputs", given, part.launch, settle, turns)
    yield call_cost("tensors bound once", net.bind({"x": x}, outputs={"y": y}), part.launch, settle, turns)
    on_gpu = DeviceClock()
    model_us, nothing_us = (statistics.median(on_gpu.time_us(run, _TURN)) for run in (given, part.launch))
    longer_us = model_us - nothing_us
    copying: dict[str, Call] = {"NumPy in and out": lambda: net(array), "NumPy bound once": net.bind({"x": array})}
    for arrays, call in copying.items():
        yield call_cost(arrays, call, part.copy_and_launch, settle, turns, model_us=longer_us)


class DriverPart:
    """What a call asks the driver for, without Rammer: NVIDIA's bindings, given what was made before.

    Attributes:
        launch: launches a kernel that does nothing, on the default stream.
    """

    def __init__(self) -> None:
        driver = find_driver()
        driver.enter()
        api, gpu, self._memory = driver.api, read_gpu(driver), Memory(driver)
        kernel = load_kernel(
            driver,
            self._memory,
            find_toolchain().cubin(_NOTHING, gpu.architecture),
            architecture=gpu.architecture,
            blocks=gpu.multiprocessors,
            threads=MULTIPROCESSOR_THREADS,
            scratch_bytes=0,
        )
        stream = self._memory.own("cuStreamDestroy", driver.call("cuStreamCreate", _NON_BLOCKING))
        on_host, on_gpu = self._memory.pinned(_BYTES).ctypes.data, self._memory.device(_BYTES)
        self.launch: Call = partial(kernel.launch, LEGACY_STREAM, 0)
        self._steps = (
            partial(api.cuMemcpyHtoDAsync, on_gpu, on_host, _BYTES, stream),
            partial(kernel.launch, stream, 0),
            partial(api.cuStreamSynchronize, stream),
        )
        for step in (self.launch, *self._steps):
            check(api, "the driver's part of a call", step())

    def copy_and_launch(self) -> None:
        """Copy an input, launch a kernel that does nothing and wait."""
        for step in self._steps:
            step()


def main() -> None:
    """Measure, print a table and leave JSON."""
    arguments = _arguments()
    costs = list(call_costs(arguments.turns))
    settings = environment([RammerOnGpu(device="cuda", policy="wavefront", precision="fp32", veus=0)]) | gpu_facts()
    data = {
        **settings,
        "processor": read_machine().name,
        "packages": {name: installed_version(name) for name in _VERSIONS},
        "calls": _TURN * arguments.turns,
        "costs": [{**asdict(cost), "own_us": cost.own_us} for cost in costs],
    }
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    print(table(costs))
    print(f"wrote {arguments.json}")


def table(costs: Sequence[CallCost]) -> str:
    """The figures as text, in microseconds."""
    lines = ["{:<26}{:>8}{:>8}{:>14}{:>14}".format("us", "call", "driver", "model on GPU", "Rammer's own")]
    lines += [
        f"{cost.arrays:<26}{cost.call_us:>8.1f}{cost.driver_us:>8.1f}{cost.model_us:>14.1f}{cost.own_us:>14.1f}"
        for cost in costs
    ]
    return "\n".join(lines)


def _product() -> onnx.ModelProto:
    builder = GraphBuilder("product")
    x = builder.input("x", (1, _WIDTH))
    weights = builder.parameter("weights", np.eye(_WIDTH, dtype=np.float32))
    return builder.build(builder.node("MatMul", "y", [x, weights], (1, _WIDTH)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--turns", type=int, default=200, help=f"of {_TURN} calls each (default: 200)")
    parser.add_argument("--json", type=Path, default=OUT / "calls-cuda.json", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
