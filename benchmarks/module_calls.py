"""What a call of a compiled PyTorch module costs the host: `python -m benchmarks.module_calls --help`.

The module is one linear layer for one row. `guards` is `torch.compile` with a backend whose graph gives a tensor that
was made before, so what is left is Dynamo's; `AOTAutograd` is the same behind PyTorch's own layer for backends, and
`plain` runs the graph as Dynamo found it. `floor` makes room for a result and, on a GPU, launches a kernel that does
nothing: what any backend has to do. All take turns. On a GPU a turn is too short to fill its queue, which is empty as
it begins, and `driver` is that launch alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.backends.common import aot_autograd

import rammer
from benchmarks.harness.clock import WallClock
from benchmarks.harness.environment import OUT, environment
from benchmarks.harness.gpu import gpu_facts
from rammer.frontends.torch.private import room
from rammer.torch_backend import backend

_WIDTH = 16
_TURN = 50  # calls; a GPU's queue has room for some hundred
_WARMUP_TURNS = 20

if TYPE_CHECKING:
    from benchmarks.calls import DriverPart

Call = Callable[[], object]


def ways(device: str, veus: int | None) -> dict[str, Call]:
    """Each way to call the module, by name."""
    module = torch.nn.Linear(_WIDTH, _WIDTH).eval().to(device)
    x = torch.randn(1, _WIDTH, device=device)
    made = torch.zeros(1, _WIDTH, device=device)

    def guards(graph: object, inputs: Sequence[Any]) -> Callable[..., Any]:
        return lambda *_: (made,)

    def aot(graph: object, inputs: Sequence[Any]) -> Callable[..., Any]:
        def boxed(args: list[Any]) -> Sequence[Any]:
            args.clear()
            return [made]

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    def plain(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        forward: Callable[..., Any] = graph.forward
        return forward

    on_gpu = device == "cuda"
    part = _driver_part() if on_gpu else None

    def floor(graph: object, inputs: Sequence[Any]) -> Callable[..., Any]:
        new = room((1, _WIDTH), torch.float32, on_gpu=on_gpu)

        def call(*_: object) -> Sequence[Any]:
            result = new()
            if part is not None:
                part.launch()
            return (result,)

        return call

    net = rammer.compile(module, device, args=(x,), veus=veus)
    backends: dict[str, Any] = {
        "torch.compile": backend,
        "guards": guards,
        "floor": floor,
        "AOTAutograd": aot_autograd(fw_compiler=aot),
        "plain": plain,
    }
    options = {"torch.compile": {"device": device, "veus": veus}}
    calls: dict[str, Call] = {"net(x)": lambda: net(x), "eager": lambda: module(x)}
    for name, chosen in backends.items():
        compiled = torch.compile(_layer().to(device), backend=chosen, dynamic=False, options=options.get(name))
        calls[name] = lambda compiled=compiled: compiled(x)  # type: ignore[misc]
    calls["bound"] = net.bind({net.signature.inputs[0].name: x})
    if part is not None:
        calls["driver"] = part.launch
    return calls


def _driver_part() -> DriverPart:
    from benchmarks.calls import DriverPart

    return DriverPart()


def _layer() -> torch.nn.Module:
    """The layer, with code of its own: Dynamo would try all that it compiled for the same code, in every call."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(_WIDTH, _WIDTH)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:  # noqa: ANN401 - a module of the class above
        return self.inner(x)

    Layer.forward = FunctionType(forward.__code__.replace(), globals())
    return Layer().eval()


def times_us(calls: dict[str, Call], turns: int, settle: Call) -> dict[str, float]:
    """Medians in microseconds, in turns."""
    clock, times = WallClock(), {name: list[float]() for name in calls}
    for turn in range(_WARMUP_TURNS + turns):
        for name, call in calls.items():
            taken_us = clock.time_us(call, _TURN)
            settle()
            if turn >= _WARMUP_TURNS:
                times[name] += taken_us
    return {name: statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    """Measure, print and leave JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.module_calls", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--turns", type=int, default=200, help=f"of {_TURN} calls each (default: 200)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    on_gpu = given.device == "cuda"
    settle: Call = torch.cuda.synchronize if on_gpu else lambda: None
    with torch.no_grad():
        found = times_us(ways(given.device, None if on_gpu else 1), given.turns, settle)
    for name, us in found.items():
        print(f"{name:16} {us:6.2f} us")
    beyond_us = found["torch.compile"] - found["guards"]
    floor_us = found["floor"] - found["guards"]
    print(
        f"torch.compile beyond guards {beyond_us:.2f} us, the floor {floor_us:.2f}, net(x) alone {found['net(x)']:.2f}"
    )
    settings = environment([]) | {"torch": torch.__version__} | (gpu_facts() if on_gpu else {})
    OUT.mkdir(exist_ok=True)
    (OUT / f"module-calls-{given.device}.json").write_text(json.dumps(settings | {"us": found}, indent=1))


if __name__ == "__main__":
    main()
