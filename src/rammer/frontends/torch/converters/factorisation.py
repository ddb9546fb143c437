"""Factorisations of matrices, unrolled column by column: Golub & Van Loan, "Matrix Computations", 4th edition.

Matrices are the last two dimensions. A column takes a few operators on whole matrices, whose places are told apart by
constant masks: fused, they are four kernels or fewer for elimination, one for substitution and for Cholesky's method.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, converted, expanded, part, reshaped, strided, transposed
from rammer.frontends.torch.node import Node
from rammer.ir.types import DType


def eliminated(node: Node, a: Operand, columns: int) -> tuple[Operand, list[Operand]]:
    """Gaussian elimination with partial pivoting of the first columns (section 3.4), L below the diagonal and U above.

    The greatest magnitude of a column is its pivot, the first of equal ones, whose row takes the place of the row in
    turn. Further columns take part, so that those of `b` become `inv(L) P' b`.

    Returns:
        The matrices, and for each pivot the row that it stood in `[..., 1, 1]`, counted from 0.
    """
    lead, (rows, width) = a.shape[:-2], a.shape[-2:]
    row, column = np.ogrid[:rows, :width]
    pivots = []
    for k in range(min(rows, columns)):
        if k == rows - 1:
            pivots.append(node.constant(np.full((*lead, 1, 1), k, dtype=np.int64)))
            break
        rest = strided(node, node.add("Abs", a), {a.rank - 2: range(k, rows), a.rank - 1: range(k, k + 1)})
        greatest = node.add("ArgMax", rest, axis=a.rank - 2, keepdims=True, select_last_index=False)
        pivot = node.add("Add", greatest, node.scalar(k, DType.INT64))
        pivots.append(pivot)
        top = node.add("GatherElements", a, expanded(node, pivot, (*lead, 1, width)), axis=a.rank - 2)
        left_over = node.add("Equal", node.constant(row), pivot)  # where the row in turn goes
        moved = node.add("Where", left_over, part(node, a, a.rank - 2, k, 1), a)
        multiple = node.add("Where", left_over, _element(node, a, k), part(node, a, a.rank - 1, k, 1))
        factor = node.add("Div", multiple, part(node, top, a.rank - 1, k, 1))
        none = node.add("Equal", multiple, node.scalar(0, a.dtype))  # as in all rows if the pivot is 0
        factor = node.add("Where", none, multiple, factor)
        less = node.add("Sub", moved, node.add("Mul", factor, top))
        below = node.add("Where", node.constant(column > k), less, moved)
        below = node.add("Where", node.constant(column == k), factor, below)
        above = node.add("Where", node.constant(row == k), top, moved)
        a = node.add("Where", node.constant(row > k), below, above)
    return a, pivots


def cholesky(node: Node, a: Operand) -> tuple[Operand, Operand]:
    """The lower triangle L with `A = L L'` (section 4.2, outer products), and the squares of its diagonal.

    Nothing is read above the diagonal, where anything may arise. A column is divided last: each takes one kernel.
    """
    rows = a.shape[-1]
    columns = np.arange(rows)
    for k in range(rows - 1):
        below = part(node, a, a.rank - 1, k, 1)
        quotient = node.add("Div", expanded(node, below, a.shape), _element(node, a, k))
        product = node.add("Mul", quotient, turned(node, below))
        a = node.add("Where", node.constant(columns > k), node.add("Sub", a, product), a)
    squares = diagonal(node, a)
    roots = node.add("Sqrt", _as_row(node, squares))
    return node.add("Trilu", node.add("Div", a, roots), k=0, upper=False), squares


def substituted(node: Node, a: Operand, b: Operand, *, upper: bool, unit: bool) -> Operand:
    """The x with `A x = b` for a triangle A: substitution by columns (section 3.1.3).

    Columns are divided by their element on the diagonal at once and x last, so that each takes one kernel. Rows that do
    not depend on an element stay as they are: it may be infinite.
    """
    rows = a.shape[-1]
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = expanded(node, b, (*lead, *b.shape[-2:]))
    elements = None if unit else diagonal(node, a)
    if elements is not None:
        a = node.add("Div", a, _as_row(node, elements))
    numbers = np.arange(rows).reshape(-1, 1)
    for k in range(rows - 1, 0, -1) if upper else range(rows - 1):
        known = part(node, x, x.rank - 2, k, 1)
        rest = node.add("Sub", x, node.add("Mul", part(node, a, a.rank - 1, k, 1), known))
        x = node.add("Where", node.constant(numbers < k if upper else numbers > k), rest, x)
    return x if elements is None else node.add("Div", x, reshaped(node, elements, (*elements.shape, 1)))


def reflected(node: Node, a: Operand) -> tuple[Operand, list[tuple[Operand, Operand]]]:
    """The upper triangle R with `A = Q R` (section 5.2.2), and the Householder vectors and factors that Q is made of.

    Signs are LAPACK's: a column that is 0 below the diagonal stays as it is.
    """
    rows, columns = a.shape[-2:]
    row = np.arange(rows).reshape(-1, 1)
    zero = node.scalar(0, a.dtype)
    reflections = []
    for k in range(min(rows - 1, columns)):
        alpha, column = _element(node, a, k), part(node, a, a.rank - 1, k, 1)
        below = node.add("Where", node.constant(row > k), column, zero)
        wide = converted(node, below, DType.FLOAT64)  # squares of float32 neither overflow nor vanish
        length = node.add("ReduceSum", node.add("Mul", wide, wide), axes=(a.rank - 2,), keepdims=True)
        head = converted(node, alpha, DType.FLOAT64)
        whole = node.add("Sqrt", node.add("Add", length, node.add("Mul", head, head)))
        done = node.add("Equal", length, node.scalar(0, DType.FLOAT64))
        negative = node.add("Less", alpha, zero)
        whole = converted(node, whole, a.dtype)
        beta = node.add("Where", negative, whole, node.add("Neg", whole))
        one = node.scalar(1, a.dtype)
        factor = node.add("Where", done, zero, node.add("Div", node.add("Sub", beta, alpha), beta))
        scaled = node.add("Div", below, node.add("Where", done, one, node.add("Sub", alpha, beta)))
        vector = node.add("Where", node.constant(row == k), one, scaled)
        reflections.append((vector, factor))
        a = _reflection(node, a, vector, factor, first=k)
    height = min(rows, columns)
    return node.add("Trilu", part(node, a, a.rank - 2, 0, height), k=0, upper=True), reflections


def packed(node: Node, a: Operand, tau: Operand) -> list[tuple[Operand, Operand]]:
    """Householder vectors and factors from LAPACK's form: below the diagonal of a matrix, and `tau [..., k]`."""
    row = np.arange(a.shape[-2]).reshape(-1, 1)
    zero, one = node.scalar(0, a.dtype), node.scalar(1, a.dtype)
    reflections = []
    for k in range(tau.shape[-1]):
        below = node.add("Where", node.constant(row > k), part(node, a, a.rank - 1, k, 1), zero)
        factor = reshaped(node, part(node, tau, tau.rank - 1, k, 1), (*tau.shape[:-1], 1, 1))
        reflections.append((node.add("Where", node.constant(row == k), one, below), factor))
    return reflections


