"""set_apart: operators that a user's own rKernel computes stay as they are, whatever other passes do.

    y = Swish(x)  ->  y = extern:Swish(x), without an expression until `take_back`

A user's code is for the operator alone: fused with its neighbours, or with operands that are laid out or rounded
otherwise, it would be another one's. Passes leave alone what has no expression.

Ordering restriction: after `unroll`, which knows no operator without an expression but composite ones, and after
`widen_halves`, which decides the element types; before every pass that fuses or rewrites.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.graph import Graph, Operator
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter

PREFIX = "extern:"
"""Before the kind of an operator that is set apart, which passes know by its kind alone."""


def run(graph: Graph, device: VDevice) -> Graph:
    """Take the expressions of such operators; see the module.

    Args:
        graph: operators as they were built.
        device: has the users' rKernels.
    """
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        is_apart = operator.kind not in PLACED_KINDS and _has_source(operator, device)
        apart = replace(operator, kind=PREFIX + operator.kind, expr=None) if is_apart else operator
        rewriter.insert(apart)
    return rewriter.finish()


def _has_source(operator: Operator, device: VDevice) -> bool:
    return operator.expr is not None and any(
        extern.kind == operator.kind and extern.source(operator.expr.inputs, operator.attributes) is not None
        for extern in device.externs
    )
