"""PyTorch on an NVIDIA GPU: eager, as a CUDA graph, compiled; and in float64 on the same GPU as the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.cases import Case
from benchmarks.harness.contestant import Array, Prepared, installed_version

_WARMUP_CALLS = 3
_COMPILED: Mapping[str, Mapping[str, Any]] = {
    "inductor": {},
    "frozen": {"options": {"freezing": True}},
    "max-autotune": {"mode": "max-autotune-no-cudagraphs"},
}

DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
"""By precision, the type of parameters and floating-point inputs, as PyTorch and JAX both call it."""


def on_device(x: Any, device: str, dtype: str) -> Any:  # noqa: ANN401 - PyTorch is not typed here
    """A tensor on a device; floating-point ones become of the type."""
    import torch

    return x.to(device, getattr(torch, dtype)) if x.is_floating_point() else x.to(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorch:
    """A module of `benchmarks.networks.torch_modules`, its parameters and floating-point inputs in the precision.

    `form` is "eager", "graph" (recorded once, replayed in each call), or compiled by TorchInductor, then recorded:
    "inductor", "frozen" (its parameters are constants) or "max-autotune".
    """

    form: str
    precision: str

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"pytorch {self.form}"

    def version(self) -> str | None:
        """The package's version."""
        return installed_version("torch")

    def prepare(self, case: Case) -> Prepared:
        """Load the weights, compile and record."""
        import torch

        from benchmarks.networks.torch_modules import module_inputs, torch_module

        tf32 = self.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        dtype = getattr(torch, DTYPES[self.precision])
        network = case.form.network
        inputs = [on_device(x, "cuda", DTYPES[self.precision]) for x in module_inputs(network, case.inputs)]
        module: Any = torch_module(network, case.model, **case.form.sizes).to("cuda", dtype)
        if self.form in _COMPILED:
            module = torch.compile(module, dynamic=False, **_COMPILED[self.form])
        with torch.inference_mode():
            for _ in range(_WARMUP_CALLS):
                module(*inputs)
            run = _eager(module, inputs) if self.form == "eager" else _recorded(module, inputs)

        def outputs() -> list[Array]:
            found = run()
            results = found if isinstance(found, tuple) else (found,)
            return [y.to(torch.float64).cpu().numpy() for y in results]

        return Prepared(run=run, outputs=outputs)


def _eager(module: Any, inputs: Sequence[Any]) -> Callable[[], Any]:  # noqa: ANN401 - PyTorch is not typed here
    import torch

    def run() -> object:
        with torch.inference_mode():
            return module(*inputs)

    return run


def _recorded(module: Any, inputs: Sequence[Any]) -> Callable[[], Any]:  # noqa: ANN401 - PyTorch is not typed here
    import torch

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(*inputs)
    recorded = graph, module, inputs  # it reads their memory, which PyTorch would give back

    def run() -> object:
        recorded[0].replay()
        return y

    return run
