"""The programs of the paper's ablation: which rKernels, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rammer.ir.program import Execute, Plan, RProgram, Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule import memory
from rammer.schedule.bound import find_edges
from rammer.schedule.policies import sequential, wavefront, wavefront_fast
from rammer.verify import program as verify_program


def _base_select(graph: TaskGraph, device: VDevice, costs: CostModel) -> Schedule:
    """Operator after operator, with the rKernels that `wavefront` chooses."""
    choice = wavefront.schedule(graph, device, costs).choice
    operators = tuple(
        replace(operator, kernels=(operator.kernels[pick],))
        for operator, pick in zip(graph.operators, choice, strict=True)
    )
    return replace(sequential.schedule(replace(graph, operators=operators), device, costs), choice=choice)


PROGRAMS = MappingProxyType(
    {
        "base-fast": sequential.schedule,
        "base-select": _base_select,
        "rammer-fast": wavefront_fast.schedule,
        "rammer-select": wavefront.schedule,
    }
)
"""By the paper's names: RammerBase runs operator after operator, Rammer all rTasks together; each with the fastest
rKernels, or with those chosen for what runs beside them."""


def plans(graph: TaskGraph, device: VDevice, costs: CostModel) -> Mapping[str, Plan]:
    """The plans of all programs, proved."""
    found = {}
    for name, policy in PROGRAMS.items():
        schedule = policy(graph, device, costs)
        arenas = memory.plan(graph, schedule, device.alignment_bytes, device.homes)
        found[name] = Plan(graph=graph, schedule=schedule, memory=arenas)
        verify_program.verify(found[name], device)
    return found


def with_barriers(graph: TaskGraph, schedule: Schedule) -> Schedule:
    """The same rKernels, places and order, with a global barrier between depths of the graph instead of Waits."""
    depths = _depths(graph)
    programs: list[list[list[Execute]]] = [
        [[] for _ in range(max(program.veus for program in schedule.programs))]
        for _ in range(max(depths, default=0) + 1)
    ]
    for program in schedule.programs:
        for veu, _, task in program.tasks():
            programs[depths[task.operator]][veu].append(Execute(task))
    return replace(
        schedule,
        programs=tuple(
            RProgram(steps=tuple(map(tuple, queues)), counter_count=0) for queues in programs if any(queues)
        ),
    )


def _depths(graph: TaskGraph) -> Sequence[int]:
    """The rOperators before each one, on the longest path."""
    depths = [0] * len(graph.operators)
    for edge in sorted(find_edges(graph), key=lambda edge: edge.consumer):
        depths[edge.consumer] = max(depths[edge.consumer], depths[edge.producer] + 1)
    return depths
