"""Distances of rows to fitted points, and the nearest of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.frontends.sklearn.functions import scale_of
from rammer.frontends.sklearn.node import Node
from rammer.frontends.sklearn.tensor import Tensor
from rammer.ir.types import DType

METRICS = ("chebyshev", "cityblock", "cosine", "euclidean", "l1", "l2", "manhattan", "minkowski", "sqeuclidean")
"""The metrics that `distances` knows."""


def squared_distances(x: Tensor, points: npt.NDArray[np.float64]) -> Tensor:
    """Squared Euclidean distances `[rows, points]`, without cancellation."""
    apart = x.new_axis(1) - points
    return (apart * apart).sum(2)


def distances(x: Tensor, points: npt.NDArray[np.float64], metric: str, parameters: Any = None) -> Tensor:
    """Distances `[rows, points]` by a metric of `METRICS`."""
    power = {"cityblock": 1.0, "l1": 1.0, "manhattan": 1.0, "chebyshev": np.inf}.get(metric, 2.0)
    if metric == "minkowski":
        power = float((parameters or {}).get("p", 2.0))
    if metric == "cosine":
        lengths = np.sqrt((points**2).sum(1))
        unit = points / np.where(lengths < 10 * np.finfo(np.float64).eps, 1, lengths)[:, None]
        return (1.0 - (x / scale_of((x * x).sum(keep=True).sqrt())) @ unit.T).clip(0.0, 2.0)
    if power == 2.0:
        squares = squared_distances(x, points)
        return squares if metric == "sqeuclidean" else squares.sqrt()
    apart = (x.new_axis(1) - points).abs()
    if power == 1.0:
        return apart.sum(2)
    return apart.max(2) if np.isinf(power) else (apart**power).sum(2) ** (1.0 / power)


def nan_euclidean(
    node: Node, x: Tensor, holes: Tensor, points: npt.NDArray[np.float64], missing: npt.NDArray[np.bool_]
) -> Tensor:
    """Euclidean distances over the coordinates that both have, scaled up to all; NaN where there is none."""
    known = ~missing
    here = (~holes).real()
    full = holes.choose(node.constant_tensor(0.0), x)
    both = here.new_axis(1) * known.astype(np.float64)
    apart = (full.new_axis(1) - np.where(missing, 0.0, points)) * both
    count = both.sum(2)
    scaled = (apart * apart).sum(2) / count * float(points.shape[1])
    return scaled.sqrt()


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The nearest points of each row, the nearest first: vectors of their places (int64) and distances."""

    places: list[Tensor]
    distances: list[Tensor]


def nearest(node: Node, apart: Tensor, count: int) -> Nearest:
    """The points of the least distances, of equal ones the first.

    Each is found among those that follow the one before by distance, then place: no distance is written again.
    """
    points = apart.shape[1]
    order = node.constant_tensor(np.arange(points), DType.INT64)
    infinite, last = node.constant_tensor(np.inf), node.constant_tensor(points, DType.INT64)
    places: list[Tensor] = []
    found: list[Tensor] = []
    for _ in range(count):
        left = apart
        if found:
            bound, place = found[-1].new_axis(1), places[-1].new_axis(1)
            follows = (apart > bound) | (apart.equals(bound) & (order.expand(1, points) > place))
            left = follows.choose(apart, infinite)
            least = left.min()
            at = (follows & apart.equals(least.new_axis(1))).choose(order, last).min()
        else:
            least, at = left.min(), left.argmin()
        found.append(least)
        places.append(at.minimum(points - 1))
    return Nearest(places, found)
