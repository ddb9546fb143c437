"""From a graph to a proved plan, step by step; a verifier stands after every step.

Graph ─rewrite_graph─▶ Graph ─lower_rewritten─▶ TaskGraph ─choose_schedule─▶ Schedule ─lay_out, prove─▶ Plan
"""

from __future__ import annotations

from collections.abc import Callable

from rammer.devices.base import Device
from rammer.errors import OptionError
from rammer.inspection.dump import Dump
from rammer.ir.graph import Graph
from rammer.ir.program import Plan, Schedule
from rammer.ir.sizes import check_plan, size_text
from rammer.ir.task import RKernel, TaskGraph
from rammer.ir.vdevice import CostModel, Figure, VDevice
from rammer.lowering.lower import lower
from rammer.options import CompileOptions
from rammer.passes.pipeline import passes_of, run_passes
from rammer.pipelines.merging import merge_for_stages
from rammer.profiler.admission import admit
from rammer.profiler.measure import profile
from rammer.profiler.whole import measure_plan
from rammer.roller.model import ModelCosts
from rammer.roller.trees import check_use
from rammer.schedule import memory
from rammer.schedule.policies import MERGING, POLICIES, auto
from rammer.timings import timed
from rammer.verify import graph as verify_graph
from rammer.verify import program as verify_program
from rammer.verify import tasks as verify_tasks

Progress = Callable[[str, int, int], None]
RunUs = Callable[[Plan, VDevice], float]
"""The time of a plan's run in microseconds, on the vDevice or the part of one that it was made for."""


def silent(stage: str, done: int, total: int) -> None:
    """The `Progress` of a caller who does not want to know."""


def plan_graph(graph: Graph, vdevice: VDevice, options: CompileOptions, progress: Progress = silent) -> Plan:
    """From an imported graph to a verified plan by predicted costs: everything that needs no device.

    Raises:
        ModelError: the model cannot be used.
        OptionError: no such policy.
    """
    dump = Dump(options.dump_dir)
    tasks = lower_graph(graph, vdevice, options, dump, progress)
    return schedule_tasks(tasks, vdevice, ModelCosts(vdevice), options, dump, progress)


def lower_graph(
    graph: Graph, vdevice: VDevice, options: CompileOptions, dump: Dump, progress: Progress = silent
) -> TaskGraph:
    """From an imported graph to verified rOperators with their candidate rKernels.

    Raises:
        ModelError: the model cannot be used.
        OptionError: no such policy.
    """
    return lower_rewritten(rewrite_graph(graph, vdevice, options, dump, progress), vdevice, options, dump, progress)


def rewrite_graph(
    graph: Graph, vdevice: VDevice, options: CompileOptions, dump: Dump, progress: Progress = silent
) -> Graph:
    """From an imported graph to what is lowered: every pass, with a verifier after each.

    Raises:
        ModelError: the model cannot be used.
        OptionError: no such policy.
    """
    if options.policy not in POLICIES:
        raise OptionError(f"policy '{options.policy}'", hint=f"choose one of {', '.join(POLICIES)}")

    proved: Graph | None = None
    merge = merge_for_stages if options.policy in MERGING else None
    done, total = 0, len(passes_of(options.numerics, merge))

    def after(name: str, current: Graph) -> None:
        nonlocal proved, done
        if current is not proved:
            with timed("graph", "verify"):
                verify_graph.verify(current)
            proved = current
        dump.write(name, current)
        progress("passes", done, total)
        done += 1

    after("import", graph)
    return run_passes(graph, vdevice, after, options.numerics, merge)


def lower_rewritten(
    graph: Graph, vdevice: VDevice, options: CompileOptions, dump: Dump, progress: Progress = silent
) -> TaskGraph:
    """From a graph that went through the passes to verified rOperators, with candidates for `vdevice`.

    Raises:
        OptionError: a strategy for trees was asked for that does not hold.
    """
    progress("lower", 0, 1)
    with timed("lower") as step:
        tasks = lower(graph, vdevice, to_measure=options.tune == "measured")
        candidates = {kernel for operator in tasks.operators for kernel in operator.kernels}
        step.made = f"{len(tasks.operators)} rOperators, {len(candidates)} rKernels"
    check_use(tasks, vdevice)
    with timed("tasks", "verify"):
        verify_tasks.verify(tasks)
    dump.write("tasks", tasks)
    return tasks


