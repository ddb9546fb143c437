"""compile_together(): the pipeline for several models that become one program.

Each model goes through passes by itself, for the whole device, and is lowered and scheduled for some of the execution
units, as if there were no others. Then the schedules are joined, and what comes after is as for one model: one memory
plan, one proof, one program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from rammer.compiler import (
    Progress,
    RunUs,
    build_plan,
    choose_schedule,
    find_target,
    lower_rewritten,
    measure_kernels,
    plan_memory,
    rewrite_graph,
    run_times,
    signature_of,
    silent,
)
from rammer.garbage import seldom_collected
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.ir.program import Plan, Schedule
from rammer.ir.sizes import check_arrays
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.vdevice import CostModel, Figure, VDevice
from rammer.lowering import join as joined_tasks
from rammer.lowering.join import Member, named
from rammer.options import CompileOptions
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.executable import Executable
from rammer.runtime.signature import Port, Signature
from rammer.schedule import join as joined_schedules
from rammer.schedule.join import Placed
from rammer.schedule.partitions import find_partitions
from rammer.schedule.simulator import simulate
from rammer.timings import timed
from rammer.verify import tasks as verify_tasks

_QUICK = {"critical-path": "wavefront", "auto": "wavefront"}
"""What stands in for policies that search, while partitions are tried: many schedules of each model."""

Measure = Callable[[TaskGraph], Mapping[RKernel, Figure]]
"""Gives the measured times of a task graph's candidate rKernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model among others: its name, which no other has, its graph and how much its end counts."""

    name: str
    graph: Graph
    priority: float = 1.0


@seldom_collected()
def compile_together(
    models: Sequence[Model], options: CompileOptions, progress: Progress, kind: Callable[..., Executable]
) -> Executable:
    """From imported graphs to what runs them all in one call.

    Args:
        models: with names of their own; graphs that are one object are planned once.
        options: for all of them.
        progress: told as work goes on.
        kind: makes the executable; it has the states' initial values.

    Raises:
        ModelError: a model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    device, vdevice = find_target(options)
    measured: dict[RKernel, Figure] = {}

    def measure(tasks: TaskGraph) -> Mapping[RKernel, Figure]:
        measured.update(measure_kernels(tasks, device, vdevice, options, progress))
        return measured

    plan = plan_together(models, vdevice, options, measure, run_times(device, options), progress)
    signature = replace(joined_signature(models), in_place=plan.graph.in_place)
    return build_plan(plan, measured, device, vdevice, options, progress, partial(kind, signature=signature))


def plan_together(
    models: Sequence[Model],
    vdevice: VDevice,
    options: CompileOptions,
    measure: Measure = lambda tasks: {},
    run_us: RunUs | None = None,
    progress: Progress = silent,
) -> Plan:
    """From imported graphs to a verified plan of them all.

    Args:
        models: with names of their own; graphs that are one object are planned once.
        vdevice: the device that they share.
        options: for all of them.
        measure: gives measured times of rKernels.
        run_us: gives measured times of programs; without it, partitions follow from predicted times alone.
        progress: told as work goes on.

    Raises:
        ModelError: a model cannot be used.
        OptionError: no such policy.
        OutOfMemoryError: they take more memory than the device has.
    """
    known: dict[int, _Planner] = {}
    even = max(1, vdevice.veu_count // len(models))
    for model in models:
        if id(model.graph) not in known:
            check_arrays(model.graph, vdevice)
            dump = Dump(None if options.dump_dir is None else options.dump_dir / model.name)
            graph = rewrite_graph(model.graph, vdevice, options, dump, progress)
            known[id(model.graph)] = _Planner(graph, vdevice, options, measure, run_us, even)
    planners = [known[id(model.graph)] for model in models]
    progress("schedule", 0, 1)
    with timed("partitions") as step:
        priorities = [model.priority for model in models]
        partitions = find_partitions(
            vdevice.veu_count, priorities, lambda number, veus: planners[number].time_us(range(veus))
        )
        step.made = ", ".join(f"{len(partition.models)} on {len(partition.veus)} vEUs" for partition in partitions)
    order = [(number, partition.veus) for partition in partitions for number in partition.models]
    placed = {number: Placed(schedule=planners[number].schedule(veus), veus=veus) for number, veus in order}
    members = [
        Member(name=model.name, tasks=planner.tasks(placed[number].veus))
        for number, (model, planner) in enumerate(zip(models, planners, strict=True))
    ]
    tasks = joined_tasks.join("+".join(model.name for model in models), members)
    with timed("tasks", "verify"):
        verify_tasks.verify(tasks)
    dump = Dump(options.dump_dir)
    dump.write("tasks", tasks)
    schedules = [placed[number] for number in range(len(models))]
    schedule = joined_schedules.join(schedules, [number for number, _ in order], vdevice.veu_count)
    return plan_memory(tasks, schedule, vdevice, dump)


def joined_signature(models: Sequence[Model]) -> Signature:
    """What a program of several models takes, gives and keeps: each port with its model's name in front."""
    inputs: list[Port] = []
    outputs: list[Port] = []
    states: list[Port] = []
    for model in models:
        own = signature_of(model.graph)
        for all_ports, ports in ((inputs, own.inputs), (outputs, own.outputs), (states, own.states)):
            all_ports += [Port(named(model.name, port.name), port.type) for port in ports]
    return Signature(inputs=tuple(inputs), outputs=tuple(outputs), states=tuple(states))


