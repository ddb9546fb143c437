"""adapt_with(): a compiled model, and other programs of it that it may try while it is called.

The programs are schedules by other policies of the same rOperators, proved and compiled as all are. Of those with the
same rKernels only the tables differ, places and order, so they give the same bits; others may round otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from rammer.compiler import (
    build_plan,
    choose_schedule,
    find_target,
    interface_of,
    lower_graph,
    measure_kernels,
    plan_memory,
    run_times,
    silent,
)
from rammer.errors import OptionError
from rammer.frontends.dispatch import Example
from rammer.guarded import guarded
from rammer.inspection.dump import Dump
from rammer.ir.program import Plan, Schedule
from rammer.ir.saved_tasks import saved_tasks
from rammer.ir.sizes import check_arrays
from rammer.ir.vdevice import VDevice
from rammer.kinds import read_with
from rammer.options import CompileOptions
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.adaptive import AdaptiveModel
from rammer.runtime.contest import WHOLE, Arm, Parts
from rammer.runtime.executable import Executable
from rammer.runtime.learnt import Learnt
from rammer.schedule.exploration import Exploration, Options
from rammer.schedule.policies import POLICIES
from rammer.schedule.simulator import simulate

BITS = ("same", "any")
DEVICES = ("cpu", "reference")
_TRIED = ("wavefront", "critical-path", "ios-tiles", "wavefront-fast", "sequential")


@guarded("compiled")
def adapt_with(
    model: object,
    options: CompileOptions,
    example: Example,
    *,
    budget_runs: int,
    max_slowdown: float,
    bits: str,
    store: Path | None = None,
) -> AdaptiveModel:
    """`adapt` with every option.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    if bits not in BITS:
        raise OptionError(f"bits='{bits}'", hint=f"choose one of {', '.join(BITS)}")
    if budget_runs < 0 or max_slowdown < 1:
        raise OptionError(
            f"budget_runs={budget_runs}, max_slowdown={max_slowdown}",
            hint="give a number of calls from 0 on and a factor of at least 1",
        )
    if options.device not in DEVICES:
        raise OptionError(
            f"adapt() on {options.device}", hint=f"use one of {', '.join(DEVICES)}, or compile with policy='auto'"
        )
    graph, kind = read_with(model, options, example)
    if graph.states:
        raise OptionError("adapt() of a model with state", hint="compile it: a state cannot change its program")
    device, vdevice = find_target(options)
    check_arrays(graph, vdevice)
    tasks = lower_graph(graph, vdevice, options, Dump(options.dump_dir))
    measured = measure_kernels(tasks, device, vdevice, options)
    costs = MeasuredCosts(measured, ModelCosts(vdevice))

    def build(plan: Plan) -> Executable:
        made = partial(kind, **interface_of(graph, tasks.in_place))
        return build_plan(plan, measured, device, vdevice, options, silent, made)

    def planned(schedule: Schedule) -> Plan:
        return plan_memory(tasks, schedule, vdevice, Dump(None))

    first = planned(choose_schedule(tasks, vdevice, costs, options, run_times(device, options)))
    learnt = None if store is None else Learnt(store / f"{_digest_of_model(first, vdevice)}.json")
    policies = [POLICIES[name] for name in _TRIED]
    exploration = Exploration(tasks, first.schedule, vdevice, costs, policies, any_bits=bits == "any")

    def predicted_us(schedule: Schedule) -> float:
        return simulate(tasks, schedule, vdevice, costs).total_us

    arms = _Arms(exploration, first.schedule, predicted_us, lambda schedule: build(planned(schedule)))
    digest = _digest(first.schedule)
    return AdaptiveModel(build(first), arms.all(), budget_runs, max_slowdown, digest=digest, learnt=learnt)


class _Arms:
    """What is tried of a model: schedules by other policies, then for each epoch the best of any of them."""

    def __init__(
        self,
        exploration: Exploration,
        first: Schedule,
        predicted_us: Callable[[Schedule], float],
        build: Callable[[Schedule], Executable],
    ) -> None:
        self._exploration, self._predicted_us, self._build = exploration, predicted_us, build
        self._first_us = predicted_us(first) or 1.0
        self._known = [first]

    def all(self) -> Iterator[Arm]:
        """Every arm; which comes next may depend on what became of those before."""
        for option in self._exploration.wholes(self._predicted_us):
            source, place = option
            name = f"{_TRIED[place - 1]}, places and order" if place else f"{_TRIED[source - 1]}, rKernels"
            options = dict.fromkeys(self._exploration.parts, option)
            yield from self._whole(self._exploration.whole(option), name, options)
        if self._exploration.has_epochs:
            yield from self._by_epochs()
            best = self._exploration.composed(self._exploration.best, barriers=False)
            yield from self._whole(best, "each epoch's best", {})

    def _whole(self, schedule: Schedule, name: str, options: Options) -> Iterator[Arm]:
        """A schedule that is judged as a whole, unless it was before; if it gains, parts have these options."""
        if any((schedule.choice, schedule.programs) == (one.choice, one.programs) for one in self._known):
            return
        self._known.append(schedule)

        def learn(gains: Mapping[str, bool]) -> None:
            if gains[WHOLE]:
                self._exploration.take(options)

        yield self._arm(schedule, name, learn)

    def _by_epochs(self) -> Iterator[Arm]:
        """Programs with a barrier behind each epoch, so that each part is judged apart."""
        exploration = self._exploration
        changes = exploration.changes()
        change = next(changes, None)
        while change is not None:
            gains: dict[str, bool] = {}
            beside = exploration.composed(exploration.best, barriers=True)
            schedule = exploration.composed({**exploration.best, **change}, barriers=True)
            parts = Parts(
                programs={part: exploration.parts[part] for part in change},
                digest=_digest(beside),
                beside=partial(self._build, beside),
            )
            yield self._arm(schedule, "other options", gains.update, parts)
            try:
                change = changes.send(gains)
            except StopIteration:
                return

    def _arm(
        self, schedule: Schedule, name: str, learn: Callable[[Mapping[str, bool]], None], parts: Parts | None = None
    ) -> Arm:
        return Arm(
            name=name,
            digest=_digest(schedule),
            predicted=self._predicted_us(schedule) / self._first_us,
            build=partial(self._build, schedule),
            learn=learn,
            parts=parts,
        )


def _digest(schedule: Schedule) -> str:
    """Equal for equal programs of a model."""
    return hashlib.sha256(repr((schedule.choice, schedule.programs)).encode()).hexdigest()


def _digest_of_model(first: Plan, vdevice: VDevice) -> str:
    """Equal for equal work, whatever the weights, on alike machines with the same compiler."""
    machine = repr((vdevice.kind, vdevice.name, vdevice.veu_count, vdevice.compiler))
    return hashlib.sha256(machine.encode() + saved_tasks(first, {})).hexdigest()
