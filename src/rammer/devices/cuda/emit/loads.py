"""Loads of an rKernel: when they can be on their way, and how many elements one of them can bring."""

from __future__ import annotations

from collections.abc import Collection

from rammer.devices.codegen.scope import Scope
from rammer.ir.expr import Axis, Expr, Load, nodes


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


def lies_in_groups(scope: Scope, load: Load, axis: Axis, size: int) -> bool:
    """Whether neighbours along an axis lie side by side, each `size` of them from a multiple of it on.

    Positions along the axis are from its own beginning. Whether elements are padding is not looked at.
    """
    kernel, address = scope.operands.kernel, scope.operands.loads[load]
    if not kernel.alignments or kernel.alignments[load.slot] % size or axis in nodes(*address.atoms):
        return False
    for part in address.parts:
        panel = part.panel
        if panel is None or part.clamp is not None or part.stride != 1 or panel.width % size or panel.stride % size:
            return False
    forms = (address.form, *(part.form for part in address.parts))
    others = [coefficient for form in forms for atom, coefficient in form.terms if atom is not axis]
    return sum(form.coefficient(axis) for form in forms) == 1 and all(
        number % size == 0 for number in (*others, *(form.offset for form in forms))
    )
