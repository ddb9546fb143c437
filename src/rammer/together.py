"""compile_together(): the pipeline for several models that become one program.

Each model is compiled for some of the execution units, as if there were no others: its passes, its rKernels and its
schedule are those that it would have alone on a device of so many units. Then the schedules are joined, and what comes
after is as for one model: one memory plan, one proof, one program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rammer.compiler import (
    Progress,
    build_plan,
    choose_schedule,
    find_target,
    lower_graph,
    measure_kernels,
    plan_memory,
    signature_of,
    silent,
)
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.ir.program import Plan
from rammer.ir.sizes import check_arrays
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.vdevice import Figure, VDevice
from rammer.lowering import join as joined_tasks
from rammer.lowering.join import Member, named
from rammer.options import CompileOptions
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.executable import Executable
from rammer.runtime.signature import Port, Signature
from rammer.schedule import join as joined_schedules
from rammer.schedule.join import Placed
from rammer.schedule.lanes import find_lanes
from rammer.schedule.simulator import simulate
from rammer.timings import timed
from rammer.verify import tasks as verify_tasks

Measure = Callable[[TaskGraph, VDevice], Mapping[RKernel, Figure]]
"""Gives the measured times of candidate rKernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model among others: its name, which no other has, its graph and how much its end counts."""

    name: str
    graph: Graph
    priority: float = 1.0


def compile_together(
    models: Sequence[Model], options: CompileOptions, progress: Progress, kind: Callable[..., Executable]
) -> Executable:
    """From imported graphs to what runs them all in one call.

    Args:
        models: with names of their own; graphs that are one object are planned once.
        options: for all of them.
        progress: told as work goes on.
        kind: makes the executable; it has the signature and the states' initial values.

    Raises:
        ModelError: a model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    device, vdevice = find_target(options)
    measured: dict[RKernel, Figure] = {}

    def measure(tasks: TaskGraph, share: VDevice) -> Mapping[RKernel, Figure]:
        measured.update(measure_kernels(tasks, device, share, options, progress))
        return measured

    plan = plan_together(models, vdevice, options, measure, progress)
    return build_plan(plan, measured, device, vdevice, options, progress, kind)


def plan_together(
    models: Sequence[Model],
    vdevice: VDevice,
    options: CompileOptions,
    measure: Measure = lambda tasks, share: {},
    progress: Progress = silent,
) -> Plan:
    """From imported graphs to a verified plan of them all; the lanes follow from predicted times.

    Raises:
        ModelError: a model cannot be used.
        OptionError: no such policy.
        OutOfMemoryError: they take more memory than the device has.
    """
    for model in models:
        check_arrays(model.graph, vdevice)
    trials = _Trials([model.graph for model in models], vdevice, options)
    progress("schedule", 0, 1)
    with timed("lanes") as step:
        lanes = find_lanes(vdevice.veu_count, [model.priority for model in models], trials.time_us)
        step.made = ", ".join(f"{len(lane.models)} on {len(lane.veus)} vEUs" for lane in lanes)
    members: dict[int, Member] = {}
    placed: dict[int, Placed] = {}
    for lane in lanes:
        share = _share(vdevice, lane.veus)
        for number in lane.models:
            model = models[number]
            dump = Dump(None if options.dump_dir is None else options.dump_dir / model.name)
            tasks = lower_graph(model.graph, share, options, dump, progress)
            schedule = choose_schedule(tasks, share, MeasuredCosts(measure(tasks, share), ModelCosts(share)), options)
            members[number] = Member(name=model.name, tasks=tasks, states=len(model.graph.states))
            placed[number] = Placed(schedule=schedule, veus=lane.veus)
    dump = Dump(options.dump_dir)
    joined = joined_tasks.join("+".join(model.name for model in models), [members[i] for i in range(len(models))])
    with timed("tasks", "verify"):
        verify_tasks.verify(joined)
    dump.write("tasks", joined)
    order = [number for lane in lanes for number in lane.models]
    schedules = [placed[number] for number in range(len(models))]
    return plan_memory(joined, joined_schedules.join(schedules, order, vdevice.veu_count), vdevice, dump)


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


class _Trials:
    """How long models would take on so many vEUs, by simulation of their schedules.

    For these a model is lowered once for the whole device, once for half of it, and so on: passes and Roller hardly
    decide otherwise for a few units more or less, and take longer than a schedule.
    """

    def __init__(self, graphs: Sequence[Graph], vdevice: VDevice, options: CompileOptions) -> None:
        self._graphs = graphs
        self._vdevice = vdevice
        self._options = options
        self._lowered: dict[tuple[int, int], TaskGraph] = {}
        self._times_us: dict[tuple[int, int], float] = {}

    def time_us(self, number: int, veus: int) -> float:
        """The time of a model on so many vEUs, in microseconds."""
        graph = self._graphs[number]
        key = (id(graph), veus)
        if key not in self._times_us:
            share = _share(self._vdevice, range(veus))
            costs = ModelCosts(share)
            tasks = self._tasks(graph, veus)
            schedule = choose_schedule(tasks, share, costs, self._options)
            self._times_us[key] = simulate(tasks, schedule, share, costs).total_us
        return self._times_us[key]

    def _tasks(self, graph: Graph, veus: int) -> TaskGraph:
        """A model lowered for about so many vEUs."""
        whole = self._vdevice.veu_count
        part = max(1, whole >> round(math.log2(whole / veus)))
        key = (id(graph), part)
        if key not in self._lowered:
            self._lowered[key] = lower_graph(graph, _share(self._vdevice, range(part)), self._options, Dump(None))
        return self._lowered[key]


def _share(vdevice: VDevice, veus: range) -> VDevice:
    """A part of a device's execution units."""
    return replace(vdevice, veus=tuple(vdevice.veus[veu] for veu in veus))
