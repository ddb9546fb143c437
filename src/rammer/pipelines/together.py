"""compile_together(): the pipeline for several models that become one program.

Each model goes through passes by itself, for the whole device, and is lowered and scheduled for some of the execution
units, as if there were no others. Then the schedules are joined, and what comes after is as for one model: one memory
plan, one proof, one program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.ir.program import Plan, Schedule
from rammer.ir.sizes import check_arrays
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.timeline import Timeline
from rammer.ir.vdevice import CostModel, Figure, VDevice
from rammer.lowering import join as joined_tasks
from rammer.lowering.join import Member, named
from rammer.options import CompileOptions
from rammer.pipelines.compiler import build_plan, find_target, signature_of
from rammer.pipelines.garbage import seldom_collected
from rammer.pipelines.planning import (
    Progress,
    RunUs,
    choose_schedule,
    lower_rewritten,
    measure_kernels,
    plan_memory,
    rewrite_graph,
    run_times,
    silent,
)
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.executable import Executable
from rammer.runtime.signature import Port, Signature
from rammer.schedule import join as joined_schedules
from rammer.schedule.estimates import busy_bytes
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
    for number, planner in enumerate(planners):
        planner.share_caches(sum(other.busy_bytes for other in planners[:number] + planners[number + 1 :]))
    with timed("partitions") as step:
        priorities = [model.priority for model in models]

        def cost_of_taking_over(first: int, share: int) -> float:
            busy_us = planners[first].ends_us(_Part(range(share)))
            last_us = planners[1 - first].time_us(_Part(range(vdevice.veu_count), busy_us))
            return max(
                priorities[first] * planners[first].time_us(_Part(range(share))), priorities[1 - first] * last_us
            )

        partitions = find_partitions(
            vdevice.veu_count,
            priorities,
            lambda number, veus: planners[number].time_us(_Part(range(veus))),
            cost_of_taking_over,
        )
        step.made = ", ".join(f"{len(partition.models)} on {len(partition.veus)} vEUs" for partition in partitions)
    parts: dict[int, _Part] = {}
    for partition in partitions:
        part = _Part(partition.veus)
        if partition.taken_over:
            ((first, own),) = parts.items()
            part = _Part(partition.veus, planners[first].ends_us(own, quickly=False))
        parts |= dict.fromkeys(partition.models, part)
    placed = [
        Placed(schedule=planners[number].schedule(parts[number]), veus=parts[number].veus)
        for number in range(len(models))
    ]
    members = [
        Member(name=model.name, tasks=planners[number].tasks(parts[number])) for number, model in enumerate(models)
    ]
    tasks = joined_tasks.join("+".join(model.name for model in models), members)
    with timed("tasks", "verify"):
        verify_tasks.verify(tasks)
    dump = Dump(options.dump_dir)
    dump.write("tasks", tasks)
    schedule = joined_schedules.join(placed, list(parts), vdevice.veu_count)
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


@dataclass(frozen=True, slots=True)
class _Part:
    """Of a device: some vEUs, the first of which another model has for so long (one time each)."""

    veus: range
    busy_us: tuple[float, ...] = ()


_Homes = tuple[int, ...]
_Key = tuple[str, _Homes, tuple[float, ...]]
"""A policy and what decides what it makes of a part."""


class _Planner:
    """Schedules of one model for parts of the device, each made once, and how long they would take.

    rKernels are those for the part: how an rOperator is best cut follows from how many units there are. Passes are for
    the whole device, since what is next to a part is not idle.

    What simulation gets wrong of a model is much the same on any number of units, so that one measured run, on an even
    share, corrects it. Beside others a model's constants may come from memory that would be in a cache without them.
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
        self._others_bytes = 0
        self._lowered: dict[tuple[_Homes, int], tuple[TaskGraph, CostModel]] = {}
        self._schedules: dict[_Key, Schedule] = {}
        self._timelines: dict[_Key, Timeline] = {}

    @property
    def busy_bytes(self) -> int:
        """What a run comes back to, on an even share."""
        return busy_bytes(self.tasks(_Part(range(self._even))))

    def share_caches(self, others_bytes: int) -> None:
        """Count with what runs of other models come back to meanwhile, before the first time is asked for."""
        self._others_bytes = others_bytes

    def tasks(self, part: _Part) -> TaskGraph:
        """The rOperators, with candidates for a part."""
        return self._lower(part)[0]

    def schedule(self, part: _Part, *, quickly: bool = False) -> Schedule:
        """The schedule for a part, or one that is made `quickly`; those of equal homes are as good as each other."""
        options = self._quick if quickly else self._options
        key = options.policy, self._homes(part), part.busy_us
        if key not in self._schedules:
            tasks, costs = self._lower(part)
            self._schedules[key] = choose_schedule(tasks, self._share(part), costs, options, self._run_us)
        return self._schedules[key]

    def time_us(self, part: _Part) -> float:
        """The time on a part, in microseconds."""
        return self._timeline(part, quickly=True).total_us * self._correction

    def ends_us(self, part: _Part, *, quickly: bool = True) -> tuple[float, ...]:
        """When each vEU of a part has ended, in microseconds from when the first rTasks start."""
        ends_us = [0.0] * len(part.veus)
        for span in self._timeline(part, quickly=quickly).spans:
            ends_us[span.veu] = max(ends_us[span.veu], span.end_us - self._vdevice.start_us.value)
        return tuple(end_us * self._correction for end_us in ends_us)

    @cached_property
    def _correction(self) -> float:
        """The measured time on an even share over the simulated one; 1 where nothing is measured."""
        part = _Part(range(self._even))
        simulated_us = self._timeline(part, quickly=True).total_us
        if self._run_us is None or not simulated_us:
            return 1.0
        share = self._share(part)
        plan = plan_memory(self.tasks(part), self.schedule(part, quickly=True), share, Dump(None))
        return self._run_us(plan, share) / simulated_us

    def _timeline(self, part: _Part, *, quickly: bool) -> Timeline:
        options = self._quick if quickly else self._options
        key = options.policy, self._homes(part), part.busy_us
        if key not in self._timelines:
            tasks, costs = self._lower(part)
            schedule = self.schedule(part, quickly=quickly)
            self._timelines[key] = simulate(tasks, schedule, self._beside(self._share(part)), costs)
        return self._timelines[key]

    def _lower(self, part: _Part) -> tuple[TaskGraph, CostModel]:
        """The rOperators with candidates for a part of the device, and what these cost.

        Where another model has vEUs first, there are candidates for the others, too.
        """
        key = self._homes(part), len(part.busy_us)
        if key not in self._lowered:
            share = self._share(part)
            tasks = lower_rewritten(self._graph, share, self._options, Dump(None))
            if part.busy_us and (others := part.veus[len(part.busy_us) :]):
                tasks = _with_candidates_of(tasks, self.tasks(_Part(others)))
            self._lowered[key] = tasks, MeasuredCosts(self._measure(tasks), ModelCosts(share))
        return self._lowered[key]

    def _homes(self, part: _Part) -> _Homes:
        return tuple(self._vdevice.veus[veu].home for veu in part.veus)

    def _beside(self, share: VDevice) -> VDevice:
        """A part of the device with what other models leave of the caches that all share."""
        *caches, memory = share.levels
        left = [
            replace(level, capacity_bytes=max(0, level.capacity_bytes - level.copies * self._others_bytes))
            if level.shared
            else level
            for level in caches
        ]
        return replace(share, levels=(*left, memory))

    def _share(self, part: _Part) -> VDevice:
        """A part of the device's execution units."""
        veus = tuple(self._vdevice.veus[veu] for veu in part.veus)
        busy_us = tuple(time_us / self._correction for time_us in part.busy_us)
        return replace(
            self._vdevice,
            veus=veus,
            has_neighbours=len(veus) < self._vdevice.veu_count or bool(busy_us),
            busy_us=busy_us + (0.0,) * (len(veus) - len(busy_us)) if busy_us else (),
        )


def _with_candidates_of(tasks: TaskGraph, others: TaskGraph) -> TaskGraph:
    """A task graph whose rOperators have more candidates, those of the same work on the same tensors in another one."""
    if tasks.tensors != others.tensors:
        return tasks
    operators = tuple(
        replace(operator, kernels=tuple(dict.fromkeys((*operator.kernels, *other.kernels))))
        if (operator.reads, operator.writes) == (other.reads, other.writes)
        else operator
        for operator, other in zip(tasks.operators, others.operators, strict=True)
    )
    return replace(tasks, operators=operators)
