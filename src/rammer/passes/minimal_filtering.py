"""Minimal filtering F(m, r): m outputs of a filter of r taps from m + r - 1 products instead of m * r.

    y = A ((G g) * (B d))        y[i] = sum over k of g[k] * d[i + k]

Filter and data are evaluated as polynomials at points, where a product of values is the value of the product (Toom and
Cook); the transpose of that algorithm is a filter (Winograd, Arithmetic Complexity of Computations, 1980). In two
dimensions it runs along one, then along the other (Lavin and Gray, CVPR 2016). The points are 0, pairs of opposite
sign, whose rows of B and columns of A share most of their arithmetic, and infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rammer.ir.expr import Expr

# The positive point of each pair, by outputs of three taps. They are exact in binary and, of those that are, keep
# rounding errors smallest: for F(4, 3) half of what 1 and 2 give, for F(2, 3) those of the plain sum.
_POINTS = {2: (Fraction(1),), 4: (Fraction(3, 4), Fraction(3, 2))}
_TAPS = 3

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtering:
    """F(`outputs`, 3) at 0, the `positive` points, their negatives and infinity, in this order but pair by pair."""

    outputs: int
    positive: tuple[Fraction, ...]

    @property
    def size(self) -> int:
        """Points, and elements of the data, of one application."""
        return 2 * len(self.positive) + 2

    @property
    def points(self) -> tuple[Fraction, ...]:
        """All but infinity."""
        return (Fraction(0), *(sign * point for point in self.positive for sign in (1, -1)))

    @property
    def filter(self) -> npt.NDArray[np.float64]:
        """The matrix G, `[size, 3]`."""
        rows = [[a**k / _product(a - b for b in self.points if b != a) for k in range(_TAPS)] for a in self.points]
        return np.array([*rows, [0, 0, 1]], np.float64)

    def data(self, d: Sequence[Expr]) -> list[Expr]:
        """B d, of `size` elements."""
        values = [_combined(_monic(self.points[1:]), d)]
        for a in self.positive:
            row = _monic([b for b in self.points if b != a])
            even, odd = (_combined(row[parity::2], d[parity::2]) for parity in (0, 1))
            values += [even + odd, even - odd]
        return [*values, _combined(_monic(self.points), d)]

    def result(self, products: Sequence[Expr]) -> list[Expr]:
        """A times the `size` products, of `outputs` elements."""
        zero, *paired, infinity = products
        sums = [a + b for a, b in zip(paired[::2], paired[1::2], strict=True)]
        differences = [a - b for a, b in zip(paired[::2], paired[1::2], strict=True)]
        values = [_combined([a**i for a in self.positive], differences if i % 2 else sums) for i in range(self.outputs)]
        return [values[0] + zero, *values[1:-1], values[-1] + infinity]


@cache
def filtering(outputs: int) -> Filtering:
    """F(outputs, 3) for 2 or 4 outputs."""
    return Filtering(outputs=outputs, positive=_POINTS[outputs])


def in_two_dimensions(transform: Callable[[Sequence[_T]], list[_T]], square: Sequence[Sequence[_T]]) -> list[list[_T]]:
    """A transform along the rows of a square, then along the columns."""
    columns = zip(*map(transform, square), strict=True)
    return [list(row) for row in zip(*map(transform, columns), strict=True)]


def _product(factors: Iterable[Fraction]) -> Fraction:
    return reduce(Fraction.__mul__, factors, Fraction(1))


def _monic(roots: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the polynomial with these roots, the constant first and 1 last."""
    row = [Fraction(1)]
    for root in roots:
        row = [above - root * here for above, here in zip([Fraction(0), *row], [*row, Fraction(0)], strict=True)]
    return row


def _combined(coefficients: Sequence[Fraction], values: Sequence[Expr]) -> Expr:
    """The sum of `coefficient * value`, the last first; values beyond the coefficients do not count."""
    terms = [(c, value) for c, value in zip(coefficients, values, strict=False) if c]
    first, *rest = [value if c == 1 else value * float(c) for c, value in reversed(terms)]
    return reduce(Expr.__add__, rest, first)
