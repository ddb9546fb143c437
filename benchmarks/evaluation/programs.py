"""The programs of the paper's ablation: which rKernels, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rammer.ir.program import Execute, RProgram, Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.bound import find_edges
from rammer.schedule.policies import sequential, wavefront, wavefront_fast

BASE_FAST, BASE_SELECT, RAMMER_FAST, RAMMER_SELECT = PROGRAMS = (
    "base-fast",
    "base-select",
    "rammer-fast",
    "rammer-select",
)
"""By the paper's names: RammerBase runs operator after operator, Rammer all rTasks together; each with the fastest
rKernels, or with those chosen for what runs beside them."""


def schedules(graph: TaskGraph, device: VDevice, costs: CostModel) -> Mapping[str, Schedule]:
    """The schedules of all programs, by name."""
    select = wavefront.schedule(graph, device, costs)
    return {
        BASE_FAST: sequential.schedule(graph, device, costs),
        BASE_SELECT: _one_by_one(graph, select.choice, device, costs),
        RAMMER_FAST: wavefront_fast.schedule(graph, device, costs),
        RAMMER_SELECT: select,
    }


def _one_by_one(graph: TaskGraph, choice: Sequence[int], device: VDevice, costs: CostModel) -> Schedule:
    """Operator after operator, with these rKernels."""
    operators = tuple(
        replace(operator, kernels=(operator.kernels[pick],))
        for operator, pick in zip(graph.operators, choice, strict=True)
    )
    only = replace(graph, operators=operators)
    return replace(sequential.schedule(only, device, costs), choice=tuple(choice))


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
