"""Where an rTask waits for what others write: before its first look at it, and no sooner."""

from __future__ import annotations

from rammer.devices.codegen.scope import Scope
from rammer.devices.codegen.writer import Writer
from rammer.ir.expr import Expr, Load, nodes


def emit_wait(writer: Writer) -> None:
    """Write the Waits of the rTask's record; all threads come by, once."""
    writer.line("if (!rammer_begin(record))")
    writer.line("    return;")


def is_constant(scope: Scope, expr: Expr) -> bool:
    """Whether a value depends on constants alone: it may be read before the Waits."""
    loads = [node for node in nodes(expr) if isinstance(node, Load)]
    return all(load.slot in scope.operands.constants for load in loads)