class _Planner:
    """Schedules of one model for parts of the device, each made once, and how long they would take.

    rKernels are those for the part: how an rOperator is best cut follows from how many units there are. Passes are for
    the whole device, since what is next to a part is not idle.

    What simulation gets wrong of a model is much the same on any number of units, so that one measured run, on an even
    share, corrects it.
    """

    def __init__(
        self,
        graph: Graph,
        vdevice: VDevice,
        options: CompileOptions,
        measure: Measure,
        run_us: RunUs | None,
        even: int,
    ) -> None:
        self._graph = graph
        self._vdevice = vdevice
        self._options = options
        self._quick = replace(options, policy=_QUICK.get(options.policy, options.policy))
        self._measure = measure
        self._run_us = run_us
        self._even = even
        self._lowered: dict[tuple[int, ...], tuple[TaskGraph, CostModel]] = {}
        self._schedules: dict[tuple[str, tuple[int, ...]], Schedule] = {}
        self._times_us: dict[tuple[int, ...], float] = {}

    def tasks(self, veus: range) -> TaskGraph:
        """The rOperators, with candidates for some vEUs."""
        return self._lower(self._share(veus))[0]

    def schedule(self, veus: range, *, quickly: bool = False) -> Schedule:
        """The schedule for some vEUs, or one that is made `quickly`; those of equal homes are as good as each other."""
        share, options = self._share(veus), self._quick if quickly else self._options
        key = options.policy, share.homes
        if key not in self._schedules:
            tasks, costs = self._lower(share)
            self._schedules[key] = choose_schedule(tasks, share, costs, options, self._run_us)
        return self._schedules[key]

    def time_us(self, veus: range) -> float:
        """The time on some vEUs, in microseconds."""
        return self._simulated_us(veus) * self._correction

    @cached_property
    def _correction(self) -> float:
        """The measured time on an even share over the simulated one; 1 where nothing is measured."""
        veus = range(self._even)
        if self._run_us is None or not self._simulated_us(veus):
            return 1.0
        share = self._share(veus)
        plan = plan_memory(self.tasks(veus), self.schedule(veus, quickly=True), share, Dump(None))
        return self._run_us(plan, share) / self._simulated_us(veus)

    def _simulated_us(self, veus: range) -> float:
        share = self._share(veus)
        if share.homes not in self._times_us:
            tasks, costs = self._lower(share)
            timeline = simulate(tasks, self.schedule(veus, quickly=True), share, costs)
            self._times_us[share.homes] = timeline.total_us
        return self._times_us[share.homes]

    def _lower(self, share: VDevice) -> tuple[TaskGraph, CostModel]:
        """The rOperators with candidates for a part of the device, and what these cost."""
        if share.homes not in self._lowered:
            tasks = lower_rewritten(self._graph, share, self._options, Dump(None))
            self._lowered[share.homes] = tasks, MeasuredCosts(self._measure(tasks), ModelCosts(share))
        return self._lowered[share.homes]

    def _share(self, veus: range) -> VDevice:
        """A part of the device's execution units."""
        has_neighbours = len(veus) < self._vdevice.veu_count
        return replace(
            self._vdevice, veus=tuple(self._vdevice.veus[veu] for veu in veus), has_neighbours=has_neighbours
        )
