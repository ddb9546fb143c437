"""Minimal filtering F(m, r): m outputs of a filter of r taps from m + r - 1 products instead of m * r.

    y = A ((G g) * (B d))        y[i] = sum over k of g[k] * d[i + k]

Filter and data are evaluated as polynomials at points, where a product of values is the value of the product (Toom and
Cook); the transpose of that algorithm is a filter (Winograd, Arithmetic Complexity of Computations, 1980). In two
dimensions it runs along one, then along the other (Lavin and Gray, CVPR 2016). The points are 0, pairs of opposite
sign, whose rows of B and columns of A share most of their arithmetic, and infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, reduce
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rammer.ir.expr import Expr

# The points beside 0 and infinity by (outputs, taps): pairs of opposite sign, and those without a partner. They are
# exact in binary and, of those with so few bits, keep rounding errors smallest: for F(4, 3) half of what 1 and 2 give,
# for F(2, 3) those of the plain sum.
_POINTS: Mapping[tuple[int, int], tuple[tuple[Fraction, ...], tuple[Fraction, ...]]] = {
    (1, 1): ((), ()),
    (2, 3): ((Fraction(1),), ()),
    (4, 3): ((Fraction(3, 4), Fraction(3, 2)), ()),
    (4, 4): ((Fraction(1, 2), Fraction(9, 8)), (Fraction(-11, 4),)),
    (4, 5): ((Fraction(1, 2), Fraction(1), Fraction(2)), ()),
}

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtering:
    """F(`outputs`, `taps`) at 0, the `paired` points and their negatives, the `single` points and infinity, in order.

    F(1, 1) is the product itself.
    """

    outputs: int
    taps: int
    paired: tuple[Fraction, ...]
    single: tuple[Fraction, ...]

    @property
    def size(self) -> int:
        """Points, and elements of the data, of one application."""
        return self.outputs + self.taps - 1

    @property
    def points(self) -> tuple[Fraction, ...]:
        """All but infinity."""
        if self.size == 1:
            return ()
        return (Fraction(0), *(sign * point for point in self.paired for sign in (1, -1)), *self.single)

    @property
    def filter(self) -> npt.NDArray[np.float64]:
        """The matrix G, `[size, taps]`, which nobody writes to."""
        return _filter(self)

    def weights(self, w: Sequence[Expr]) -> list[Expr]:
        """The weights at the points, `G w`."""
        return [_combined([Fraction(float(factor)) for factor in row], w) for row in self.filter]

    def data(self, d: Sequence[Expr]) -> list[Expr]:
        """B d, of `size` elements."""
        if self.size == 1:
            return list(d)
        values = [_combined(_monic(self.points[1:]), d)]
        for a in self.paired:
            # The rows of both are (x + a) and (x - a) times what they have in common.
            common = _monic([b for b in self.points if abs(b) != a])
            shifted, scaled = _combined([Fraction(0), *common], d), _combined([a * c for c in common], d)
            values += [shifted + scaled, shifted - scaled]
        values += [_combined(_monic([b for b in self.points if b != a]), d) for a in self.single]
        return [*values, _combined(_monic(self.points), d)]

    def result(self, products: Sequence[Expr]) -> list[Expr]:
        """A times the `size` products, of `outputs` elements."""
        if self.size == 1:
            return list(products)
        zero, *others, infinity = products
        paired, single = others[: 2 * len(self.paired)], others[2 * len(self.paired) :]
        sums = [a + b for a, b in zip(paired[::2], paired[1::2], strict=True)]
        differences = [a - b for a, b in zip(paired[::2], paired[1::2], strict=True)]
        powers = (
            ([a**i for a in (*self.paired, *self.single)], [*(differences if i % 2 else sums), *single])
            for i in range(self.outputs)
        )
        values = [_combined(coefficients, elements) for coefficients, elements in powers]
        return [values[0] + zero, *values[1:-1], values[-1] + infinity]


@cache
def _filter(by: Filtering) -> npt.NDArray[np.float64]:
    rows = [[a**k / _product(a - b for b in by.points if b != a) for k in range(by.taps)] for a in by.points]
    return np.array([*rows, [*[0] * (by.taps - 1), 1]], np.float64)


@cache
def filtering(outputs: int, taps: int) -> Filtering:
    """F(outputs, taps), of those with points that are good for float32."""
    paired, single = _POINTS[outputs, taps]
    return Filtering(outputs=outputs, taps=taps, paired=paired, single=single)


def filterings(taps: int) -> tuple[Filtering, ...]:
    """Those that a filter of so many taps may be cut into, F(1, 1) first.

    Groups of taps work on data that lie apart by their number of taps, tiles on such by their number of outputs: unless
    both are the same, there has to be one group.
    """
    return tuple(
        filtering(outputs, length) for outputs, length in _POINTS if length == taps or outputs == length < taps
    )


def in_two_dimensions(
    transforms: Sequence[Callable[[Sequence[_T]], list[_T]]],
    square: Sequence[Sequence[_T]],
) -> list[list[_T]]:
    """The second transform along the rows of a square, then the first along the columns."""
    along_columns, along_rows = transforms
    columns = zip(*map(along_rows, square), strict=True)
    return [list(row) for row in zip(*map(along_columns, columns), strict=True)]


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