def orthogonal(
    node: Node, reflections: Sequence[tuple[Operand, Operand]], shape: Sequence[int], dtype: DType
) -> Operand:
    """The first columns of Q (section 5.1.6)."""
    q = node.constant(np.broadcast_to(np.eye(*shape[-2:], dtype=dtype.numpy), shape).copy())
    for k in reversed(range(len(reflections))):
        q = _reflection(node, q, *reflections[k], first=k)
    return q


def times_orthogonal(
    node: Node, reflections: Sequence[tuple[Operand, Operand]], a: Operand, *, transpose: bool = False
) -> Operand:
    """`Q A`, from the last reflection to the first, or `Q' A`, the other way around."""
    for vector, factor in reflections if transpose else reversed(reflections):
        a = _reflection(node, a, vector, factor)
    return a


def _reflection(node: Node, a: Operand, vector: Operand, factor: Operand, *, first: int = 0) -> Operand:
    """`(I - factor v v') A` (section 5.1.4); rows and columns before the first stay as they are, be v infinite."""
    along = node.add("ReduceSum", node.add("Mul", vector, a), axes=(a.rank - 2,), keepdims=True)
    changed = node.add("Sub", a, node.add("Mul", vector, node.add("Mul", factor, along)))
    if not first:
        return changed
    rows, columns = (np.arange(extent) >= first for extent in a.shape[-2:])
    return node.add("Where", node.constant(rows.reshape(-1, 1) & columns), changed, a)


