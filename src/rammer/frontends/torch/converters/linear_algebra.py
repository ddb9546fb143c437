"""Dense linear algebra of small matrices: factorisations, systems of equations, inverses, determinants.

A static program checks no values: a matrix that has no inverse or is not positive definite gives what is infinite or no
number, where PyTorch would raise an error. Results that PyTorch leaves undefined then may be others than its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial, reduce

import numpy as np
import torch

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, converted, expanded, part, reshaped
from rammer.frontends.torch.converters.factorisation import (
    cholesky,
    diagonal,
    eliminated,
    exchanges,
    identity,
    order_of,
    orthogonal,
    packed,
    reflected,
    substituted,
    times_orthogonal,
    triangles,
    turned,
    zeros,
)
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType

_MOST_ROWS = 128
"""Each column has operators of its own, about twenty for elimination: for more, compiling takes long."""

_SQUARINGS = 16
"""Of an exponential: so matrices whose norm is up to 2 ** 15 come below the greatest that the polynomial is for."""

_EXPONENTIAL_DEGREE = 16
_BLOCK = 4
"""Of the powers of an exponential's matrix that are computed one by one."""


def _checked(node: Node, a: Operand) -> Operand:
    """A matrix that is small enough."""
    count = min(a.shape[-2:])
    if count > _MOST_ROWS:
        raise node.unsupported(
            f"{node.operator} of {count} rows, which are more than {_MOST_ROWS}: each has operators of its own",
            "compute it outside of the module, or split the matrix into blocks",
        )
    return a


def _factored(node: Node, a: Operand, columns: int | None = None) -> tuple[Operand, Operand]:
    """L and U of the first columns in one matrix, and the rows of the pivots `[..., k]`, int32, counted from 1."""
    count = min(_checked(node, a).shape[-2], a.shape[-1] if columns is None else columns)
    lead = a.shape[:-2]
    lu, places = eliminated(node, a, count)
    if not count:
        return lu, zeros(node, (*lead, 0), DType.INT32)
    rows = reshaped(node, concatenated(node, places, len(lead)), (*lead, count))
    return lu, converted(node, node.add("Add", rows, node.scalar(1, DType.INT64)), DType.INT32)


def _as_factored(node: Node) -> Operand:
    """What PyTorch factors for the matrix A: the transpose, where the rows of A lie one after another."""
    a, captured = node.operand("A"), node.captured["A"]
    return turned(node, a) if isinstance(captured, torch.Tensor) and captured.is_contiguous() else a


def _information(node: Node, elements: Operand, failed: Operand) -> Operand:
    """The place of the first element that failed, counted from 1, or 0; int32."""
    axis = elements.rank - 1
    if not elements.type.size:
        return zeros(node, elements.shape[:axis], DType.INT32)
    places = node.constant(np.arange(1, elements.shape[axis] + 1, dtype=np.int32))
    none = node.scalar(elements.shape[axis] + 1, DType.INT32)
    first = node.add("ReduceMin", node.add("Where", failed, places, none), axes=(axis,), keepdims=False)
    return node.add("Where", node.add("Equal", first, none), node.scalar(0, DType.INT32), first)


def _singular(node: Node, lu: Operand) -> Operand:
    """The place of the first pivot that is 0, counted from 1, or 0."""
    pivots = diagonal(node, lu)
    return _information(node, pivots, node.add("Equal", pivots, node.scalar(0, pivots.dtype)))


def _lu_factor(node: Node) -> Result:
    lu, pivots = _factored(node, _pivoted(node))
    return [lu, pivots, _singular(node, lu) if node.used[2] else None]


def _lu_factor_alone(node: Node) -> Result:
    return list(_factored(node, _pivoted(node)))


def _pivoted(node: Node) -> Operand:
    if not node.flag("pivot"):
        raise node.unsupported("a factorisation without pivoting", "pivot=True, which is what PyTorch does on CPUs")
    return node.operand("A")


def _lu(node: Node) -> Result:
    lu, pivots = _factored(node, _pivoted(node))
    return [exchanges(node, lu, pivots) if node.used[0] else None, *triangles(node, lu)]


def _lu_unpack(node: Node) -> Result:
    lu, pivots = node.operand("LU_data"), node.operand("LU_pivots")
    nothing = zeros(node, (0,), lu.dtype)
    moves = exchanges(node, lu, pivots) if node.flag("unpack_pivots") else nothing
    return [moves, *(triangles(node, lu) if node.flag("unpack_data") else [nothing, nothing])]


