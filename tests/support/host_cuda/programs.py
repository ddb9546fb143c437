"""Models as programs on the host's GPU, with inputs and what ONNX Runtime makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.networks.builder import random_inputs
from rammer.devices.base import Source
from rammer.devices.cuda.launch import LoadedModel
from rammer.devices.cuda.source import source_of
from rammer.ir.graph import Array
from rammer.ir.program import Plan
from tests.support.agreement import relative_difference, run_onnx_runtime
from tests.support.host_cuda import Copies, HostGpu, Order, Policy, orders

TOLERANCES = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 2e-2, "fp16": 1e-2}
"""Of a small network, in units of the norm of what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Program:
    """A model for a few vEUs, and one run of it."""

    gpu: HostGpu
    plan: Plan
    source: Source
    inputs: Sequence[Array]
    wanted: Sequence[Array]
    tolerance: float

    @classmethod
    def of(
        cls, gpu: HostGpu, model: onnx.ModelProto, *, veus: int, precision: str = "fp32", **settings: object
    ) -> Program:
        """The program of a model, with random inputs."""
        plan, vdevice = gpu.plan(model, veus=veus, precision=precision, **settings)
        inputs = random_inputs(model, 0)
        return cls(
            gpu=gpu,
            plan=plan,
            source=source_of(plan, vdevice),
            inputs=list(inputs.values()),
            wanted=run_onnx_runtime(model, inputs),
            tolerance=TOLERANCES[precision],
        )

    @property
    def orders(self) -> Sequence[Order]:
        """Those that matter."""
        return orders(self.plan.veus)

    @property
    def one_sided(self) -> Sequence[Order]:
        """Each vEU ahead of all others, and behind them: a Wait that is missing shows."""
        sides, veus = (Policy.AHEAD, Policy.BEHIND), range(self.plan.veus)
        return [Order(policy=side, copies=Copies.EARLY, seed=veu) for side in sides for veu in veus]

    def error(self, loaded: LoadedModel, order: Order) -> float:
        """How far a run is from what is wanted; infinite where it has NaN or infinities, and that has none."""
        found = self.gpu.run(loaded, self.inputs, self.wanted, order)
        if not all(np.isfinite(one).all() for one in found):
            return float("inf")
        return max(relative_difference(one, other) for one, other in zip(found, self.wanted, strict=True))

    def is_right(self, loaded: LoadedModel, chosen: Iterable[Order]) -> bool:
        """Whether runs in all these orders are."""
        return all(self.error(loaded, order) < self.tolerance for order in chosen)
