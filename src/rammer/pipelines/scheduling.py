"""schedule_graph(): from a graph to the schedule that a program is made of, whoever decides on it.

Mostly that is a policy. Where `auto` is to measure programs, all that may be the quickest are scheduled, for the device
as it is described and as it can be divided otherwise; they are searched side by side, and run one after another.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from rammer.devices.base import Device, Divisible
from rammer.errors import OptionError
from rammer.extending import kernels_for
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.ir.program import Schedule
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.vdevice import CostModel, Figure, VDevice
from rammer.options import CompileOptions
from rammer.pipelines.beside import each_beside
from rammer.pipelines.planning import Progress, choose_schedule, lower_graph, measure_kernels, plan_memory, silent
from rammer.profiler.costs import MeasuredCosts
from rammer.profiler.whole import measure_plans
from rammer.roller.model import ModelCosts
from rammer.roller.trees import check_strategy
from rammer.schedule.policies import auto
from rammer.timings import timed

_log = logging.getLogger(__name__)
_LARGE = 64  # rOperators, whose schedules are searched for longer than processes take to begin


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A model scheduled for one description of a device.

    Attributes:
        vdevice: the description.
        tasks: verified rOperators.
        measured: times of rKernels that the schedule was made with.
        schedule: what runs where.
        dump: where intermediate forms go.
    """

    vdevice: VDevice
    tasks: TaskGraph
    measured: Mapping[RKernel, Figure]
    schedule: Schedule
    dump: Dump


def schedule_graph(
    graph: Graph, device: Device, vdevice: VDevice, options: CompileOptions, progress: Progress = silent
) -> Scheduled:
    """From an imported graph to a schedule by the policy that was asked for.

    `auto`, if programs are to be measured, takes the quickest for the device as it is described or divided otherwise.

    Raises:
        ModelError: the model cannot be used.
        OptionError: no such policy.
        DeviceError: the machine cannot do what was asked.
    """
    whole = _costed(graph, device, vdevice, options, Dump(options.dump_dir), progress)
    progress("schedule", 0, 1)
    if options.policy != "auto" or options.tune == "none":
        return whole.scheduled(choose_schedule(whole.tasks, vdevice, whole.costs, options))
    made = [whole]
    for number, other in enumerate(device.divisions(options) if isinstance(device, Divisible) else (), 1):
        dump = Dump(None if options.dump_dir is None else options.dump_dir / f"division-{number}")
        made.append(_costed(graph, device, as_asked(other, options), options, dump, progress))
    with timed("schedule"):
        offers = _offers(made)
    plans = [plan_memory(one.tasks, one.schedule, one.vdevice, Dump(None)) for one, _ in offers]
    times_us = measure_plans(plans, device, [one.vdevice for one, _ in offers], options)
    for (one, simulated_us), time_us in zip(offers, times_us, strict=True):
        name, veus = one.schedule.policy, one.vdevice.veu_count
        _log.info("%s, %d vEUs: %.1f us, simulated %.1f", name, veus, time_us.value, simulated_us)
    return min(zip(offers, times_us, strict=True), key=lambda found: found[1].value)[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costed:
    """rOperators for one description of a device, and what they cost there; see `Scheduled`."""

    vdevice: VDevice
    tasks: TaskGraph
    measured: Mapping[RKernel, Figure]
    costs: CostModel
    dump: Dump

    def scheduled(self, schedule: Schedule) -> Scheduled:
        """With a schedule."""
        return Scheduled(
            vdevice=self.vdevice, tasks=self.tasks, measured=self.measured, schedule=schedule, dump=self.dump
        )


def _costed(
    graph: Graph, device: Device, vdevice: VDevice, options: CompileOptions, dump: Dump, progress: Progress
) -> _Costed:
    """The rOperators of a graph for a description of the device, with measured times if these are asked for."""
    tasks = lower_graph(graph, vdevice, options, dump, progress)
    measured = measure_kernels(tasks, device, vdevice, options, progress)
    costs = MeasuredCosts(measured, ModelCosts(vdevice))
    return _Costed(vdevice=vdevice, tasks=tasks, measured=measured, costs=costs, dump=dump)


def _offers(made: Sequence[_Costed]) -> list[tuple[Scheduled, float]]:
    """The schedules that are worth measuring, with their simulated times; of large graphs they are searched beside.

    Neither constants nor users' functions, which another process would not find, are part of the question.
    """
    calls = []
    for one in made:
        tasks, vdevice = replace(one.tasks, constants={}, recipes={}), replace(one.vdevice, externs=())
        costs = MeasuredCosts(one.measured, ModelCosts(vdevice))
        calls += [(tasks, vdevice, costs, number) for number in range(auto.SEARCHES)]
    is_large = max(len(one.tasks.operators) for one in made) >= _LARGE
    found = each_beside(auto.search, calls) if is_large else [auto.search(*call) for call in calls]
    offers = []
    for place, one in enumerate(made):
        own = chain.from_iterable(found[place * auto.SEARCHES : (place + 1) * auto.SEARCHES])
        worth = auto.worth_measuring(one.tasks, one.vdevice, one.costs, own)
        offers += [(one.scheduled(schedule), time_us) for schedule, time_us in worth]
    return offers


def as_asked(vdevice: VDevice, options: CompileOptions) -> VDevice:
    """A description with what the options and users' own rKernels add; raises OptionError as `find_target` does."""
    if externs := kernels_for(vdevice.kind):
        vdevice = replace(vdevice, externs=externs)
    vdevice = replace(vdevice, trees=options.trees)
    check_strategy(vdevice)
    if options.precision not in vdevice.precisions:
        raise OptionError(
            f"precision '{options.precision}' on {options.device}", hint=f"it has {', '.join(vdevice.precisions)}"
        )
    return vdevice
