"""Matrix products, linear layers and Einstein sums."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.einsum import einsum
from rammer.frontends.moves import converted, expanded, reshaped, strided, transposed
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_MOST_ROWS = 256
"""A triangular system takes three operators for each row."""


def _product(node: Node) -> Result:
    """mm, bmm, matmul, mv and dot: one product with NumPy's rules."""
    other = next(name for name in ("mat2", "other", "vec", "tensor") if name in node.arguments)
    return node.add("MatMul", node.operand("self"), node.operand(other))


def _added_product(node: Node) -> Result:
    """`beta * self + alpha * mat1 @ mat2`."""
    beta, alpha = float(node.number("beta")), float(node.number("alpha"))
    c, a, b = node.operand("self"), node.operand("mat1"), node.operand("mat2")
    return node.add("Gemm", a, b, c, alpha=alpha, beta=beta, trans_a=False, trans_b=False)


def _added_batched_product(node: Node) -> Result:
    """`beta * self + alpha * batch1 @ batch2`."""
    return _added(node, node.add("MatMul", node.operand("batch1"), node.operand("batch2")))


def _added_sum_of_products(node: Node) -> Result:
    """`beta * self` and `alpha` times the sum of `batch1 @ batch2`, which is one product of longer rows and columns."""
    a, b = node.operand("batch1"), node.operand("batch2")
    batch, rows, depth = a.shape
    a = reshaped(node, transposed(node, a, (1, 0, 2)), (rows, batch * depth))
    b = reshaped(node, b, (batch * depth, b.shape[2]))
    return _added(node, node.add("MatMul", a, b))


def _added_vector_product(node: Node) -> Result:
    """`beta * self + alpha * mat @ vec`."""
    return _added(node, node.add("MatMul", node.operand("mat"), node.operand("vec")))


def _added(node: Node, y: Operand) -> Operand:
    """`beta * self + alpha * y`; with a beta of 0, `self` does not count even where it is NaN."""
    y, beta = _scaled(node, y, node.number("alpha")), node.number("beta")
    return y if beta == 0 else node.add("Add", _scaled(node, node.operand("self"), beta), y)


def _scaled(node: Node, x: Operand, factor: float) -> Operand:
    return x if factor == 1 else node.add("Mul", x, node.scalar(factor, x.dtype))


def _linear(node: Node) -> Result:
    """`input @ weight' + bias`, the rows of all dimensions but the last together."""
    x, weight, bias = node.operand("input"), node.operand("weight"), node.optional("bias")
    return linear(node, x, weight, bias)


def linear(node: Node, x: Operand, weight: Operand, bias: Operand | None) -> Operand:
    """`x [..., k]` times the transpose of `weight [n, k]` (or `[k]`), plus `bias [n]`."""
    if weight.rank == 1:
        y = node.add("MatMul", x, weight)
        return y if bias is None else node.add("Add", y, bias)
    rows = reshaped(node, x, (math.prod(x.shape[:-1]), x.shape[-1]))
    operands = (rows, weight) if bias is None else (rows, weight, bias)
    y = node.add("Gemm", *operands, alpha=1.0, beta=1.0, trans_a=False, trans_b=True)
    return reshaped(node, y, (*x.shape[:-1], weight.shape[0]))


def _outer(node: Node) -> Result:
    a, b = node.typed("self"), node.typed("vec2")
    return node.add("And" if node.dtype is DType.BOOL else "Mul", reshaped(node, a, (a.shape[0], 1)), b)


def _trilinear(node: Node) -> Result:
    """The product of three operands, which get dimensions of extent 1 first, summed along some dimensions."""
    product: Operand | None = None
    for number in (1, 2, 3):
        x = node.operand(f"i{number}")
        shape = list(x.shape)
        for dim in sorted(node.integers(f"expand{number}")):
            shape.insert(dim, 1)
        factor = reshaped(node, x, shape)
        product = factor if product is None else node.add("Mul", product, factor)
    assert product is not None
    return node.add("ReduceSum", product, axes=node.dimensions("sumdim", product.rank), keepdims=False)


