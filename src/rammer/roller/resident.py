"""rTiles whose weights stay on a vEU: the fewest rTasks that leave each with no more weights than a vEU keeps.

Only for vectors times weights: with more rows, weights are used often enough within one rTask.
"""

from __future__ import annotations

import math

from rammer.ir.expr import TensorExpr
from rammer.ir.pattern import Contraction
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice

LANES = 4  # what a resident rTask's size is a multiple of: a gate's sums are shared out among warps evenly


def resident_count(expr: TensorExpr, found: Contraction, vdevice: VDevice) -> int | None:
    """Into how many rTasks a contraction is cut so that its weights stay; None where they cannot.

    Args:
        expr: the expression.
        found: the same, as a contraction.
        vdevice: keeps some bytes.
    """
    weights = 0
    for term in found.terms:
        vectors = [operand for operand in term.operands if found.free[operand] <= frozenset(term.reduce.axes)]
        if len(vectors) != 1 or term.reduce.dtype is not DType.FLOAT32:
            return None
        weights += math.prod(axis.extent for axis in (*expr.axes, *term.reduce.axes))
    count = -(-weights * DType.FLOAT32.itemsize_bytes // vdevice.resident_bytes)
    return count if count <= vdevice.veu_count else None
