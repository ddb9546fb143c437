"""A user's own code, and the function that calls it for an rTask."""

from __future__ import annotations

from collections.abc import Mapping

from rammer.devices.codegen.scalar import storage_type
from rammer.devices.codegen.writer import Writer
from rammer.devices.cpu.emit.nest import Range
from rammer.ir.expr import Axis
from rammer.ir.kernel_form import ExternForm
from rammer.ir.task import RKernel


def emit_call(writer: Writer, kernel: RKernel, form: ExternForm, ranges: Mapping[Axis, Range]) -> None:
    """Write the call of the user's function `task`; see `ir.extern.KernelSource`."""
    count = len(kernel.expr.inputs)
    types = [*(type_.dtype for type_ in kernel.expr.inputs), *(output.type.dtype for output in kernel.expr.outputs)]
    arguments = [
        f"({'const ' if number < count else ''}{storage_type(types[number])} *)pointers[{number}]"
        for number in form.operands
    ]
    for place in form.axes:
        arguments += ("0", "1") if place is None else _ends(ranges[kernel.expr.axes[place]])
    writer.line(f"task({', '.join(arguments)});")


def _ends(range_: Range) -> tuple[str, str]:
    return range_.lo, range_.hi
