"""schedule_graph(): from a graph to the schedule that a program is made of, whoever decides on it.

Mostly that is a policy. Where `auto` is to measure programs, it takes the quickest (`measured`) for the device as it is
described and as it can be divided otherwise, and with less of minimal filtering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rammer.devices.base import Device, Divisible
from rammer.errors import OptionError
from rammer.extending import kernels_for
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.ir.program import Schedule
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.vdevice import Figure, VDevice
from rammer.options import CompileOptions
from rammer.pipelines.measured import Costed, find_quickest
from rammer.pipelines.planning import Progress, choose_schedule, lower_graph, measure_kernels, silent
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.roller.trees import check_strategy

_TRANSFORM = "ConvInputTransform"  # what minimal filtering begins with


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
        return _scheduled(whole, choose_schedule(whole.tasks, vdevice, whole.costs, options))
    made = [
        whole,
        *_divided(graph, device, options, progress),
        *_less_filtered(graph, device, whole, options, progress),
    ]
    one, schedule = find_quickest(made, device, options)
    return _scheduled(one, schedule)


def _divided(graph: Graph, device: Device, options: CompileOptions, progress: Progress) -> list[Costed]:
    """The rOperators for the device as it can be divided otherwise."""
    made = []
    for number, other in enumerate(device.divisions(options) if isinstance(device, Divisible) else (), 1):
        dump = Dump(None if options.dump_dir is None else options.dump_dir / f"division-{number}")
        made.append(_costed(graph, device, as_asked(other, options), options, dump, progress))
    return made


def _less_filtered(
    graph: Graph, device: Device, whole: Costed, options: CompileOptions, progress: Progress
) -> list[Costed]:
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


def _scheduled(one: Costed, schedule: Schedule) -> Scheduled:
    return Scheduled(vdevice=one.vdevice, tasks=one.tasks, measured=one.measured, schedule=schedule, dump=one.dump)


def _costed(
    graph: Graph, device: Device, vdevice: VDevice, options: CompileOptions, dump: Dump, progress: Progress
) -> Costed:
    """The rOperators of a graph for a description of the device, with measured times if these are asked for."""
    tasks = lower_graph(graph, vdevice, options, dump, progress)
    measured = measure_kernels(tasks, device, vdevice, options, progress)
    costs = MeasuredCosts(measured, ModelCosts(vdevice))
    return Costed(vdevice=vdevice, tasks=tasks, measured=measured, costs=costs, dump=dump)


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
