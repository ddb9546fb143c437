"""adapt_with(): a compiled model, and other programs of it that it may try while it is called.

The programs are schedules by other policies of the same rOperators, proved and compiled as all are. Of those with the
same rKernels only the tables differ, places and order, so they give the same bits; others may round otherwise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
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
from rammer.ir.task import TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.kinds import read_with
from rammer.options import CompileOptions
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.adaptive import AdaptiveModel, Arm
from rammer.runtime.executable import Executable
from rammer.runtime.learnt import Learnt
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
        return build_plan(plan, measured, device, vdevice, options, silent, partial(kind, **interface_of(graph)))

    def planned(schedule: Schedule) -> Plan:
        return plan_memory(tasks, schedule, vdevice, Dump(None))

    first = planned(choose_schedule(tasks, vdevice, costs, options, run_times(device, options)))
    learnt = None if store is None else Learnt(store / f"{_digest_of_model(first, vdevice)}.json")
    arms = _arms(tasks, first.schedule, vdevice, costs, lambda schedule: build(planned(schedule)), bits)
    digest = _digest(first.schedule)
    return AdaptiveModel(build(first), arms, budget_runs, max_slowdown, digest=digest, learnt=learnt)


def _arms(
    tasks: TaskGraph,
    first: Schedule,
    vdevice: VDevice,
    costs: CostModel,
    build: Callable[[Schedule], Executable],
    bits: str,
) -> Iterator[Arm]:
    """Other schedules: of the same rKernels, then, where bits may differ, of others; each once."""
    first_us = simulate(tasks, first, vdevice, costs).total_us
    known = [first]
    fixed = replace(
        tasks,
        operators=tuple(
            replace(operator, kernels=(operator.kernels[pick],))
            for operator, pick in zip(tasks.operators, first.choice, strict=True)
        ),
    )
    for graph, what in ((fixed, "places and order"), (tasks, "rKernels")):
        if graph is tasks and bits == "same":
            return
        for policy in _TRIED:
            schedule = POLICIES[policy](graph, vdevice, costs)
            if graph is fixed:
                schedule = replace(schedule, choice=first.choice)
            if all((schedule.choice, schedule.programs) != (one.choice, one.programs) for one in known):
                known.append(schedule)
                predicted = simulate(tasks, schedule, vdevice, costs).total_us / first_us if first_us else 1.0
                yield Arm(
                    name=f"{policy}, {what}",
                    digest=_digest(schedule),
                    predicted=predicted,
                    build=partial(build, schedule),
                )


def _digest(schedule: Schedule) -> str:
    """Equal for equal programs of a model."""
    return hashlib.sha256(repr((schedule.choice, schedule.programs)).encode()).hexdigest()


def _digest_of_model(first: Plan, vdevice: VDevice) -> str:
    """Equal for equal work, whatever the weights, on alike machines with the same compiler."""
    machine = repr((vdevice.kind, vdevice.name, vdevice.veu_count, vdevice.compiler))
    return hashlib.sha256(machine.encode() + saved_tasks(first, {})).hexdigest()
