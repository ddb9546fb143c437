"""A plan as named bytes: kernel sources, tables and constants. No path, time or machine gets in."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.devices.base import Source
from rammer.devices.codegen.source import EmitKernel
from rammer.devices.codegen.source import assemble as assemble_plan
from rammer.ir.program import Plan

DEVICE = "cpu"
ABI = 1
KERNEL_FOLDER = "kernels/"


def assemble(plan: Plan, emit_kernel: EmitKernel, headers: Mapping[str, str], alignment_bytes: int) -> Source:
    """The source of a plan.

    Args:
        plan: the plan.
        emit_kernel: (rKernel, symbol) -> C text of one function with that name.
        headers: what every function is compiled with, by name.
        alignment_bytes: of the constants.
    """
    assembly = assemble_plan(plan, emit_kernel, alignment_bytes, ABI)
    includes = "".join(f'#include "{name}"\n' for name in headers)
    code = {**headers, **{f"{symbol}.c": includes + text for symbol, text in assembly.functions.items()}}
    return Source(
        device=DEVICE, files={**assembly.data, **{KERNEL_FOLDER + name: text.encode() for name, text in code.items()}}
    )
