"""Resampling along one dimension, at positions and with weights that are known at compile time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rammer.frontends.builder import Operand
from rammer.frontends.moves import repeated
from rammer.frontends.node import ModelNode

Floats = npt.NDArray[np.float64]

_FEW_TAPS = 64
"""So many elements are added one by one, in a chain of operators; more by a single sum."""


def picked(node: ModelNode, x: Operand, axis: int, positions: Floats) -> Operand:
    """The element at each position; positions outside are brought to the nearest end."""
    indices = _clamped(positions, x.shape[axis])
    times, rest = divmod(len(indices), x.shape[axis])
    if rest == 0 and np.array_equal(indices, np.arange(len(indices)) // max(times, 1)):
        return repeated(node, x, axis, times)
    return node.add("Gather", x, node.constant(indices), axis=axis)


def weighted(node: ModelNode, x: Operand, axis: int, positions: Floats, weights: Floats) -> Operand:
    """The weighted sum of the elements at `positions`, with as many `weights`, `[taps, extent of the result]` each.

    Positions outside are brought to the nearest end.
    """
    behind = (1,) * (x.rank - axis - 1)
    if len(positions) > _FEW_TAPS:
        elements = node.add("Gather", x, node.constant(_clamped(positions, x.shape[axis])), axis=axis)
        factors = node.constant(weights.astype(x.dtype.numpy).reshape(*weights.shape, *behind))
        return node.add("ReduceSum", node.add("Mul", elements, factors), axes=(axis,), keepdims=False)
    shape = (positions.shape[1], *behind)
    total: Operand | None = None
    for tap, weight in zip(positions, weights, strict=True):
        element = node.add("Gather", x, node.constant(_clamped(tap, x.shape[axis])), axis=axis)
        term = node.add("Mul", element, node.constant(weight.astype(x.dtype.numpy).reshape(shape)))
        total = term if total is None else node.add("Add", total, term)
    if total is None:
        raise node.invalid("its filter is empty")
    return total


def times_along(node: ModelNode, x: Operand, axis: int, matrix: Floats) -> Operand:
    """Each line along a dimension times a matrix `[extent, extent of the result]` whose columns are windows.

    An element beside a window, where the column has a zero, is not read for it.
    """
    there = matrix != 0
    positions = np.broadcast_to(np.arange(len(matrix), dtype=np.float64).reshape(-1, 1), matrix.shape)
    result = weighted(node, x, axis, *within(positions, matrix, there))
    counts = there.any(axis=0)
    if counts.all():
        return result
    column = node.constant(counts.reshape(-1, *(1 for _ in x.shape[axis + 1 :])))
    return node.add("Where", column, result, node.constant(np.zeros((), x.dtype.numpy)))


def within(positions: Floats, weights: Floats, there: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """As many taps as the longest window has, of those that are `there`: neighbours, for each element of the result.

    Shorter windows repeat their last tap, which then shares out its weight: a tap of weight 0 would make an infinity
    NaN.
    """
    counts = np.maximum(there.sum(axis=0), 1)
    taps = np.arange(counts.max(initial=1)).reshape(-1, 1)
    chosen = there.argmax(axis=0) + np.minimum(taps, counts - 1)
    sharing = np.where(taps < counts - 1, 1, len(taps) - counts + 1)
    return np.take_along_axis(positions, chosen, axis=0), np.take_along_axis(weights, chosen, axis=0) / sharing


def cubic(distance: Floats, a: float) -> Floats:
    """Keys' cubic convolution kernel."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _clamped(positions: Floats, extent: int) -> npt.NDArray[np.int64]:
    return np.clip(positions, 0, extent - 1).astype(np.int64)
