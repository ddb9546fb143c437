"""place(): the rTasks of a saved model on another number of vEUs.

The task graph in the file has the rKernels whose code is there, too. It is proved again, scheduled for the machine at
hand, and the plan is proved as all are; then new tables run the same code over the same constants. All rTasks are the
same, so results are the same bits.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from rammer.devices.base import Buffer, Device, Placing, Source
from rammer.errors import OptionError, VerificationError
from rammer.inspection.dump import Dump
from rammer.ir.saved_tasks import SavedTasks, read_tasks
from rammer.ir.schema import SchemaError
from rammer.options import CompileOptions
from rammer.pipelines.compiler import explain
from rammer.pipelines.garbage import seldom_collected
from rammer.pipelines.planning import choose_schedule, plan_memory
from rammer.profiler.costs import MeasuredCosts
from rammer.roller.model import ModelCosts
from rammer.runtime.chained import CHAIN
from rammer.schedule.policies import POLICIES
from rammer.verify import tasks as verify_tasks

_log = logging.getLogger(__name__)


@seldom_collected()
def place(device: Device, source: Source, tasks: Buffer, options: CompileOptions) -> tuple[Source, bytes]:
    """A source and its report, for as many vEUs as the options say.

    Args:
        device: of the source.
        source: of a saved model; its tables were checked.
        tasks: its task graph as it was saved; empty where it was not.
        options: how to run it.

    Raises:
        OptionError: its device cannot, its file lacks what it takes, or there cannot be so many vEUs.
        OutOfMemoryError: it takes more memory than there is.
        SchemaError: the task graph is not that of the source, unsound, or not for this machine.
    """
    if not isinstance(device, Placing) or not tasks:
        why = "was saved without its task graph" if isinstance(device, Placing) else f"was compiled for {device.name}"
        why = "has loops that are programs of their own" if CHAIN in source.files else why
        raise OptionError(
            f"veus={options.veus} for a model that {why}, which keeps its number",
            hint=f"compile the model again with veus={options.veus}, or name no number (RAMMER_VEUS does, too)",
        )
    saved = _read(device, source, tasks)
    # Measuring the machine would take a compiler.
    options = replace(options, policy=saved.policy, tune="none", figures="described")
    vdevice = device.describe(options)
    measured = {one.kernel: one.task_us for one in saved.measured}
    costs = MeasuredCosts(measured, ModelCosts(vdevice))
    graph = saved.graph
    schedule = choose_schedule(graph, vdevice, costs, options)
    try:
        plan = plan_memory(graph, schedule, vdevice, Dump(None))
    except VerificationError as error:  # as where a cache is smaller than that of the machine that chose the tiles
        raise SchemaError(f"its rTasks cannot be placed here: {error.code}, {error.message}") from error
    _log.info("%s: placed on %d vEUs", graph.name, vdevice.veu_count)
    if vdevice.veu_count > saved.veus:
        _log.warning(
            "%s: its tiles were chosen for %d vEUs, and %d may find too little work: compile it with veus=%d",
            *(graph.name, saved.veus, vdevice.veu_count, vdevice.veu_count),
        )
    return device.placed(source, plan), explain(plan, measured, vdevice)


def _read(device: Placing, source: Source, tasks: Buffer) -> SavedTasks:
    """A task graph that is sound, and that of a source.

    Raises:
        SchemaError: it is not.
    """
    saved = read_tasks(tasks)
    try:
        graph = saved.graph
        device.check_tasks(source, graph)
        verify_tasks.verify(graph)
    except (VerificationError, ValueError, ArithmeticError, LookupError) as error:
        raise SchemaError(f"its task graph does not hold: {error}") from error
    if saved.policy not in POLICIES:
        raise SchemaError(f"its policy is '{saved.policy}', which there is not")
    return saved
