"""Operands that are *windows*, elements that are short sums: how many points a thread computes together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.ir.expr import Axis

_TOGETHER = (4, 2)

Sides = Sequence[tuple[Axis, int]]
"""Axes of an operand's points with their sizes in a tile, the fastest first."""


def neighbours(sides: Sides) -> tuple[Axis, int]:
    """The side that neighbouring points run along."""
    return next((side for side in sides if side[1] > 1), sides[0])


def points_together(sides: Sides, points: int, k: int, threads: int) -> int:
    """How many neighbouring points each of so many threads takes, of a stage of at most `points`, `k` elements a point.

    It loads once what their windows share: a few, but no thread goes without any for it.
    """
    axis, size = neighbours(sides)
    elements = min(points, math.prod(each for _, each in sides)) * k
    fitting = (taken for taken in _TOGETHER if size % taken == 0 and taken * threads <= elements)
    return 1 if axis.extent % size else next(fitting, 1)
