"""rTiles whose weights stay on a vEU: the fewest rTasks that leave each with no more weights than a vEU keeps.

Only for vectors times weights: with more rows, weights are used often enough within one rTask.
"""

from __future__ import annotations

import math

from rammer.ir.expr import Load, TensorExpr, nodes
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.tiling.pattern import contraction

LANES = 4  # what a resident rTask's size is a multiple of: a gate's sums are shared out among lanes evenly


def vector_slots(expr: TensorExpr) -> frozenset[int] | None:
    """The slots of the vectors, if an expression is sums of a vector's elements times weights, else None."""
    found = contraction(expr)
    if found is None:
        return None
    slots: set[int] = set()
    for term in found.terms:
        vectors = [operand for operand in term.operands if found.free[operand] <= frozenset(term.reduce.axes)]
        if len(vectors) != 1 or term.reduce.dtype is not DType.FLOAT32:
            return None
        slots.update(node.slot for node in nodes(*vectors) if isinstance(node, Load))
    return frozenset(slots)


def resident_count(expr: TensorExpr, vdevice: VDevice) -> int | None:
    """Into how many rTasks a product of vectors and weights is cut so that its weights stay; None where they cannot.

    Args:
        expr: the expression.
        vdevice: keeps some bytes.
    """
    found = contraction(expr)
    if found is None or vector_slots(expr) is None:
        return None
    points = math.prod(axis.extent for axis in expr.axes)
    weights = points * sum(math.prod(axis.extent for axis in term.reduce.axes) for term in found.terms)
    count = -(-weights * DType.FLOAT32.itemsize_bytes // vdevice.resident_bytes)
    return count if count <= vdevice.veu_count else None
