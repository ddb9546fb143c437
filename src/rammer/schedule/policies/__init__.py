"""Scheduling policies: pure functions that place a task graph's rTasks on a device, one file each (DESIGN D8).

To add one, write `policies/<name>.py` with a function `schedule` of the type `Policy` and list it in `POLICIES`.
It picks an rKernel for each rOperator and, rTask by rTask, calls `ProgramBuilder.wait` and `.append`
(`schedule.builder`); which rTasks depend on which, `schedule.dependencies` says. Its choices must follow from its
arguments alone. The tests of `POLICIES` then apply to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.policies import auto, critical_path, ios, sequential, wavefront, wavefront_fast

Policy = Callable[[TaskGraph, VDevice, CostModel], Schedule]

POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "wavefront": wavefront.schedule,
        "sequential": sequential.schedule,
        "ios": ios.schedule,
        "ios-tiles": ios.schedule_by_tiles,
        "wavefront-fast": wavefront_fast.schedule,
        "critical-path": critical_path.schedule,
        "auto": auto.schedule,
    }
)

MERGING = frozenset({"ios", "ios-tiles"})
"""The policies whose stages may run several operators as one: the compiler merges those before it asks them."""