def _grouped_product(node: Node) -> Result:
    """Rows times the matrix of their group: rows are sorted by groups, `offs` says where each group ends.

    Rows behind the last group are 0.
    """
    x, weight = (
        node.operand(name) for name in (("input", "weight") if "input" in node.arguments else ("self", "mat2"))
    )
    if (x.rank, weight.rank) == (3, 3):
        y = node.add("MatMul", x, weight)
    elif (x.rank, weight.rank) == (2, 3):
        y = _rows_by_groups(node, x, weight, node.operand("offs"))
    else:
        raise node.unsupported("a grouped product whose groups are of columns or summed", "multiply each group alone")
    if node.has("bias"):
        y = node.add("Add", y, node.operand("bias"))
    return converted(node, y, node.dtype)


def _rows_by_groups(node: Node, x: Operand, weight: Operand, ends: Operand) -> Operand:
    rows = node.constant(np.arange(x.shape[0], dtype=ends.dtype.numpy).reshape(-1, 1))
    behind = node.add("Cast", node.add("LessOrEqual", reshaped(node, ends, (1, *ends.shape)), rows), to=DType.INT64)
    group = node.add("ReduceSum", behind, axes=(1,), keepdims=False)
    return node.add("GroupedMatMul", x, weight, group)


def _triangular_solution(node: Node) -> Result:
    """The x with `A x = B`, or with `x A = B`: half of the rows first, then the others less their share of these."""
    a, b = node.operand("self"), node.operand("B")
    upper, unit = node.flag("upper"), node.flag("unitriangular")
    if a.shape[-1] > _MOST_ROWS:
        raise node.unsupported(
            f"a triangular system of {a.shape[-1]} rows, which are more than {_MOST_ROWS}", "solve it in blocks"
        )
    if node.flag("left"):
        return expanded(node, _solved(node, a, b, upper=upper, unit=unit), node.shape)
    turned = _solved(node, _turned(node, a), _turned(node, b), upper=not upper, unit=unit)
    return expanded(node, _turned(node, turned), node.shape)


def _solved(node: Node, a: Operand, b: Operand, *, upper: bool, unit: bool) -> Operand:
    count = a.shape[-1]
    if count == 0 or (count == 1 and unit):
        return b
    if count == 1:
        return node.add("Div", b, a)
    first = range(count // 2, count) if upper else range(count // 2)
    others = range(count // 2) if upper else range(count // 2, count)

    def block(x: Operand, rows: range, columns: range | None = None) -> Operand:
        ranges = {x.rank - 2: rows} if columns is None else {x.rank - 2: rows, x.rank - 1: columns}
        return strided(node, x, ranges)

    begun = _solved(node, block(a, first, first), block(b, first), upper=upper, unit=unit)
    rest = node.add("Sub", block(b, others), node.add("MatMul", block(a, others, first), begun))
    ended = _solved(node, block(a, others, others), rest, upper=upper, unit=unit)
    lead = rest.shape[:-2]
    begun = expanded(node, begun, (*lead, *begun.shape[-2:]))
    ended = expanded(node, ended, (*lead, *ended.shape[-2:]))
    return node.add("Concat", *((ended, begun) if upper else (begun, ended)), axis=len(lead))


def _turned(node: Node, x: Operand) -> Operand:
    return transposed(node, x, (*range(x.rank - 2), x.rank - 1, x.rank - 2))


def _einsum(node: Node) -> Result:
    """In the type of the result: sums of small integers alone, without products, are int64."""
    operands = [converted(node, x, node.dtype) for x in node.operands("tensors")]
    return einsum(node, node.text("equation"), operands)


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv"), _product),
    "_grouped_mm": _grouped_product,
    "_trilinear": _trilinear,
    "addbmm": _added_sum_of_products,
    "addmm": _added_product,
    "addmv": _added_vector_product,
    "baddbmm": _added_batched_product,
    "einsum": _einsum,
    "linalg_solve_triangular": _triangular_solution,
    "linear": _linear,
    "outer": _outer,
}
