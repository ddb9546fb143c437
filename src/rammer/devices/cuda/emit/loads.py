"""When the loads of an rKernel can be on their way."""

from __future__ import annotations

from collections.abc import Iterable

from rammer.devices.codegen.scalar import C_TYPES
from rammer.devices.codegen.scope import Scope
from rammer.devices.codegen.writer import Writer
from rammer.ir.expr import Expr, Load, nodes


def is_constant(scope: Scope, expr: Expr) -> bool:
    """Whether a value depends on constants alone: it may be read before the Waits."""
    loads = [node for node in nodes(expr) if isinstance(node, Load)]
    return all(load.slot in scope.operands.kernel.constants for load in loads)


class Early:
    """What an epilogue reads and a thread loads while sums run: the type `rammer_early`, of which `early` is one."""

    def __init__(self, writer: Writer, loads: Iterable[Load], initial: str = "") -> None:
        self._names = {load: writer.name("v") for load in loads}
        with writer.block("struct rammer_early", ";"):
            for load, name in self._names.items():
                writer.line(f"{C_TYPES[load.dtype]} {name}{initial};")

    def load(self, at_point: Scope) -> None:
        """Write the loads of a point."""
        for load, name in self._names.items():
            at_point.writer.line(f"early.{name} = {at_point.value(load)};")

    def bind(self, at_point: Scope) -> None:
        """Let the scope of a point find what was loaded."""
        for load, name in self._names.items():
            at_point.bind(load, f"early.{name}")
