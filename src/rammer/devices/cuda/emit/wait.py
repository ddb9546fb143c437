"""Where an rTask waits for what others write: before its first look at it, and no sooner.

Where lanes may have waited one by one, threads meet before they do anything together (ADR 0003).
"""

from __future__ import annotations

from rammer.devices.codegen.scope import Scope
from rammer.devices.codegen.writer import Writer
from rammer.ir.task import RKernel

BEGIN = "[&] { return rammer_begin(record); }"
"""The functor that waits as the rTask's record says, for skeletons that do it themselves."""


def emit_wait(writer: Writer) -> None:
    """Write the Waits of the rTask's record; all threads come by, once."""
    writer.line("if (!rammer_begin(record))")
    writer.line("    return;")


def takes_apart(kernel: RKernel, slot: int) -> bool:
    """Whether some lanes of a warp may take tagged elements of a slot where others have its padding."""
    padded = {load.slot for load in kernel.expr.loads if load.fill is not None}
    return kernel.layouts[slot].tagged and slot in padded


def takes_any_apart(kernel: RKernel) -> bool:
    """Whether that is so for any slot."""
    return any(takes_apart(kernel, slot) for slot in range(len(kernel.expr.inputs)))


def waits_one_by_one(kernel: RKernel) -> bool:
    """Whether threads wait for elements of their own."""
    return any(layout.tagged for layout in kernel.layouts[: len(kernel.expr.inputs)])


def emit_meet(scope: Scope) -> None:
    """Write a barrier, if lanes may have waited for tagged elements."""
    if waits_one_by_one(scope.operands.kernel):
        scope.writer.line("rammer_meet();")
