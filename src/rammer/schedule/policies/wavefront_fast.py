"""The policy `wavefront-fast`: waves as in `wavefront`, always with the fastest rKernel (the paper's ablation).

*Fastest* is the paper's word for the rKernel that ends first with the whole device to itself, whatever runs beside it.
What `wavefront` gains over this policy is what choosing rKernels for waves is worth.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.estimates import Estimates
from rammer.schedule.policies import wavefront


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel) -> Schedule:
    """The schedule of `wavefront` for rOperators that have no other rKernel than the fastest."""
    estimates = Estimates(graph, device, costs)
    choice = tuple(estimates.best_kernel(operator, device.veu_count) for operator in graph.operators)
    operators = tuple(
        replace(operator, kernels=(operator.kernels[pick],))
        for operator, pick in zip(graph.operators, choice, strict=True)
    )
    found = wavefront.schedule(replace(graph, operators=operators), device, costs)
    return replace(found, policy="wavefront-fast", choice=choice)
