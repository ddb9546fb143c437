"""When the loads of an rKernel can be on their way."""

from __future__ import annotations

from rammer.devices.codegen.scope import Scope
from rammer.ir.expr import Expr, Load, nodes


def is_constant(scope: Scope, expr: Expr) -> bool:
    """Whether a value depends on constants alone: it may be read before the Waits."""
    loads = [node for node in nodes(expr) if isinstance(node, Load)]
    return all(load.slot in scope.operands.kernel.constants for load in loads)
