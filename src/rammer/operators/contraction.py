"""Matrix products: MatMul and Gemm. 16-bit floats are multiplied and summed in float32."""

from __future__ import annotations

from collections.abc import Sequence

from rammer.ir.expr import Axis, Expr, Reduce, ReduceFn, TensorExpr, cast, const, load
from rammer.ir.graph import Attributes
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import flag, number
from rammer.operators.registry import OperatorDef, register, require
from rammer.operators.scalars import choose, clamp, equal
from rammer.operators.shapes import (
    INDICES,
    NUMBERS,
    broadcast_load,
    broadcast_shape,
    check_broadcasts_to,
    check_dtype,
    check_operands,
    plain_result,
)


def matmul(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`a @ b` as NumPy has it.

    Slots: a `[*batch, m, k]` or `[k]`, b `[*batch, k, n]` or `[k]`, of one dtype; batch dimensions broadcast.
    Output: `[*batch, m, n]`, without the dimension that a vector operand lacks.

    Raises:
        InvalidModelError: the shapes or dtypes do not fit.
    """
    check_operands("MatMul", inputs, (2, 2), NUMBERS)
    a, b = inputs
    require(a.rank > 0 and b.rank > 0, f"MatMul of {a} and {b}: a scalar has no matrix product")
    depth = b.shape[-2] if b.rank > 1 else b.shape[0]
    require(a.shape[-1] == depth, f"MatMul of {a} and {b}: the inner extents are {a.shape[-1]} and {depth}")
    batch = tuple(
        Axis(f"b{dim}", extent) for dim, extent in enumerate(broadcast_shape("MatMul", a.shape[:-2], b.shape[:-2]))
    )
    rows = (Axis("m", a.shape[-2]),) if a.rank > 1 else ()
    columns = (Axis("n", b.shape[-1]),) if b.rank > 1 else ()
    k = Axis("k", depth)
    product = broadcast_load(0, a, (*batch, *rows, k)) * broadcast_load(1, b, (*batch, k, *columns))
    return plain_result(inputs, a.dtype, (*batch, *rows, *columns), Reduce(ReduceFn.SUM, (k,), product))


def gemm(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """`alpha * a' @ b' + beta * c`, where `a'` and `b'` are transposed if asked; with a beta of 0, c is not read.

    Slots: a `[m, k]` (`[k, m]` with `trans_a`), b `[k, n]` (`[n, k]` with `trans_b`), optionally c, which broadcasts
    to `[m, n]`; all of one dtype. Attributes: alpha, beta: float; trans_a, trans_b: bool. Output: `[m, n]`.

    Raises:
        InvalidModelError: the shapes or dtypes do not fit.
    """
    check_operands("Gemm", inputs, (2, 3), NUMBERS)
    a, b = inputs[:2]
    require(a.rank == 2 and b.rank == 2, f"Gemm takes matrices, not {a} and {b}")
    trans_a, trans_b = flag(attributes, "trans_a"), flag(attributes, "trans_b")
    rows, depth = reversed(a.shape) if trans_a else a.shape
    depth_b, columns = reversed(b.shape) if trans_b else b.shape
    require(depth == depth_b, f"Gemm of {a} and {b}: the inner extents are {depth} and {depth_b}")

    m, n, k = Axis("m", rows), Axis("n", columns), Axis("k", depth)
    product = load(0, a, (k, m) if trans_a else (m, k)) * load(1, b, (n, k) if trans_b else (k, n))
    body = _scaled(Reduce(ReduceFn.SUM, (k,), product), number(attributes, "alpha"))
    for c in inputs[2:]:
        check_broadcasts_to("Gemm", c, (rows, columns))
        if number(attributes, "beta"):
            body = body + _scaled(broadcast_load(2, c, (m, n)), number(attributes, "beta"))
    return plain_result(inputs, a.dtype, (m, n), body)


def grouped_matmul(inputs: Sequence[TensorType], attributes: Attributes) -> TensorExpr:
    """Each row of a times the matrix of b that a third operand names: layers of experts.

    Slots: a `[m, k]`, b `[groups, k, n]` of one dtype, the row's group, int32 or int64 `[m]`. Output: `[m, n]`; rows
    whose group is none of `range(groups)` are 0.

    Raises:
        InvalidModelError: the shapes or dtypes do not fit.
    """
    check_operands("GroupedMatMul", inputs[:2], (2, 2), NUMBERS)
    a, b, group = inputs
    check_dtype("GroupedMatMul by groups", group, INDICES)
    fits = a.rank == 2 and b.rank == 3 and a.shape[1] == b.shape[1] and group.shape == a.shape[:1] and b.shape[0] > 0
    require(fits, f"GroupedMatMul of {a}, {b} and {group}: the shapes do not fit")
    m, n, k = Axis("m", a.shape[0]), Axis("n", b.shape[2]), Axis("k", a.shape[1])
    named = cast(DType.INT64, load(2, group, (m,)))
    matrix = clamp(named, 0, b.shape[0] - 1)
    total = Reduce(ReduceFn.SUM, (k,), load(0, a, (m, k)) * load(1, b, (matrix, k, n)))
    return plain_result(inputs, a.dtype, (m, n), choose(equal(named, matrix), total, const(0, total.dtype)))


def _scaled(value: Expr, factor: float) -> Expr:
    return value if factor == 1 else value * const(factor, value.dtype)


register(OperatorDef(kind="MatMul", build=matmul))
register(OperatorDef(kind="Gemm", build=gemm))
register(OperatorDef(kind="GroupedMatMul", build=grouped_matmul))
