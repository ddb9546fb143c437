"""Constants that follow from less, in the form in which a device's own code makes them; see `rammer.ir.recipe`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.ir.recipe import Array, FilteredWeights, FilterLine, Recipe, Scaled, Transposed
from rammer.ir.types import Layout

TYPES = ("float32", "float16", "bfloat16")
MOST_TAPS = 8
"""Taps of a group."""
MOST_POINTS = 16
_RANK = 4
_MOST = 1 << 31
_Steps = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """Weights of four dimensions, times factors, at the points of filters along the last two.

    The first two may be exchanged; the first one is that whose neighbours are neighbours in the result.

    Attributes:
        weights: of one of `TYPES`.
        factor: what they are multiplied by in float64, rounded to float32; or None. The same along the last two.
        lines: the filters, which have at most `MOST_TAPS` and `MOST_POINTS`.
        steps: what an index of a point, of either dimension and of either sum adds to an address of the result.
        span: elements of the result.
        by_others: whether the second dimension is the outer one in memory.
    """

    weights: Array
    factor: npt.NDArray[np.float64] | None
    lines: tuple[FilterLine, FilterLine]
    steps: tuple[_Steps, ...]
    span: int
    by_others: bool


def sums_of(line: FilterLine, taps: int) -> int:
    """Phases times groups of a line of so many taps."""
    return min(line.stride, taps) * line.groups


def making_of(recipe: Recipe) -> Making | None:
    """What makes a recipe's constant; None where it has another form."""
    weights, factor, filters = recipe.base, None, None
    if not weights.size or max(weights.shape, default=0) >= _MOST or weights.dtype.name not in TYPES:
        return None
    for step in recipe.steps:
        match step:
            case Scaled(given) if factor is None and filters is None:
                factor = np.broadcast_to(np.asarray(given, np.float64), weights.shape)
            case Transposed(order) if filters is None:
                weights = weights.transpose(order)
                factor = None if factor is None else factor.transpose(order)
            case FilteredWeights() if filters is None and _is_short(step.rows) and _is_short(step.columns):
                filters = step
            case _:
                return None
    if filters is not None:
        return _filtered(weights, factor, filters, recipe.layout)
    if factor is None or weights.ndim > _RANK:  # without factors the type is that of the weights
        return None
    return _scaled(weights, factor, recipe.layout)


def _filtered(
    weights: Array, factor: npt.NDArray[np.float64] | None, filters: FilteredWeights, layout: Layout | None
) -> Making | None:
    lines = (filters.rows, filters.columns)
    sums = [sums_of(line, taps) for line, taps in zip(lines, weights.shape[2:], strict=True)]
    shape = (math.prod(len(line.matrix) for line in lines), *weights.shape[:2], *sums)
    layout = layout or Layout.row_major(shape)
    points, *steps = layout.steps(shape)
    order = (0, 1, 2, 3) if _step(steps[0]) <= _step(steps[1]) else (1, 0, 2, 3)
    return _making(weights, factor, order, lines, points, steps, layout.span)


def _scaled(weights: Array, factor: npt.NDArray[np.float64], layout: Layout | None) -> Making | None:
    """Each element is a sum by itself, of any four dimensions."""
    layout = layout or Layout.row_major(weights.shape)
    padding = (1,) * (_RANK - weights.ndim)
    steps = [*layout.steps(weights.shape), *(np.zeros(1, np.int64) for _ in padding)]
    weights, factor = (array.reshape(*array.shape, *padding) for array in (weights, factor))
    lane, *rest = sorted(range(_RANK), key=lambda dim: _step(steps[dim]))
    order = [lane, *sorted(rest, key=lambda dim: not _varies(factor, dim))]  # factors are not of taps
    lines = [FilterLine(stride=1, groups=weights.shape[dim], matrix=((1.0,),)) for dim in order[2:]]
    return _making(weights, factor, order, (lines[0], lines[1]), np.zeros(1, np.int64), steps, layout.span)


def _making(
    weights: Array,
    factor: npt.NDArray[np.float64] | None,
    order: Sequence[int],
    lines: tuple[FilterLine, FilterLine],
    points: _Steps,
    steps: Sequence[_Steps],
    span: int,
) -> Making | None:
    """Dimensions in another order; None where factors are of taps."""
    if factor is not None:
        factor = factor.transpose(order)
        if any(_varies(factor, dim) for dim in (2, 3)):
            return None
    ordered = [steps[dim] for dim in order]
    return Making(
        weights=weights.transpose(order),
        factor=factor,
        lines=lines,
        steps=(points, *ordered),
        span=span,
        by_others=int(ordered[0][-1]) < _step(ordered[1]) < _MOST,
    )


def _is_short(line: FilterLine) -> bool:
    return len(line.matrix) <= MOST_POINTS and len(line.matrix[0]) <= MOST_TAPS and line.stride < _MOST


def _varies(factor: npt.NDArray[np.float64], dim: int) -> bool:
    return factor.shape[dim] > 1 and factor.strides[dim] != 0


def _step(steps: _Steps) -> int:
    """From an index to the next one; much where there is none."""
    return int(steps[1] - steps[0]) if len(steps) > 1 else _MOST