def _lu_solve(node: Node) -> Result:
    """With factors: `A X = B`, the transpose of A for `adjoint`; without `left`, `X A = B`, which is `A' X' = B'`."""
    lu, pivots, b = node.operand("LU"), node.operand("pivots"), node.operand("B")
    return _solved_by_factors(node, lu, pivots, b, left=node.flag("left"), adjoint=node.flag("adjoint"))


def _solved_by_factors(
    node: Node, lu: Operand, pivots: Operand, b: Operand, *, left: bool, adjoint: bool = False
) -> Operand:
    if not left:
        return turned(node, _solved_by_factors(node, lu, pivots, turned(node, b), left=True, adjoint=not adjoint))
    rows = _checked(node, lu).shape[-1]
    lead = np.broadcast_shapes(lu.shape[:-2], b.shape[:-2])
    x = expanded(node, b, (*lead, *b.shape[-2:]))
    if not x.type.size:
        return x
    order = reshaped(node, order_of(node, pivots, rows, inverse=adjoint), (*pivots.shape, 1))
    order = expanded(node, order, x.shape)
    if adjoint:
        x = substituted(node, turned(node, lu), x, upper=False, unit=False)
        x = substituted(node, turned(node, lu), x, upper=True, unit=True)
        return node.add("GatherElements", x, order, axis=len(lead))
    x = node.add("GatherElements", x, order, axis=len(lead))
    x = substituted(node, lu, x, upper=False, unit=True)
    return substituted(node, lu, x, upper=True, unit=False)


def _solve(node: Node) -> Result:
    x, lu, pivots = _solved(node)
    return [x, lu, pivots, _singular(node, lu) if node.used[3] else None]


def _solve_alone(node: Node) -> Result:
    return _solved(node)[0]


def _solve_with_information(node: Node) -> Result:
    x, lu, _ = _solved(node)
    return [x, _singular(node, lu) if node.used[1] else None]


def _solved(node: Node) -> tuple[Operand, Operand, Operand]:
    """The X with `A X = B` or `X A = B`, and A's factors; B may be a vector, or a vector for each matrix."""
    a, b = node.operand("A"), node.operand("B")
    is_vector = b.rank == 1 or (b.rank == a.rank - 1 and b.shape == a.shape[:-1])
    right = reshaped(node, b, (*b.shape, 1)) if is_vector else b
    if node.flag("left"):
        x, lu, pivots = _eliminated_beside(node, a, right)
    else:
        lu, pivots = _factored(node, a)
        x = _solved_by_factors(node, lu, pivots, right, left=False)
    return reshaped(node, x, node.shape), lu, pivots


def _eliminated_beside(node: Node, a: Operand, b: Operand) -> tuple[Operand, Operand, Operand]:
    """The X with `A X = B`, where A and B are eliminated as one matrix, and A's factors as `_factored` gives them.

    Where there are more B than A, A alone is eliminated.
    """
    rows, lead = a.shape[-1], a.shape[:-2]
    if np.broadcast_shapes(lead, b.shape[:-2]) != lead:
        lu, pivots = _factored(node, a)
        return _solved_by_factors(node, lu, pivots, b, left=True), lu, pivots
    both = node.add("Concat", a, expanded(node, b, (*lead, *b.shape[-2:])), axis=len(lead) + 1)
    done, pivots = _factored(node, both, rows)
    lu, rest = part(node, done, len(lead) + 1, 0, rows), part(node, done, len(lead) + 1, rows, b.shape[-1])
    return substituted(node, lu, rest, upper=True, unit=False), lu, pivots


def _inverse(node: Node) -> Result:
    a = node.operand("A")
    x, lu, _ = _eliminated_beside(node, a, identity(node, a.shape[-1], a.dtype))
    return [x, _singular(node, lu) if node.used[1] else None]


def _inverse_alone(node: Node) -> Result:
    a = node.operand("self" if node.operator == "inverse" else "A")
    return _eliminated_beside(node, a, identity(node, a.shape[-1], a.dtype))[0]


def _determinant(node: Node) -> Result:
    """The product of the pivots, negative after an odd number of exchanges (section 3.4)."""
    lu, pivots = _factored(node, _as_factored(node))
    return [_signed_product(node, diagonal(node, lu), pivots), lu, pivots]


