"""A plan as named bytes: kernel sources, tables and constants. No path, time or machine gets in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rammer.devices.base import Source
from rammer.devices.codegen.source import MANIFEST, EmitKernel, write_functions
from rammer.devices.codegen.source import assemble as assemble_plan
from rammer.devices.codegen.tables import Manifest
from rammer.devices.cpu.binary import ABI
from rammer.ir.schema import SchemaError

if TYPE_CHECKING:
    from rammer.ir.program import Plan

DEVICE = "cpu"
KERNEL_FOLDER = "kernels/"
_OWN_HEADERS = ("rammer_tiles.h", "rammer_trees.h")
"""Headers of one skeleton: only functions that call theirs are compiled with them."""


def check_code(source: Source) -> None:
    """See whether the code of each kernel is there, for a machine that has to build it.

    Raises:
        SchemaError: it is not.
    """
    for kernel in Manifest.from_bytes(source.files[MANIFEST]).kernels:
        if not source.files[f"{KERNEL_FOLDER}{kernel.symbol}.c"]:
            raise SchemaError(f"its code of {kernel.symbol} is empty")


def assemble(plan: Plan, emit_kernel: EmitKernel, headers: Mapping[str, str], alignment_bytes: int) -> Source:
    """The source of a plan.

    Args:
        plan: the plan.
        emit_kernel: (rKernel, symbol) -> C text of one function with that name.
        headers: what functions are compiled with, by name.
        alignment_bytes: of the constants.
    """
    functions = write_functions(plan.graph, plan.schedule, emit_kernel)
    assembly = assemble_plan(plan, functions, alignment_bytes, ABI)
    code = {name: text for name, text in headers.items() if name not in _OWN_HEADERS}
    for symbol, text in functions.texts.items():
        used = [name for name in headers if name not in _OWN_HEADERS or name.removesuffix(".h") in text]
        code.update({name: headers[name] for name in used})
        code[f"{symbol}.c"] = "".join(f'#include "{name}"\n' for name in used) + text
    return Source(
        device=DEVICE,
        files={**assembly.data, **{KERNEL_FOLDER + name: text.encode() for name, text in code.items()}},
        recipes=assembly.recipes,
    )
