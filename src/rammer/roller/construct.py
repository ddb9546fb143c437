"""Candidate rKernels for an expression, by construction from a vDevice's description (Roller, section 3.2)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rammer.ir.task import RKernel
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.roller.model import predict

MAX_CANDIDATES = 8
MAX_MEASURED = 10  # as many as in the Roller paper


@lru_cache(maxsize=512)
def construct(
    workload: Workload, vdevice: VDevice, *, to_measure: bool = False, externs: tuple[RKernel, ...] = ()
) -> tuple[RKernel, ...]:
    """Candidate rKernels, best first. Pass after pass, and then lowering, asks for the same: the last are kept.

    The first is the *fastest*: it takes least time if the operator has all vEUs. The second, where it is another one,
    is the *most efficient*: its rTasks take least time together. Then comes one whose weights stay on few vEUs, if the
    vDevice keeps any, then the fastest of each number of rTasks, so that a policy can choose for any share of the
    device, and then others. Those whose weights stay on fewer vEUs, and which take longer there, come last.

    Args:
        workload: what they compute, of what.
        vdevice: the machine.
        to_measure: whether measured times will decide. Then there are more, some of which are predicted to be slower.
        externs: users' own rKernels of the workload, candidates like all others, and the first of equals.

    Raises:
        ValueError: the vDevice has no skeleton for the expression.
    """
    if workload.expr.guards:  # constructed for what is computed nearly everywhere
        usual = construct(replace(workload, expr=workload.expr.usual), vdevice, to_measure=to_measure)
        return tuple(replace(kernel, expr=workload.expr) for kernel in usual)
    rules = vdevice.rules
    kept, *fewer = rules.persistent(workload, vdevice) or (None,)
    first = () if kept is None else (kept,)
    candidates = (*externs, *rules.candidates(workload, vdevice, to_measure=to_measure), *first)
    time_us = {kernel: predict(kernel, vdevice).task_us for kernel in candidates}
    ranked = sorted(candidates, key=lambda kernel: whole_us(kernel.task_count, vdevice, time_us[kernel]))
    overhead_us = vdevice.task_overhead_us.value
    most_efficient = min(ranked, key=lambda kernel: kernel.task_count * (time_us[kernel] + overhead_us))
    of_each_count = {kernel.task_count: kernel for kernel in reversed(ranked)}
    others = [kernel for kernel in ranked if of_each_count[kernel.task_count] is kernel]
    found = tuple(dict.fromkeys((ranked[0], most_efficient, *first, *others, *ranked)))
    return (*found[: MAX_MEASURED if to_measure else MAX_CANDIDATES], *fewer)


def whole_us(tasks: int, vdevice: VDevice, task_us: float) -> float:
    """The time of an rOperator of so many rTasks of `task_us` that has all vEUs.

    What is cut up has to be handed over as well, to other vEUs and back.
    """
    handover_us = 2 * vdevice.handover_us.value if tasks > 1 else 0.0
    return -(-tasks // vdevice.veu_count) * (task_us + vdevice.task_overhead_us.value) + handover_us
