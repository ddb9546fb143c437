"""Where the elements that something holds for lie: what operators with results of a computed size are made of."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import Expr, ScalarFn, TensorExpr, call, const, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.scalars import both, choose, clamp
from rammer.operators.shapes import check_dtype, plain_result, spatial_axes


def places(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """For each position k how many of the ascending elements of slot 0 are at most k, found by halving.

    Of running counts of what holds, this is where the k-th that holds is; their number where there is none.

    Slot: int64 `[n]`. Output: int64 `[n]`.

    Raises:
        InvalidModelError: the operand does not fit.
    """
    require(len(inputs) == 1 and inputs[0].rank == 1, f"Places of {', '.join(map(str, inputs))}")
    (counts,) = inputs
    check_dtype("Places", counts, frozenset({DType.INT64}))
    (k,) = axes = spatial_axes(counts.shape)
    found: Expr = const(0, DType.INT64)
    step = 1 << counts.size.bit_length() >> 1
    while step:
        farther = found + step
        reached = call(ScalarFn.LE, load(0, counts, [clamp(farther - 1, 0, counts.size - 1)]), k)
        found = choose(both(call(ScalarFn.LE, farther, counts.size), reached), farther, found)
        step //= 2
    return plain_result(inputs, DType.INT64, axes, found)


register(OperatorDef(kind="Places", build=places))
