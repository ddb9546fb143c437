"""XLA on an NVIDIA GPU: a network's ONNX model as one JAX function, compiled ahead."""

from __future__ import annotations

import os
from dataclasses import dataclass

from benchmarks.harness.cases import Case
from benchmarks.harness.contestant import Prepared, installed_version
from benchmarks.harness.pytorch import DTYPES, on_device

_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin")
_PRODUCTS = {"fp32": "float32", "tf32": "tensorfloat32", "fp16": "default", "bf16": "default"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Xla:
    """Parameters and floating-point inputs are in the precision, on `device`.

    `device` is "cuda" or "cpu", as PyTorch and JAX both call it.
    """

    precision: str
    device: str = "cuda"

    @property
    def name(self) -> str:
        """What the table calls it."""
        return "xla"

    def version(self) -> str | None:
        """JAX's version, where it can use a GPU."""
        usable = any(installed_version(plugin) for plugin in _PLUGINS)
        return installed_version("jax") if usable else None

    def prepare(self, case: Case) -> Prepared:
        """Load the weights and compile."""
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others need memory, too
        import jax
        import torch
        from jax import numpy as jnp

        from benchmarks.networks.jax_function import jax_function
        from benchmarks.networks.torch_modules import as_tensor

        function, weights = jax_function(case.model)
        dtype = DTYPES[self.precision]
        given = [on_device(as_tensor(array), self.device, dtype) for array in case.inputs.values()]
        place = jax.devices(self.device)[0]
        parameters = {name: jax.device_put(jnp.asarray(array, dtype), place) for name, array in weights.items()}
        with jax.default_matmul_precision(_PRODUCTS[self.precision]):
            compiled = jax.jit(function).lower(parameters, *(jax.dlpack.from_dlpack(x) for x in given)).compile()

        def run() -> list[torch.Tensor]:
            # Its streams wait for PyTorch's, and PyTorch's for them: the clock's events enclose its work.
            results = compiled(parameters, *(jax.dlpack.from_dlpack(x) for x in given))
            return [torch.from_dlpack(result) for result in results]

        return Prepared(run=run, outputs=lambda: [y.to(torch.float64).cpu().numpy() for y in run()])
