"""The policy `sequential`: what a compiler without inter-operator scheduling does (the paper's RammerBase).

rOperators run one after another in topological order, each alone on the device with its fastest rKernel, its rTasks
dealt round the vEUs and a global barrier after it.
"""

from __future__ import annotations

from rammer.ir.program import Schedule
from rammer.ir.task import RTask, TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.estimates import Estimates


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel) -> Schedule:
    """One rProgram with a global barrier between rOperators."""
    estimates = Estimates(graph, device, costs)
    builder = ProgramBuilder(device.veu_count)
    choice = []
    for operator in graph.operators:
        pick = estimates.best_kernel(operator, device.veu_count)
        for index in range(operator.kernels[pick].task_count):
            builder.append(RTask(operator.id, index), index % device.veu_count)
        builder.barrier()
        choice.append(pick)
    return Schedule(policy="sequential", choice=tuple(choice), programs=(builder.build(),))
