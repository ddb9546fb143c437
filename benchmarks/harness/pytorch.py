"""PyTorch on an NVIDIA GPU: eager, as a CUDA graph, compiled; and in float64 on the same GPU as the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.harness.cases import Case
from benchmarks.harness.contestant import Prepared, installed_version

_WARMUP_CALLS = 3
_COMPILED: Mapping[str, Mapping[str, Any]] = {
    "inductor": {},
    "frozen": {"options": {"freezing": True}},
    "max-autotune": {"mode": "max-autotune-no-cudagraphs"},
}

DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp64": "float64"}
"""By precision, the type of parameters and inputs, as PyTorch and JAX both call it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PyTorch:
    """A module of `benchmarks.networks.torch_modules`, its parameters and input in the precision.

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

        from benchmarks.networks.torch_modules import torch_module

        tf32 = self.precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True
        dtype = getattr(torch, DTYPES[self.precision])
        (given,) = case.inputs.values()
        x = torch.from_numpy(given).to("cuda", dtype)
        module: Any = torch_module(case.form.network, case.model, **case.form.sizes).to("cuda", dtype)
        if self.form in _COMPILED:
            module = torch.compile(module, dynamic=False, **_COMPILED[self.form])
        with torch.inference_mode():
            for _ in range(_WARMUP_CALLS):
                module(x)
            run = _eager(module, x) if self.form == "eager" else _recorded(module, x)
        return Prepared(run=run, outputs=lambda: [run().to(torch.float64).cpu().numpy()])


def _eager(module: Any, x: Any) -> Callable[[], Any]:  # noqa: ANN401 - PyTorch is not typed here
    import torch

    def run() -> object:
        with torch.inference_mode():
            return module(x)

    return run


def _recorded(module: Any, x: Any) -> Callable[[], Any]:  # noqa: ANN401 - PyTorch is not typed here
    import torch

    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(x)
    recorded = graph, module, x  # it reads their memory, which PyTorch would give back

    def run() -> object:
        recorded[0].replay()
        return y

    return run
