"""Resampling along one dimension, at positions and with weights that are known at compile time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rammer.frontends.builder import Operand
from rammer.frontends.moves import repeated
from rammer.frontends.node import ModelNode

Floats = npt.NDArray[np.float64]


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
    shape = (positions.shape[1], *(1 for _ in x.shape[axis + 1 :]))
    total: Operand | None = None
    for tap, weight in zip(positions, weights, strict=True):
        element = node.add("Gather", x, node.constant(_clamped(tap, x.shape[axis])), axis=axis)
        term = node.add("Mul", element, node.constant(weight.astype(x.dtype.numpy).reshape(shape)))
        total = term if total is None else node.add("Add", total, term)
    if total is None:
        raise node.invalid("its filter is empty")
    return total


def cubic(distance: Floats, a: float) -> Floats:
    """Keys' cubic convolution kernel."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))


def _clamped(positions: Floats, extent: int) -> npt.NDArray[np.int64]:
    return np.clip(positions, 0, extent - 1).astype(np.int64)
