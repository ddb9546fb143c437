"""schedule_graph(): from a graph to the schedule that a program is made of, whoever decides on it.

Mostly that is a policy. Where `auto` is to measure programs, all that may be the quickest are scheduled, for the device
as it is described and as it can be divided otherwise, and with less of minimal filtering; they are searched side by
side, and run one after another. Then the quickest are traced, and searched for again by the times that their rTasks
took. In the end the few that are quickest are compared in turns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, TypeVar

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
from rammer.profiler.whole import compare_plans, measure_plans, trace_plan
from rammer.roller.model import ModelCosts
from rammer.roller.trees import check_strategy
from rammer.schedule.in_place import InPlaceCosts, as_seen, seen_us
from rammer.schedule.policies import auto
from rammer.schedule.simulator import simulate
from rammer.timings import timed

_log = logging.getLogger(__name__)
_LARGE = 64  # rOperators, whose schedules are searched for longer than processes take to begin
_TRANSFORM = "ConvInputTransform"  # what minimal filtering begins with
_ROUNDS = 2
_GAIN = 1.003
"""How much quicker than before the quickest has to be, for another round."""
_CLOSE = 1.02
"""How much longer than the quickest that of another description may take, to be searched for again."""
_MOST_TRACED = 2
_COMPARED = 1.02
"""How much longer than the quickest others may take, to be compared with it in turns."""
_MOST_COMPARED = 4
_Found = TypeVar("_Found")


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

    `auto`, if programs are to be measured, takes the quickest for the device as it is described or divided otherwise,
    with as much of minimal filtering as is predicted to pay or less.

    Raises:
        ModelError: the model cannot be used.
        OptionError: no such policy.
        DeviceError: the machine cannot do what was asked.
    """
    whole = _costed(graph, device, vdevice, options, Dump(options.dump_dir), progress)
    progress("schedule", 0, 1)
    if options.policy != "auto" or options.tune == "none":
        return whole.scheduled(choose_schedule(whole.tasks, vdevice, whole.costs, options))
    made = [
        whole,
        *_divided(graph, device, options, progress),
        *_less_filtered(graph, device, whole, options, progress),
    ]
    with timed("schedule"):
        offers = _offers(made)
    tried = _measured(offers, device, options)
    seen: dict[int, dict[RKernel, float]] = {}
    for _ in range(_ROUNDS):
        again = _searched_in_place(tried, seen, device, options)
        found = _measured(again, device, options) if again else []
        least_us = min(one.time_us for one in tried)
        tried += found
        if not any(one.time_us * _GAIN < least_us for one in found):
            break
    return _quickest(tried, device, options)


def _divided(graph: Graph, device: Device, options: CompileOptions, progress: Progress) -> list[_Costed]:
    """The rOperators for the device as it can be divided otherwise."""
    made = []
    for number, other in enumerate(device.divisions(options) if isinstance(device, Divisible) else (), 1):
        dump = Dump(None if options.dump_dir is None else options.dump_dir / f"division-{number}")
        made.append(_costed(graph, device, as_asked(other, options), options, dump, progress))
    return made


