"""A plan as named bytes: kernel sources, tables and constants. No path, time or machine gets in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
_INCLUDE = re.compile(r'^ *# *include "(.*)"', re.MULTILINE)


def check_code(source: Source) -> None:
    """See whether the code of each kernel is there, for a machine that has to build it.

    Raises:
        SchemaError: it is not.
    """
    for kernel in Manifest.from_bytes(source.files[MANIFEST]).kernels:
        if not source.files[f"{KERNEL_FOLDER}{kernel.symbol}.c"]:
            raise SchemaError(f"its code of {kernel.symbol} is empty")


def included(texts: Iterable[str], headers: Mapping[str, str]) -> list[str]:
    """The names of the headers that texts include, and that those do."""
    found: dict[str, None] = {}
    stack = list(texts)
    while stack:
        names = [name for name in _INCLUDE.findall(stack.pop()) if name in headers and name not in found]
        found.update(dict.fromkeys(names))
        stack += [headers[name] for name in names]
    return sorted(found)


def assemble(plan: Plan, emit_kernel: EmitKernel, headers: Mapping[str, str], alignment_bytes: int) -> Source:
    """The source of a plan.

    Args:
        plan: the plan.
        emit_kernel: (rKernel, symbol) -> C text of one function with that name.
        headers: what functions may include, by name.
        alignment_bytes: of the constants.
    """
    functions = write_functions(plan.graph, plan.schedule, emit_kernel)
    assembly = assemble_plan(plan, functions, alignment_bytes, ABI)
    code = {f"{symbol}.c": text for symbol, text in functions.texts.items()}
    code |= {name: headers[name] for name in included(code.values(), headers)}
    return Source(
        device=DEVICE,
        files={**assembly.data, **{KERNEL_FOLDER + name: text.encode() for name, text in code.items()}},
        recipes=assembly.recipes,
    )