def _logarithm_of_determinant(node: Node) -> Result:
    """The sign of the determinant, and the logarithm of its magnitude."""
    lu, pivots = _factored(node, _as_factored(node))
    elements = diagonal(node, lu)
    sign = _signed_product(node, node.add("Sign", elements), pivots)
    if not pivots.type.size:
        return [sign, zeros(node, sign.shape, sign.dtype), lu, pivots]
    logarithms = node.add("Log", node.add("Abs", elements))
    return [sign, node.add("ReduceSum", logarithms, axes=(pivots.rank - 1,), keepdims=False), lu, pivots]


def _signed_product(node: Node, elements: Operand, pivots: Operand) -> Operand:
    """The product of elements along the last dimension, negative after an odd number of exchanges of rows."""
    lead, count = elements.shape[:-1], elements.shape[-1]
    if not elements.type.size:
        return node.constant(np.ones(lead, dtype=elements.dtype.numpy))
    stays = node.add("Equal", pivots, node.constant(np.arange(1, count + 1, dtype=np.int32)))
    factors = node.add("Where", stays, elements, node.add("Neg", elements))
    return node.add("ReduceProd", factors, axes=(len(lead),), keepdims=False)


def _cholesky(node: Node) -> Result:
    """The factor and, as information, the order of the first leading block that is not positive definite, or 0."""
    triangle, squares = _cholesky_factor(node)
    if not node.used[1]:
        return [triangle, None]
    failed = node.add("Not", node.add("Greater", squares, node.scalar(0, squares.dtype)))
    return [triangle, _information(node, squares, failed)]


def _cholesky_alone(node: Node) -> Result:
    return _cholesky_factor(node)[0]


def _cholesky_factor(node: Node) -> tuple[Operand, Operand]:
    """The triangle, and the squares of its diagonal."""
    a = _checked(node, node.operand("self"))
    if not node.flag("upper"):
        return cholesky(node, a)
    lower, squares = cholesky(node, turned(node, a))
    return turned(node, lower), squares


def _cholesky_solve(node: Node) -> Result:
    return _solved_by_triangle(node, node.operand("input2"), node.operand("self"))


def _cholesky_inverse(node: Node) -> Result:
    triangle = node.operand("self")
    return _solved_by_triangle(node, triangle, identity(node, triangle.shape[-1], triangle.dtype))


def _solved_by_triangle(node: Node, triangle: Operand, b: Operand) -> Operand:
    """The X with `L L' X = B`, or `U' U X = B` for `upper`."""
    lower = turned(node, _checked(node, triangle)) if node.flag("upper") else _checked(node, triangle)
    half = substituted(node, lower, b, upper=False, unit=False)
    return substituted(node, turned(node, lower), half, upper=True, unit=False)


def _triangular_solve(node: Node) -> Result:
    a, upper = _checked(node, node.operand("A")), node.flag("upper")
    own = turned(node, a) if node.flag("transpose") else a
    is_upper = upper is not node.flag("transpose")
    x = substituted(node, own, node.operand("self"), upper=is_upper, unit=node.flag("unitriangular"))
    return [x, expanded(node, a, (*x.shape[:-2], *a.shape[-2:]))]


def _qr(node: Node) -> Result:
    """Q is `[m, m]` in the mode "complete", else `[m, k]` with the lesser extent; in the mode "r" it is empty."""
    a, mode = _checked(node, node.operand("A")), node.text("mode")
    rows, columns = a.shape[-2:]
    r, reflections = reflected(node, a)
    if mode == "r":
        return [zeros(node, (0,), a.dtype), r]
    width = rows if mode == "complete" else min(rows, columns)
    if width > r.shape[-2]:
        r = node.add("Concat", r, zeros(node, (*a.shape[:-2], width - r.shape[-2], columns), a.dtype), axis=a.rank - 2)
    q = orthogonal(node, reflections, (*a.shape[:-2], rows, width), a.dtype) if node.used[0] else None
    return [q, r]