def _less_filtered(
    graph: Graph, device: Device, whole: _Costed, options: CompileOptions, progress: Progress
) -> list[_Costed]:
    """The rOperators with smaller tiles of minimal filtering and without any, where there is some and that differs.

    What transforms take in place is hard to predict: their code is long, and each runs seldom.
    """
    made = [whole]
    if any(operator.kind == _TRANSFORM for operator in whole.tasks.operators):
        for most in range(whole.vdevice.most_filtered // 2, 0, -1):
            dump = Dump(None if options.dump_dir is None else options.dump_dir / f"filtered-{most}")
            fewer = replace(whole.vdevice, most_filtered=most)
            one = _costed(graph, device, fewer, options, dump, progress)
            if all(one.tasks.operators != other.tasks.operators for other in made):
                made.append(one)
    return made[1:]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """A schedule for a description, and the time of a run in microseconds."""

    costed: _Costed
    schedule: Schedule
    time_us: float


def _measured(offers: Sequence[tuple[_Costed, Schedule]], device: Device, options: CompileOptions) -> list[_Tried]:
    """Schedules with their measured times."""
    plans = [plan_memory(one.tasks, schedule, one.vdevice, Dump(None)) for one, schedule in offers]
    times_us = measure_plans(plans, device, [one.vdevice for one, _ in offers], options)
    for (one, schedule), time_us in zip(offers, times_us, strict=True):
        simulated_us = simulate(one.tasks, schedule, one.vdevice, one.costs).total_us
        name, veus, most = schedule.policy, one.vdevice.veu_count, one.vdevice.most_filtered
        _log.info("%s, %d vEUs, filtered by %d: %.1f us, simulated %.1f", name, veus, most, time_us.value, simulated_us)
    return [
        _Tried(costed=one, schedule=schedule, time_us=time_us.value)
        for (one, schedule), time_us in zip(offers, times_us, strict=True)
    ]


def _searched_in_place(
    tried: Sequence[_Tried], seen: dict[int, dict[RKernel, float]], device: Device, options: CompileOptions
) -> list[tuple[_Costed, Schedule]]:
    """What is found by the times of rTasks in runs of the quickest, for the descriptions that may have the quickest.

    Args:
        tried: all that was measured.
        seen: times of rTasks in runs, by the identity of what `tried` is of; grows.
        device: where programs run.
        options: compiler, cache and limits.
    """
    best: dict[int, _Tried] = {}
    for trial in sorted(tried, key=lambda one: one.time_us):
        best.setdefault(id(trial.costed), trial)
    close_us = _CLOSE * min(trial.time_us for trial in best.values())
    found: list[tuple[_Costed, Schedule]] = []
    for key, trial in list(best.items())[:_MOST_TRACED]:
        one, schedule = trial.costed, trial.schedule
        if trial.time_us > close_us:
            break
        plan = plan_memory(one.tasks, schedule, one.vdevice, Dump(None))
        traces = trace_plan(plan, device, one.vdevice, options)
        if not traces:
            continue
        own = seen.setdefault(key, {})
        own.update(seen_us(one.tasks, schedule, [trace.spans_ns for trace in traces]))
        with timed("schedule"):
            known = [other.schedule for other in tried if other.costed is one]
            found += [(one, new) for new in _again(one, own, known)]
    return found


def _again(one: _Costed, seen: Mapping[RKernel, float], known: Sequence[Schedule]) -> list[Schedule]:
    """Schedules that are found by times of rTasks in runs, and not known."""
    tasks, vdevice = _bare(one)
    costs = InPlaceCosts(seen, MeasuredCosts(one.measured, ModelCosts(vdevice)))
    calls = [(tasks, as_seen(vdevice), costs, number) for number in range(auto.SEARCHES_IN_PLACE)]
    found = _each(auto.search_in_place, calls, [one])
    return auto.worth_measuring_in_place(found, known)


def _quickest(tried: Sequence[_Tried], device: Device, options: CompileOptions) -> Scheduled:
    """The quickest; of those that may be it, by another comparison."""
    order = sorted(tried, key=lambda one: one.time_us)
    close = [one for one in order[:_MOST_COMPARED] if one.time_us <= _COMPARED * order[0].time_us]
    best = close[0]
    if len(close) > 1:
        plans = [plan_memory(one.costed.tasks, one.schedule, one.costed.vdevice, Dump(None)) for one in close]
        times_us = compare_plans(plans, device, [one.costed.vdevice for one in close], options)
        for one, time_us in zip(close, times_us, strict=True):
            _log.info("%s, %d vEUs: %.1f us in turns", one.schedule.policy, one.costed.vdevice.veu_count, time_us)
        best = min(zip(close, times_us, strict=True), key=lambda found: found[1])[0]
    return best.costed.scheduled(best.schedule)


def _bare(one: _Costed) -> tuple[TaskGraph, VDevice]:
    """What schedules follow from: neither constants nor users' functions, which another process would not find."""
    return replace(one.tasks, constants={}, recipes={}), replace(one.vdevice, externs=())


def _each(function: Callable[..., _Found], calls: Sequence[tuple[Any, ...]], made: Sequence[_Costed]) -> list[_Found]:
    """What a search gives for each of some arguments; of large graphs they run side by side."""
    is_large = max(len(one.tasks.operators) for one in made) >= _LARGE
    return each_beside(function, calls) if is_large else [function(*call) for call in calls]


def _offers(made: Sequence[_Costed]) -> list[tuple[_Costed, Schedule]]:
    """The schedules that are worth measuring, of the device filtered less those of the first search."""
    most = made[0].vdevice.most_filtered
    searches = [auto.SEARCHES if one.vdevice.most_filtered == most else 1 for one in made]
    calls = []
    for one, count in zip(made, searches, strict=True):
        tasks, vdevice = _bare(one)
        costs = MeasuredCosts(one.measured, ModelCosts(vdevice))
        calls += [(tasks, vdevice, costs, number) for number in range(count)]
    found = iter(_each(auto.search, calls, made))
    offers = []
    for one, count in zip(made, searches, strict=True):
        own = chain.from_iterable(islice(found, count))
        worth = auto.worth_measuring(one.tasks, one.vdevice, one.costs, own)
        offers += [(one, schedule) for schedule, _ in worth]
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