def order_of(node: Node, pivots: Operand, rows: int, *, inverse: bool = False) -> Operand:
    """The rows in the order that exchanges by pivots `[..., k]`, counted from 1, bring them to, or the way back.

    Exchanges are put together in pairs, then pairs of these: as many steps as the logarithm of their number.
    """
    lead, count = pivots.shape[:-1], pivots.shape[-1]
    own, places = np.arange(count).reshape(-1, 1), np.arange(rows)
    if not count:
        return node.constant(np.broadcast_to(places, (*lead, rows)).copy())
    one = node.scalar(1, DType.INT64)
    others = reshaped(node, node.add("Sub", converted(node, pivots, DType.INT64), one), (*lead, count, 1))
    here = node.add(
        "Where", node.add("Equal", others, node.constant(places)), node.constant(own), node.constant(places)
    )
    orders = node.add("Where", node.constant(own == places), others, here)
    axis = len(lead)
    while count > 1:
        pairs = count // 2
        first, second = (strided(node, orders, {axis: range(start, 2 * pairs, 2)}) for start in (0, 1))
        if inverse:
            first, second = second, first
        both = node.add("GatherElements", first, second, axis=axis + 1)
        orders = concatenated(node, [both, part(node, orders, axis, count - 1, 1)] if count % 2 else [both], axis)
        count -= pairs
    return reshaped(node, orders, (*lead, rows))


def exchanges(node: Node, lu: Operand, pivots: Operand) -> Operand:
    """The matrix P with `A = P L U`."""
    rows = lu.shape[-2]
    order = order_of(node, pivots, rows)
    found = node.add(
        "Equal", reshaped(node, order, (*order.shape[:-1], 1, rows)), node.constant(np.ogrid[:rows, :1][0])
    )
    return node.add("Cast", found, to=lu.dtype)


def triangles(node: Node, lu: Operand) -> list[Operand]:
    """L and U, apart, from the matrix that has both."""
    rows, columns = lu.shape[-2:]
    count = min(rows, columns)
    lower = node.add("Trilu", part(node, lu, lu.rank - 1, 0, count), k=-1, upper=False)
    ones = node.constant(np.eye(rows, count, dtype=lu.dtype.numpy))
    upper = node.add("Trilu", part(node, lu, lu.rank - 2, 0, count), k=0, upper=True)
    return [node.add("Add", lower, ones), upper]


def diagonal(node: Node, a: Operand) -> Operand:
    """The elements whose row is their column."""
    (rows, columns), lead = a.shape[-2:], a.shape[:-2]
    count = min(rows, columns)
    flat = reshaped(node, a, (*lead, rows * columns))
    return strided(node, flat, {len(lead): range(0, count * (columns + 1), columns + 1)[:count]})


def turned(node: Node, a: Operand) -> Operand:
    """The transpose."""
    return transposed(node, a, (*range(a.rank - 2), a.rank - 1, a.rank - 2))


def identity(node: Node, rows: int, dtype: DType) -> Operand:
    """The matrix that changes nothing."""
    return node.constant(np.eye(rows, dtype=dtype.numpy))


def zeros(node: Node, shape: Sequence[int], dtype: DType) -> Operand:
    """A constant."""
    return node.constant(np.zeros(shape, dtype=dtype.numpy))


def _element(node: Node, a: Operand, k: int) -> Operand:
    """The element on the diagonal `[..., 1, 1]`."""
    return strided(node, a, {a.rank - 2: range(k, k + 1), a.rank - 1: range(k, k + 1)})


def _as_row(node: Node, elements: Operand) -> Operand:
    return reshaped(node, elements, (*elements.shape[:-1], 1, elements.shape[-1]))
