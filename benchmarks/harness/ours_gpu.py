"""Rammer as a contestant on an NVIDIA GPU."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.harness.cases import Case
from benchmarks.harness.contestant import Array, Prepared
from benchmarks.harness.ours import Rammer


@dataclass(frozen=True, slots=True, kw_only=True)
class RammerOnGpu(Rammer):
    """Rammer with one policy; inputs and outputs are PyTorch's tensors on the GPU, the stream is PyTorch's."""

    def prepare(self, case: Case) -> Prepared:
        """Compile the model."""
        import torch

        from benchmarks.networks.torch_modules import as_tensor

        net = self.compiled(case)
        inputs = {name: as_tensor(array).cuda() for name, array in case.inputs.items()}
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
            return [result.to(torch.float64).cpu().numpy() for result in results.values()]

        return Prepared(run=run, outputs=outputs)
