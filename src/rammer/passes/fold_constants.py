"""fold_constants: compute what depends on constants alone.

    y = op(c0, c1, ...)  ->  y is a constant

An operator is left alone where its results are larger than `LARGEST_GROWTH_BYTES` and larger than its operands
together: a model may expand a small constant to a large one that nobody should store. A transposed constant is left
alone where rows of the constant are gathered, too, as an embedding's that also is the last product's weight: both can
read one constant (`inline_views`, `layout`).
"""

from __future__ import annotations

from rammer.ir.evaluate import evaluate
from rammer.ir.graph import Array, Graph, Operator
from rammer.passes.helpers.rewrite import Rewriter

LARGEST_GROWTH_BYTES = 64 << 20


def run(graph: Graph) -> Graph:
    """Fold constants; see the module."""
    rewriter = Rewriter(graph)
    gathered = {operator.inputs[0] for operator in graph.operators if operator.kind == "Gather"}
    for operator in graph.operators:
        if operator.kind == "Transpose" and operator.inputs[0] in gathered:
            rewriter.insert(operator)
            continue
        arrays = [rewriter.array(value) for value in operator.inputs]
        results = _computed(operator, arrays)
        if results is None:
            rewriter.insert(operator)
            continue
        for output, result in zip(operator.outputs, results, strict=True):
            rewriter.replace(output, rewriter.constant(result, rewriter.name(output)))
    return rewriter.finish()


def _computed(operator: Operator, arrays: list[Array | None]) -> tuple[Array, ...] | None:
    """The operator's results, where they are constant and not too large."""
    known = [array for array in arrays if array is not None]
    if operator.expr is None or len(known) < len(arrays):
        return None
    growth = sum(output.type.nbytes for output in operator.expr.outputs)
    if growth > max(LARGEST_GROWTH_BYTES, sum(array.nbytes for array in known)):
        return None
    if operator.kind == "Reshape":
        return (known[0].reshape(operator.expr.outputs[0].type.shape),)  # nothing to compute, nothing to copy
    return evaluate(operator.expr, known)
