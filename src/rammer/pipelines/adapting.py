"""adapt_with(): a compiled model, and other programs of it that it may try while it is called.

The programs are schedules by other policies of the same rOperators, proved and compiled as all are. Of those with the
same rKernels only the tables differ, places and order, so they give the same bits; others may round otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from rammer.errors import OptionError
from rammer.frontends.dispatch import Example
from rammer.inspection.dump import Dump
from rammer.ir.sizes import check_arrays
from rammer.options import CompileOptions
from rammer.pipelines.apart import ArmsApart
from rammer.pipelines.compiler import build_plan, find_target, interface_of
from rammer.pipelines.exploring import Explored, Written, digest_of, digest_of_model
from rammer.pipelines.guarded import guarded
from rammer.pipelines.kinds import read_with
from rammer.pipelines.planning import plan_memory, silent
from rammer.pipelines.scheduling import schedule_graph
from rammer.runtime.adaptive import AdaptiveModel
from rammer.runtime.beside import Beside
from rammer.runtime.executable import Executable
from rammer.runtime.learnt import Learnt

BITS = ("same", "any")


@guarded("compiled")
def adapt_with(
    model: object,
    options: CompileOptions,
    example: Example,
    *,
    budget_runs: int,
    max_slowdown: float,
    bits: str,
    budget_bytes: int,
    store: Path | None = None,
) -> AdaptiveModel:
    """`adapt` with every option.

    Raises:
        ModelError: the model cannot be used.
        OptionError: an option cannot be used.
        DeviceError: the machine cannot do what was asked.
    """
    _check(budget_runs, max_slowdown, bits, budget_bytes)
    graph, kind = read_with(model, options, example)
    if graph.states:
        raise OptionError("adapt() of a model with state", hint="compile it: a state cannot change its program")
    device, vdevice = find_target(options)
    check_arrays(graph, vdevice)
    found = schedule_graph(graph, device, vdevice, options)
    tasks, measured, vdevice = found.tasks, found.measured, found.vdevice
    explored = Explored(
        tasks=tasks,
        first=found.schedule,
        measured=measured,
        device=device,
        vdevice=replace(vdevice, externs=()),  # users' functions, which have made their rKernels by now
        any_bits=bits == "any",
    )
    plan = plan_memory(tasks, explored.first, vdevice, Dump(None))
    made = partial(kind, **interface_of(graph, tasks.in_place))
    first = build_plan(plan, measured, device, vdevice, options, silent, made)
    beside = Beside(first, device, options, made, budget_bytes)

    def finish(written: Written) -> Executable:
        return beside.made(
            written.source,
            as_first=written.as_first,
            report=written.report,
            tasks=written.tasks,
            by_program=written.by_program,
        )

    apart = ArmsApart(explored) if beside.may_be_written else None
    arms = explored.arms() if apart is None else apart.all()
    return AdaptiveModel(
        first,
        (arm.further(finish) for arm in arms),
        budget_runs,
        max_slowdown,
        digest=digest_of(explored.first),
        learnt=None if store is None else Learnt(store / f"{digest_of_model(plan, vdevice)}.json"),
        stop=lambda: None if apart is None else apart.stop(),
    )


def _check(budget_runs: int, max_slowdown: float, bits: str, budget_bytes: int) -> None:
    """Refuse options that mean nothing.

    Raises:
        OptionError: one of them.
    """
    if bits not in BITS:
        raise OptionError(f"bits='{bits}'", hint=f"choose one of {', '.join(BITS)}")
    if budget_runs < 0 or max_slowdown < 1 or budget_bytes < 0:
        raise OptionError(
            f"budget_runs={budget_runs}, max_slowdown={max_slowdown}, budget_bytes={budget_bytes}",
            hint="give a number of calls from 0 on, a factor of at least 1, and a number of bytes from 0 on",
        )
