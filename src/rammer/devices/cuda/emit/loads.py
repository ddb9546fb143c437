"""Loads of an rKernel, by when they can be on their way."""

from __future__ import annotations

from collections.abc import Collection

from rammer.devices.codegen.scope import Scope
from rammer.ir.expr import Expr, Load, nodes


def other_loads(scope: Scope, known: Collection[Expr] = ()) -> list[Load]:
    """Loads outside of sums and of what is `known`."""
    seen: dict[Expr, None] = {}
    stack = list(scope.operands.results)
    while stack:
        node = stack.pop()
        if node not in seen and node not in known:
            seen[node] = None
            stack.extend(scope.operands.below(node))
    return [node for node in seen if isinstance(node, Load)]


def is_constant(scope: Scope, expr: Expr) -> bool:
    """Whether a value depends on constants alone: it may be read before the Waits."""
    loads = [node for node in nodes(expr) if isinstance(node, Load)]
    return all(load.slot in scope.operands.constants for load in loads)
