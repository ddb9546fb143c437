"""unround: values that stay inside an operator are not rounded to 16 bits.

    y = f16(f32(f16(sum[k](x * w))) + f32(b))  ->  y = f16(sum[k](x * w) + f32(b))

A model of 16-bit floats rounds after each of its operators. Where several have become one, what passes between them is
in registers, in float32; to round it takes instructions, and bits. What is stored is rounded as before. Casts of the
model's own are no exception; XLA (`xla_allow_excess_precision`) and TorchInductor do the same. Where a device
multiplies no 16-bit floats, `widen_halves` has left only what is stored and casts of the model's own, which round.

Ordering restriction: after `fuse`; before `round_products`, whose roundings are meant.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.expr import TensorExpr, rebuild
from rammer.ir.graph import Graph
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.helpers.rounding import unrounding


def run(graph: Graph, device: VDevice) -> Graph:
    """Leave roundings out; see the module.

    Args:
        graph: after fusion.
        device: says whether it has instructions for products of 16 bits.
    """
    if not device.instructions:
        return graph
    rewriter = Rewriter(graph)
    known: dict[TensorExpr, TensorExpr] = {}
    for operator in graph.operators:
        if operator.expr is None or operator.kind in PLACED_KINDS:
            rewriter.insert(operator)
            continue
        if operator.expr not in known:
            known[operator.expr] = _unrounded(operator.expr)
        expr = known[operator.expr]
        rewriter.insert(operator if expr is operator.expr else replace(operator, expr=expr))
    return rewriter.finish()


def _unrounded(expr: TensorExpr) -> TensorExpr:
    """An expression whose values are rounded where they are stored alone."""
    bodies = rebuild(expr.roots, unrounding)
    if bodies == expr.roots:
        return expr
    outputs = tuple(replace(output, body=body) for output, body in zip(expr.outputs, bodies, strict=True))
    return replace(expr, outputs=outputs)
