"""The schedule whose program is measured to be the quickest, for the policy `auto`.

Schedules that may be it are searched for side by side, and measured one after another. Then the quickest are traced.
By the times that their rTasks took, others are searched for, and parts of them put together, which are measured in
turn. In the end the few that are quickest are compared again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, TypeVar

from rammer.devices.base import Device
from rammer.inspection.dump import Dump
from rammer.ir.program import Plan, Schedule
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.vdevice import CostModel, Figure, VDevice
from rammer.options import CompileOptions
from rammer.pipelines.beside import each_beside
from rammer.pipelines.planning import plan_memory
from rammer.profiler.costs import MeasuredCosts
from rammer.profiler.whole import compare_plans, measure_plans, trace_plans
from rammer.roller.model import ModelCosts
from rammer.schedule.in_place import InPlaceCosts, as_seen, operator_spans_us, seen_us
from rammer.schedule.policies import auto
from rammer.schedule.simulator import simulate
from rammer.schedule.splicing import Ran, spliced
from rammer.timings import timed

_log = logging.getLogger(__name__)
_LARGE = 64  # rOperators, whose schedules are searched for longer than processes take to begin
_ROUNDS = 2
_GAIN = 1.003
"""How much quicker than before the quickest has to be, for another round."""
_CLOSE = 1.02
"""How much longer than the quickest that of another description may take, to be searched for again."""
_MOST_DESCRIPTIONS = 2
_TRACED = 1.04
"""How much longer than the quickest of their description others may take, to be traced for what parts of them take."""
_MOST_TRACED = 8
_COMPARED = 1.02
"""How much longer than the quickest others may take, to be compared with it in turns."""
_MOST_COMPARED = 4
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costed:
    """rOperators for one description of a device, and what they cost there.

    Attributes:
        vdevice: the description.
        tasks: verified rOperators.
        measured: times of rKernels, where they were measured.
        costs: times of all of them.
        dump: where intermediate forms go.
    """

    vdevice: VDevice
    tasks: TaskGraph
    measured: Mapping[RKernel, Figure]
    costs: CostModel
    dump: Dump


Offer = tuple[Costed, Schedule]


def find_quickest(made: Sequence[Costed], device: Device, options: CompileOptions) -> Offer:
    """The quickest schedule of any of some descriptions, and that description.

    Args:
        made: the description that was asked for, then others of the same device, or with less of minimal filtering.
        device: where programs run.
        options: compiler, cache and limits.

    Raises:
        DeviceError: the machine cannot do what was asked.
    """
    with timed("schedule"):
        offers = _offers(made)
    search = _Search(device, options)
    search.measure(offers)
    for _ in range(_ROUNDS):
        before_us = search.least_us
        search.measure([*search.put_together(), *search.found_in_place()])
        if search.least_us * _GAIN >= before_us:
            break
    search.measure(search.put_together())
    return search.quickest()


@dataclass(slots=True, kw_only=True, eq=False)
class _Tried:
    """A schedule for a description, and the time of a run in microseconds; where it was traced, what was seen."""

    costed: Costed
    schedule: Schedule
    time_us: float
    ran: Ran | None = None
    task_us: Mapping[RKernel, float] | None = None

    def plan(self) -> Plan:
        """Its program."""
        return _plan(self.costed, self.schedule)


class _Search:
    """What was measured so far, and what else may be quicker because of that."""

    def __init__(self, device: Device, options: CompileOptions) -> None:
        self._device, self._options = device, options
        self._tried: list[_Tried] = []

    @property
    def least_us(self) -> float:
        """The least time of a run."""
        return min(one.time_us for one in self._tried)

    def measure(self, offers: Sequence[Offer]) -> None:
        """Schedules are tried from now on."""
        if not offers:
            return
        plans = [_plan(*offer) for offer in offers]
        times_us = measure_plans(plans, self._device, [one.vdevice for one, _ in offers], self._options)
        for (one, schedule), time_us in zip(offers, times_us, strict=True):
            simulated_us = simulate(one.tasks, schedule, one.vdevice, one.costs).total_us
            name, veus, most = schedule.policy, one.vdevice.veu_count, one.vdevice.most_filtered
            _log.info(
                "%s, %d vEUs, filtered by %d: %.1f us, simulated %.1f", name, veus, most, time_us.value, simulated_us
            )
            self._tried.append(_Tried(costed=one, schedule=schedule, time_us=time_us.value))

    def put_together(self) -> list[Offer]:
        """For each description that may have the quickest, the best parts of what was tried there; see `splicing`."""
        found: list[Offer] = []
        for own in self._close():
            one = own[0].costed
            self._trace(own)
            ran = [trial.ran for trial in own if trial.ran is not None and len(trial.schedule.programs) == 1]
            if len(ran) < 2 or (schedule := spliced(one.tasks, one.vdevice, ran)) is None:
                continue
            known = [trial.schedule for trial in self._tried if trial.costed is one]
            found += [(one, new) for new in auto.unknown([schedule], known)]
        return found

    def found_in_place(self) -> list[Offer]:
        """For each of these descriptions, what is found by the times of rTasks in runs."""
        found: list[Offer] = []
        for own in self._close():
            one, seen = own[0].costed, dict[RKernel, float]()
            for trial in reversed(own):  # those of the quickest count most
                seen.update(trial.task_us or {})
            if seen:
                with timed("schedule"):
                    known = [trial.schedule for trial in self._tried if trial.costed is one]
                    found += [(one, new) for new in _again(one, seen, known)]
        return found

    def quickest(self) -> Offer:
        """The quickest; of those that may be it, by another comparison."""
        order = sorted(self._tried, key=lambda one: one.time_us)
        close = [one for one in order[:_MOST_COMPARED] if one.time_us <= _COMPARED * order[0].time_us]
        best = close[0]
        if len(close) > 1:
            plans, vdevices = [one.plan() for one in close], [one.costed.vdevice for one in close]
            times_us = compare_plans(plans, self._device, vdevices, self._options)
            for one, time_us in zip(close, times_us, strict=True):
                _log.info("%s, %d vEUs: %.1f us in turns", one.schedule.policy, one.costed.vdevice.veu_count, time_us)
            best = min(zip(close, times_us, strict=True), key=lambda found: found[1])[0]
        return best.costed, best.schedule

    def _close(self) -> list[list[_Tried]]:
        """Of each description that may have the quickest, what may tell more: the quickest first."""
        by_description: dict[Costed, list[_Tried]] = {}
        for trial in sorted(self._tried, key=lambda one: one.time_us):
            by_description.setdefault(trial.costed, []).append(trial)
        close_us = _CLOSE * self.least_us
        return [
            [trial for trial in own[:_MOST_TRACED] if trial.time_us <= _TRACED * own[0].time_us]
            for own in list(by_description.values())[:_MOST_DESCRIPTIONS]
            if own[0].time_us <= close_us
        ]

    def _trace(self, trials: Sequence[_Tried]) -> None:
        """Trace what was not, and keeps no states."""
        fresh = [one for one in trials if one.ran is None and not one.costed.tasks.states]
        plans, vdevices = [one.plan() for one in fresh], [one.costed.vdevice for one in fresh]
        for one, traces in zip(fresh, trace_plans(plans, self._device, vdevices, self._options), strict=True):
            runs = [trace.spans_ns for trace in traces]
            if runs:
                tasks = one.costed.tasks
                one.ran = Ran(schedule=one.schedule, spans_us=operator_spans_us(tasks, one.schedule, runs))
                one.task_us = seen_us(tasks, one.schedule, runs)


def _plan(one: Costed, schedule: Schedule) -> Plan:
    return plan_memory(one.tasks, schedule, one.vdevice, Dump(None))


def _again(one: Costed, seen: Mapping[RKernel, float], known: Sequence[Schedule]) -> list[Schedule]:
    """Schedules that are found by times of rTasks in runs, and not known."""
    tasks, vdevice = _bare(one)
    costs = InPlaceCosts(seen, MeasuredCosts(one.measured, ModelCosts(vdevice)))
    calls = [(tasks, as_seen(vdevice), costs, number) for number in range(auto.SEARCHES_IN_PLACE)]
    found = _each(auto.search_in_place, calls, [one])
    return auto.worth_measuring_in_place(found, known)


def _bare(one: Costed) -> tuple[TaskGraph, VDevice]:
    """What schedules follow from: neither constants nor users' functions, which another process would not find."""
    return replace(one.tasks, constants={}, recipes={}), replace(one.vdevice, externs=())


def _each(function: Callable[..., _Found], calls: Sequence[tuple[Any, ...]], made: Sequence[Costed]) -> list[_Found]:
    """What a search gives for each of some arguments; of large graphs they run side by side."""
    is_large = max(len(one.tasks.operators) for one in made) >= _LARGE
    return each_beside(function, calls) if is_large else [function(*call) for call in calls]


def _offers(made: Sequence[Costed]) -> list[Offer]:
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