def measure_kernels(
    tasks: TaskGraph, device: Device, vdevice: VDevice, options: CompileOptions, progress: Progress = silent
) -> dict[RKernel, Figure]:
    """The measured times of all candidate rKernels, none unless `options.tune` is "measured".

    Users' own rKernels are compared with their meaning first.

    Raises:
        KernelRejectedError: one of those computes something else.
        DeviceError: the compiler cannot be run.
    """
    kernels = dict.fromkeys(kernel for operator in tasks.operators for kernel in operator.kernels)
    if vdevice.externs:
        with timed("admit"):
            admit(tuple(kernels), device, vdevice, options)
    if options.tune != "measured":
        return {}
    with timed("measure"):
        return profile(tuple(kernels), device, vdevice, options, lambda done, total: progress("measure", done, total))


def run_times(device: Device, options: CompileOptions) -> RunUs | None:
    """What measures whole programs, where `options.tune` asks for measured times."""
    return None if options.tune == "none" else lambda plan, part: measure_plan(plan, device, part, options).value


def schedule_tasks(
    tasks: TaskGraph,
    vdevice: VDevice,
    costs: CostModel,
    options: CompileOptions,
    dump: Dump,
    progress: Progress = silent,
    run_us: RunUs | None = None,
) -> Plan:
    """From rOperators to a verified plan; `run_us` decides where the policy leaves a choice.

    Raises:
        OutOfMemoryError: it takes more memory than the device has.
    """
    progress("schedule", 0, 1)
    return plan_memory(tasks, choose_schedule(tasks, vdevice, costs, options, run_us), vdevice, dump)


def choose_schedule(
    tasks: TaskGraph, vdevice: VDevice, costs: CostModel, options: CompileOptions, run_us: RunUs | None = None
) -> Schedule:
    """The schedule of the policy that was asked for; by `run_us`, if given, the quickest of what `auto` offers."""
    with timed("schedule") as step:
        if options.policy == "auto" and run_us is not None:
            found = auto.all_searched(tasks, vdevice, costs)
            tried = [one for one, _ in auto.worth_measuring(tasks, vdevice, costs, found)]
            schedule = min(tried, key=lambda one: run_us(plan_memory(tasks, one, vdevice, Dump(None)), vdevice))
        else:
            schedule = POLICIES[options.policy](tasks, vdevice, costs)
        steps = sum(len(queue) for program in schedule.programs for queue in program.steps)
        step.made = f"{steps} steps in {len(schedule.programs)} rProgram(s)"
    return schedule


def plan_memory(tasks: TaskGraph, schedule: Schedule, vdevice: VDevice, dump: Dump) -> Plan:
    """From a schedule to a verified plan.

    Raises:
        OutOfMemoryError: it takes more memory than the device has.
    """
    plan = lay_out(tasks, schedule, vdevice)
    prove(plan, vdevice, dump)
    return plan


def lay_out(tasks: TaskGraph, schedule: Schedule, vdevice: VDevice) -> Plan:
    """From a schedule to a plan that is to be proved.

    Raises:
        OutOfMemoryError: it takes more memory than the device has.
    """
    with timed("memory") as step:
        arenas = memory.plan(tasks, schedule, vdevice.alignment_bytes, vdevice.homes)
        step.made = f"{size_text(arenas.arena_bytes)} for {len(arenas.offsets_bytes)} tensors"
    plan = Plan(graph=tasks, schedule=schedule, memory=arenas)
    check_plan(plan, vdevice)
    return plan


def prove(plan: Plan, vdevice: VDevice, dump: Dump) -> None:
    """Verify a plan, and dump it."""
    with timed("program", "verify"):
        verify_program.verify(plan, vdevice)
    dump.write("program", plan)
