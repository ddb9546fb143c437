"""The policy `auto`: the best schedule of several other policies, by simulation.

Where programs can be measured, `compiler.choose_schedule` measures these schedules instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.policies import critical_path, ios, sequential, wavefront, wavefront_fast
from rammer.schedule.simulator import simulate

_TRIED = (
    wavefront.schedule,
    critical_path.schedule,
    wavefront_fast.schedule,
    ios.schedule_by_tiles,
    sequential.schedule,
)


def schedules(graph: TaskGraph, device: VDevice, costs: CostModel) -> Sequence[Schedule]:
    """The schedules that `auto` chooses from, each once, the first of equals as the policy that is preferred."""
    found: list[Schedule] = []
    for policy in _TRIED:
        schedule = policy(graph, device, costs)
        if all((schedule.choice, schedule.programs) != (other.choice, other.programs) for other in found):
            found.append(schedule)
    return found


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel) -> Schedule:
    """The schedule that ends first, named after the policy that it is of."""
    return min(schedules(graph, device, costs), key=lambda found: simulate(graph, found, device, costs).total_us)
