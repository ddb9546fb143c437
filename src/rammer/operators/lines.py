"""Statistics along some dimensions of an operand, for reductions and normalisations.

Each statistic has reduction axes of its own (m: extreme or mean, s: sum, v: variance, a: position), so that one may
stand within another, and a statistic that appears twice in a formula is one node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rammer.ir.expr import Expr, ReduceFn, ScalarFn, call, load
from rammer.ir.types import TensorType
from rammer.operators.registry import require
from rammer.operators.scalars import choose, equal, exp, log, real, sqrt, square
from rammer.operators.shapes import reduced, reduction_axes

Positions = Sequence[Expr]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Elements `at(positions)`, one position below each of `extents`; where the line lies is up to `at`."""

    extents: tuple[int, ...]
    at: Callable[[Positions], Expr]

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.extents)

    def reduce(self, fn: ReduceFn, prefix: str, formula: Callable[[Expr], Expr] = lambda x: x) -> Expr:
        """The reduction of `formula` of each element, over axes named by `prefix`."""
        axes = reduction_axes(self.extents, prefix)
        return reduced(fn, axes, formula(self.at(axes)))

    def sum(self, formula: Callable[[Expr], Expr] = lambda x: x) -> Expr:
        """The sum of `formula` of each element."""
        return self.reduce(ReduceFn.SUM, "s", formula)


def line_along(slot: int, type_: TensorType, dims: Sequence[int], indices: Sequence[Expr]) -> Line:
    """The line of a slot along `dims` through `indices`, whose entries at `dims` do not matter."""

    def at(positions: Positions) -> Expr:
        along = dict(zip(dims, positions, strict=True))
        return load(slot, type_, [along.get(dim, index) for dim, index in enumerate(indices)])

    return Line(extents=tuple(type_.shape[dim] for dim in dims), at=at)


def mean(line: Line) -> Expr:
    """The mean; of integers it is truncated.

    Raises:
        InvalidModelError: there are no elements and they are integers.
    """
    total = line.reduce(ReduceFn.SUM, "m")
    require(line.count > 0 or total.dtype.is_float, "the mean of no integers is not defined")
    return total / line.count


def variance(line: Line) -> Expr:
    """The mean squared distance from the mean, by a pass for each: no cancellation."""
    center = mean(line)
    return line.reduce(ReduceFn.SUM, "v", lambda x: square(x - center)) / line.count


def inverse_deviation(line: Line, epsilon: float) -> Expr:
    """`1 / sqrt(variance + epsilon)`."""
    return 1.0 / sqrt(variance(line) + epsilon)


def greatest(line: Line) -> Expr:
    """The greatest element; NaN where there is one."""
    return line.reduce(ReduceFn.MAX, "m")


def log_sum_exp(line: Line) -> Expr:
    """`log(sum(exp(x)))`, shifted by the greatest element so that nothing overflows; integers become float64."""
    numbers = Line(extents=line.extents, at=lambda positions: real(line.at(positions)))
    top = greatest(numbers)
    shift = choose(call(ScalarFn.ISINF, top), 0.0, top)
    return log(numbers.sum(lambda x: exp(x - shift))) + shift


def position_of(line: Line, fn: ReduceFn, *, last: bool) -> Expr:
    """Where the extreme element (`fn` MAX or MIN) of a line along one dimension stands: the first or last such place.

    A NaN counts as the extreme.
    """
    extreme = line.reduce(fn, "m")
    axes = reduction_axes(line.extents, "a")
    element = line.at(axes)
    found = equal(element, extreme)
    if element.dtype.is_float:
        found = call(ScalarFn.OR, found, call(ScalarFn.ISNAN, element))
    candidate = choose(found, axes[0], -1 if last else line.count)
    return reduced(ReduceFn.MAX if last else ReduceFn.MIN, axes, candidate)
