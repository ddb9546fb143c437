"""The policy `auto`: the best schedule of several other policies, by simulation.

Where programs are to be measured, `compiler.schedule_graph` measures those that may be the quickest; where a device can
be divided in other ways, those of its divisions, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.policies import critical_path, ios, sequential, wavefront, wavefront_fast
from rammer.schedule.simulator import simulate

_WORTH = 1.25
"""How much longer than the best a schedule may take by simulation, which is right within 12 %, to be measured."""


def schedules(graph: TaskGraph, device: VDevice, costs: CostModel) -> Sequence[Schedule]:
    """The schedules that `auto` chooses from, each once, the first of equals as the policy that is preferred."""
    others = wavefront_fast.schedule, ios.schedule_by_tiles, sequential.schedule
    tried = [
        wavefront.schedule(graph, device, costs),
        *critical_path.sweeps(graph, device, costs),
        *(policy(graph, device, costs) for policy in others),
    ]
    found: list[Schedule] = []
    for schedule in tried:
        if all((schedule.choice, schedule.programs) != (other.choice, other.programs) for other in found):
            found.append(schedule)
    return found


def worth_measuring(graph: TaskGraph, device: VDevice, costs: CostModel) -> Sequence[Schedule]:
    """Those of `schedules` that may be the quickest: none is simulated to take much longer than the best."""
    found = schedules(graph, device, costs)
    times_us = [simulate(graph, one, device, costs).total_us for one in found]
    return [one for one, time_us in zip(found, times_us, strict=True) if time_us <= _WORTH * min(times_us)]


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel) -> Schedule:
    """The schedule that ends first, named after the policy that it is of."""
    return min(schedules(graph, device, costs), key=lambda found: simulate(graph, found, device, costs).total_us)
