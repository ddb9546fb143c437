"""Slots of expressions: rewriting bodies, and keeping only the slots that loads read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rammer.ir.expr import Expr, Load, Output, TensorExpr, rebuild


def map_bodies(expr: TensorExpr, visit: Callable[[Expr], Expr | None]) -> TensorExpr:
    """The expression with every output's body rewritten; see `rebuild`."""
    bodies = rebuild(expr.roots, visit)
    outputs = tuple(replace(output, body=body) for output, body in zip(expr.outputs, bodies, strict=True))
    return replace(expr, outputs=outputs)


def without_unused_slots(expr: TensorExpr, inputs: Sequence[int]) -> tuple[TensorExpr, tuple[int, ...]]:
    """The expression and its operands without the slots that nothing loads."""
    used = sorted({load.slot for load in expr.loads})
    if len(used) == len(inputs):
        return expr, tuple(inputs)
    position = {slot: i for i, slot in enumerate(used)}

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            return node.at(position[node.slot], node.indices)
        return None

    flat = [root for output in expr.outputs for root in (output.body, *output.indices)]
    rewritten = iter(rebuild(flat, visit))
    outputs = tuple(
        Output(type=output.type, body=next(rewritten), indices=tuple(next(rewritten) for _ in output.indices))
        for output in expr.outputs
    )
    renumbered = replace(expr, inputs=tuple(expr.inputs[slot] for slot in used), outputs=outputs)
    return renumbered, tuple(inputs[slot] for slot in used)