def _packed_qr(node: Node) -> Result:
    """As LAPACK has them: R with the Householder vectors below the diagonal, and their factors."""
    a = _checked(node, node.operand("self"))
    lead, (rows, columns) = a.shape[:-2], a.shape[-2:]
    r, reflections = reflected(node, a)
    count = min(rows, columns)
    factors = [reshaped(node, factor, (*lead, 1)) for _, factor in reflections]
    factors.append(zeros(node, (*lead, count - len(factors)), a.dtype))
    below = zeros(node, (*lead, rows, columns - len(reflections)), a.dtype)
    vectors = concatenated(node, [*(vector for vector, _ in reflections), below], a.rank - 1)
    upper = concatenated(node, [r, zeros(node, (*lead, rows - count, columns), a.dtype)], a.rank - 2)
    packed_qr = node.add("Add", upper, node.add("Trilu", vectors, k=-1, upper=False))
    return [packed_qr, concatenated(node, factors, len(lead))]


def _householder_product(node: Node) -> Result:
    """The first columns of Q, of which the vectors and factors are given."""
    a = _checked(node, node.operand("input"))
    return orthogonal(node, packed(node, a, node.operand("tau")), a.shape, a.dtype)


def _times_q(node: Node) -> Result:
    """`Q C` or `Q' C`, and `C Q` or `C Q'`, which are the transposes of `Q' C'` and `Q C'`."""
    a, tau, c = (node.operand(name) for name in ("self", "input2", "input3"))
    reflections = packed(node, _checked(node, a), tau)
    if node.flag("left"):
        return times_orthogonal(node, reflections, c, transpose=node.flag("transpose"))
    return turned(node, times_orthogonal(node, reflections, turned(node, c), transpose=not node.flag("transpose")))


def _exponential(node: Node) -> Result:
    """A Taylor polynomial of a matrix divided by a power of two, squared as often (section 9.3).

    Of degree 16, for norms up to 1/2, it is exact to float64, for norms up to 2 to float32.
    """
    a = node.operand("self")
    if not a.type.size:
        return a
    axes, zero = (a.rank - 2, a.rank - 1), node.scalar(0, a.dtype)
    sums = node.add("ReduceSum", node.add("Abs", a), axes=axes[:1], keepdims=True)
    norm = node.add("ReduceMax", sums, axes=axes[1:], keepdims=True)
    halvings: Operand = zero
    least = -1 if a.dtype is DType.FLOAT64 else 1
    for exponent in range(least, least + _SQUARINGS):
        greater = node.add("Greater", norm, node.scalar(2.0**exponent, a.dtype))
        halvings = node.add("Add", halvings, node.add("Cast", greater, to=a.dtype))
    scale = node.add("Pow", node.scalar(0.5, a.dtype), halvings)
    x = node.add("Mul", a, scale)
    powers = [identity(node, a.shape[-1], a.dtype), x]
    while len(powers) <= _BLOCK:
        powers.append(node.add("MatMul", powers[-1], x))
    result: Operand | None = None
    for start in reversed(range(0, _EXPONENTIAL_DEGREE, _BLOCK)):
        last = result is None
        terms = [
            node.add("Mul", powers[degree], node.scalar(1 / math.factorial(start + degree), a.dtype))
            for degree in range(_BLOCK + last)
        ]
        if result is not None:
            terms.append(node.add("MatMul", powers[_BLOCK], result))
        result = reduce(partial(node.add, "Add"), terms)
    assert result is not None
    for squaring in range(_SQUARINGS):
        wanted = node.add("Greater", halvings, node.scalar(squaring, a.dtype))
        result = node.add("Where", wanted, node.add("MatMul", result, result), result)
    return result


CONVERTERS: Mapping[str, Converter] = {
    "_linalg_det": _determinant,
    "_linalg_slogdet": _logarithm_of_determinant,
    "_linalg_solve_ex": _solve,
    "cholesky": _cholesky_alone,
    "cholesky_inverse": _cholesky_inverse,
    "cholesky_solve": _cholesky_solve,
    "geqrf": _packed_qr,
    "inverse": _inverse_alone,
    "linalg_cholesky": _cholesky_alone,
    "linalg_cholesky_ex": _cholesky,
    "linalg_householder_product": _householder_product,
    "linalg_inv": _inverse_alone,
    "linalg_inv_ex": _inverse,
    "linalg_lu": _lu,
    "linalg_lu_factor": _lu_factor_alone,
    "linalg_lu_factor_ex": _lu_factor,
    "linalg_lu_solve": _lu_solve,
    "linalg_matrix_exp": _exponential,
    "linalg_qr": _qr,
    "linalg_solve": _solve_alone,
    "linalg_solve_ex": _solve_with_information,
    "lu_unpack": _lu_unpack,
    "ormqr": _times_q,
    "triangular_solve": _triangular_solve,
}
