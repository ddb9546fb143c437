"""Rammer as a contestant on an NVIDIA GPU."""

from __future__ import annotations

from dataclasses import dataclass

import rammer
from benchmarks.harness.cases import Case
from benchmarks.harness.contestant import Array, Prepared, installed_version


@dataclass(frozen=True, slots=True, kw_only=True)
class RammerOnGpu:
    """Rammer with one policy; inputs and outputs are PyTorch's tensors on the GPU, the stream is PyTorch's."""

    policy: str
    precision: str
    veus: int

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"rammer {self.policy}"

    def version(self) -> str | None:
        """Rammer's version."""
        return installed_version("rammer-compiler")

    def prepare(self, case: Case) -> Prepared:
        """Compile the model."""
        import torch

        net = rammer.compile(case.model, "cuda", policy=self.policy, precision=self.precision, veus=self.veus)
        inputs = {name: torch.from_numpy(array).cuda() for name, array in case.inputs.items()}
        results = {
            port.name: torch.empty(port.type.shape, dtype=getattr(torch, port.type.dtype.value), device="cuda")
            for port in net.signature.outputs
        }

        def run() -> object:
            return net.run(inputs, outputs=results, stream=torch.cuda.current_stream())

        def outputs() -> list[Array]:
            for result in results.values():
                result.fill_(float("nan"))
            run()
            return [result.cpu().numpy() for result in results.values()]

        return Prepared(run=run, outputs=outputs)
