"""compile_graph(): the whole pipeline on one page. Data flows one way; a verifier stands after every step (`planning`).

The last one proves the plan while the device's compilers work on it; where code follows from the schedule alone, they
begin before memory is planned.

model ─frontends─▶ Graph ─passes─▶ Graph ─lowering─▶ TaskGraph ─schedule─▶ Plan ─devices─▶ Executable
                                                         └─profiler─▶ costs ─┘
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rammer.devices.base import Binary, Device, Early, Placing, Source
from rammer.devices.registry import find_device
from rammer.inspection.report import Explained, build_report
from rammer.ir.graph import Graph
from rammer.ir.program import Plan, Schedule
from rammer.ir.saved_tasks import saved_tasks
from rammer.ir.sizes import check_arrays, size_text
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.vdevice import Figure, VDevice
from rammer.options import CompileOptions
from rammer.pipelines.garbage import seldom_collected
from rammer.pipelines.planning import (
    Progress,
    lay_out,
    prove,
    silent,
)
from rammer.pipelines.scheduling import as_asked, schedule_graph
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.executable import Executable
from rammer.runtime.signature import Port, Signature
from rammer.schedule.bound import find_edges
from rammer.schedule.estimates import Estimates
from rammer.schedule.simulator import simulate
from rammer.timings import timed

_log = logging.getLogger(__name__)


@seldom_collected()
def compile_graph(
    graph: Graph,
    options: CompileOptions,
    progress: Progress = silent,
    kind: Callable[..., Executable] = Executable,
) -> Executable:
    """From an imported graph to what runs it.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    device, vdevice = find_target(options)
    check_arrays(graph, vdevice)
    _log.info("%s: %d operators, for %s, %d vEUs", graph.name, len(graph.operators), vdevice.name, vdevice.veu_count)
    one = schedule_graph(graph, device, vdevice, options, progress)
    made = partial(kind, **interface_of(graph, one.tasks.in_place))
    with begin(device, one.tasks, one.schedule, one.vdevice, options, progress) as begun:
        plan = lay_out(one.tasks, one.schedule, one.vdevice)
        proof = partial(prove, plan, one.vdevice, one.dump)
        return build_plan(plan, one.measured, device, one.vdevice, options, progress, made, proof, begun)


def find_target(options: CompileOptions) -> tuple[Device, VDevice]:
    """The device and its description.

    Raises:
        OptionError: there is no such device, or it lacks the precision or the strategy for trees.
        DeviceError: the device is not here.
    """
    device = find_device(options.device)
    return device, as_asked(device.describe(options), options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a device's compilers work on before there is a plan.

    Attributes:
        complete: makes of it the source of the plan.
        binary: what it becomes.
    """

    complete: Callable[[Plan, VDevice], Source]
    binary: Future[Binary]


@contextmanager
def begin(
    device: Device, graph: TaskGraph, schedule: Schedule, vdevice: VDevice, options: CompileOptions, progress: Progress
) -> Iterator[Begun | None]:
    """Let the device's compilers work on the code of a schedule meanwhile; None where code needs a plan.

    They are waited for in the end, whatever happens.
    """
    if not isinstance(device, Early):
        yield None
        return
    with timed("code"):
        code = device.code(graph, schedule, vdevice)

    def build() -> Binary:
        return device.build(code, options, lambda done, total: progress("build", done, total))

    with ThreadPoolExecutor(1) as beside:
        yield Begun(complete=partial(device.complete, code=code), binary=beside.submit(copy_context().run, build))


def build_plan(
    plan: Plan,
    measured: Mapping[RKernel, Figure],
    device: Device,
    vdevice: VDevice,
    options: CompileOptions,
    progress: Progress,
    kind: Callable[..., Executable],
    meanwhile: Callable[[], None] = lambda: None,
    begun: Begun | None = None,
) -> Executable:
    """From a plan to what runs it.

    Args:
        plan: the plan. One that is not verified yet is so by `meanwhile`.
        measured: times of rKernels that it was made with.
        device: what it is for.
        vdevice: the device's description.
        options: how to build and run it.
        progress: is told of the building.
        kind: makes the executable; it has the signature and the states' initial values.
        meanwhile: is called while the device's compilers work, which need no Python.
        begun: what they work on by now.

    Raises:
        DeviceError: the machine cannot do what was asked.
    """
    with timed("emit") as step:
        source = device.emit(plan, vdevice) if begun is None else begun.complete(plan, vdevice)
        step.made = f"{len(source.files)} files, {size_text(sum(map(len, source.files.values())))}"

    def explained() -> tuple[bytes, bytes]:
        meanwhile()
        with timed("report"):
            return explain(plan, measured, vdevice), saved_tasks(plan, measured) if isinstance(device, Placing) else b""

    progress("build", 0, 1)
    with ThreadPoolExecutor(1) as beside:
        with timed("build"):
            explaining = beside.submit(copy_context().run, explained)
            if begun is None:
                binary = device.build(source, options, lambda done, total: progress("build", done, total))
            else:
                binary = begun.binary.result()
        report, tasks = explaining.result()
    return kind(
        name=plan.graph.name, device=device, source=source, binary=binary, report=report, tasks=tasks, options=options
    )


def explain(plan: Plan, measured: Mapping[RKernel, Figure], vdevice: VDevice) -> bytes:
    """The report of a plan.

    Args:
        plan: the plan.
        measured: times of rKernels that it was made with.
        vdevice: what it is for.
    """
    model = ModelCosts(vdevice)
    costs = MeasuredCosts(measured, model)
    timeline = simulate(plan.graph, plan.schedule, vdevice, costs)
    _log.info(
        "%s: %d rOperators in %d rProgram(s) by the policy %s, predicted %.1f us",
        plan.graph.name,
        len(plan.graph.operators),
        len(plan.schedule.programs),
        plan.schedule.policy,
        timeline.total_us,
    )
    known = Explained(
        device=vdevice,
        model=model,
        measured=measured,
        task_us=Estimates(plan.graph, vdevice, costs).task_us,
        edges=[(edge.producer, edge.consumer, edge.starts, edge.ends) for edge in find_edges(plan.graph)],
        predicted=timeline,
    )
    return build_report(plan, known)


def interface_of(graph: Graph, in_place: tuple[int, ...] = ()) -> dict[str, Any]:
    """What an `Executable` is told of the model beside the program; `in_place` are states, by position."""
    signature = replace(signature_of(graph), in_place=in_place)
    return {"signature": signature, "initial": [state.initial for state in graph.states]}


def signature_of(graph: Graph) -> Signature:
    """What the compiled model takes, gives and keeps."""
    count = len(graph.states)
    taken, given = (
        tuple(Port(graph.values[i].name, graph.values[i].type) for i in side) for side in (graph.inputs, graph.outputs)
    )
    return Signature(
        inputs=taken[: len(taken) - count],
        outputs=given[: len(given) - count],
        states=tuple(
            Port(state.name, port.type) for state, port in zip(graph.states, taken[len(taken) - count :], strict=True)
        ),
    )
