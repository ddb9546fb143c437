"""An operator's computation with loads that name graph values instead of slots, so that several can be mixed.

`Work` is what the fusing passes think in: `lift` an operator, combine, and `lower` the result to an expression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from rammer.ir.expr import (
    Axis,
    Call,
    Expr,
    Guarded,
    Load,
    Output,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    all_nodes,
    nodes,
    rebuild,
)
from rammer.ir.graph import Operator
from rammer.ir.types import TensorType
from rammer.passes.helpers.simplify import simplified
from rammer.tiling.pattern import free_axes, plain_load, widened_byte


@dataclass(frozen=True, kw_only=True)
class Work:
    """Per point of `axes`, the results: value id -> what is stored where. `Load.slot` is a value id.

    Not slotted, because what follows from the bodies is computed once and kept.
    """

    axes: tuple[Axis, ...]
    outputs: Mapping[int, Output]

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """Every distinct node of the bodies, operands first, without those of conditions and fallbacks."""
        return nodes(*(output.body for output in self.outputs.values()))

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Distinct loads, in order of first appearance, those of conditions and fallbacks included."""
        bodies = (output.body for output in self.outputs.values())
        return tuple(node for node in all_nodes(*bodies) if isinstance(node, Load))

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """Distinct values that are loaded, in order of first appearance."""
        return tuple(dict.fromkeys(load.slot for load in self.loads))

    @cached_property
    def positions(self) -> frozenset[int]:
        """Values whose elements are indices of other loads (of a gather)."""
        inner = nodes(*(index for load in self.loads for index in load.indices))
        return frozenset(node.slot for node in inner if isinstance(node, Load))

    @cached_property
    def reduces(self) -> bool:
        """Whether there is a reduction."""
        return any(isinstance(node, Reduce) for node in self.nodes)

    @cached_property
    def is_guarded(self) -> bool:
        """Whether something is computed otherwise here and there, which depends on the domain."""
        return any(isinstance(node, Guarded) for node in self.nodes)

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents of the axes."""
        return tuple(axis.extent for axis in self.axes)

    @cached_property
    def contracted(self) -> frozenset[int]:
        """Values that are operands of a contraction: a sum of products of two elements.

        Device code for contractions reads its operands from memory, so these must stay plain loads.
        """
        found: set[int] = set()
        for node in self.nodes:
            match node:
                case Reduce(ReduceFn.SUM, _, Call(ScalarFn.MUL, factors)) if factors[0] is not factors[1]:
                    loads = [
                        load for load in (plain_load(factor) or widened_byte(factor) for factor in factors) if load
                    ]
                    if len(loads) == len(factors):
                        found.update(load.slot for load in loads)
        return frozenset(found)

    def rewritten(self, visit: Callable[[Expr], Expr | None]) -> Work:
        """The work with every body rewritten by `rebuild` and simplified."""

        def visit_then_simplify(node: Expr) -> Expr | None:
            found = visit(node)
            return simplified(node) if found is None else found

        bodies = rebuild([output.body for output in self.outputs.values()], visit_then_simplify)
        outputs = {
            value: Output(type=output.type, indices=output.indices, body=body)
            for (value, output), body in zip(self.outputs.items(), bodies, strict=True)
        }
        return Work(axes=self.axes, outputs=outputs)

    def evaluations(self, value: int) -> int:
        """How many elements of `value` are loaded in all, if a reduction runs once per point of the axes it needs."""
        total = 0
        for scope, count in _scopes(self):
            total += count * sum(isinstance(node, Load) and node.slot == value for node in scope)
        return total


def lift(operator: Operator) -> Work:
    """The work of an operator.

    Raises:
        ValueError: it is composite.
    """
    if operator.expr is None:
        raise ValueError(f"{operator.kind} '{operator.name}' is composite")
    return _lifted(operator.expr, tuple(operator.inputs), tuple(operator.outputs))


@lru_cache(maxsize=1024)
def _lifted(expr: TensorExpr, inputs: tuple[int, ...], results: tuple[int, ...]) -> Work:
    """One pass after another asks for the same."""

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return node.at(inputs[node.slot], node.indices)
        return simplified(node)

    bodies = rebuild(expr.roots, visit)
    outputs = {
        value: Output(type=output.type, indices=output.indices, body=body)
        for value, output, body in zip(results, expr.outputs, bodies, strict=True)
    }
    return Work(axes=expr.axes, outputs=outputs)


def lower(work: Work, type_of: Callable[[int], TensorType]) -> tuple[TensorExpr, tuple[int, ...]]:
    """The expression of a work, and the values that its slots read, in order of first appearance."""
    slots = {value: slot for slot, value in enumerate(work.reads)}

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return node.at(slots[node.slot], node.indices)
        return None

    bodies = rebuild([output.body for output in work.outputs.values()], visit)
    outputs = tuple(
        Output(type=output.type, indices=output.indices, body=body)
        for output, body in zip(work.outputs.values(), bodies, strict=True)
    )
    return TensorExpr(axes=work.axes, inputs=tuple(map(type_of, slots)), outputs=outputs), tuple(slots)


def _scopes(work: Work) -> list[tuple[tuple[Expr, ...], int]]:
    """The nodes outside all reductions, then those in each reduction's body, with how often they are evaluated."""
    free = free_axes(*(output.body for output in work.outputs.values()))
    scopes = [(_outside_reductions([output.body for output in work.outputs.values()]), math.prod(work.extents))]
    for node in work.nodes:
        if isinstance(node, Reduce):
            count = math.prod(axis.extent for axis in free[node]) * math.prod(axis.extent for axis in node.axes)
            scopes.append((_outside_reductions([node.body]), count))
    return scopes


def _outside_reductions(roots: Sequence[Expr]) -> tuple[Expr, ...]:
    """Distinct nodes below `roots`, not entering reductions."""
    seen: dict[Expr, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen[node] = None
            if not isinstance(node, Reduce):
                stack.extend(node.children)
    return tuple(seen)
