"""Whether predicted times order programs as measured ones do."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import combinations


def kendall(pairs: Sequence[tuple[float, float]], noise: float = 0.0) -> float:
    """The Kendall correlation of two orders, from -1 to 1; 1 where there is nothing to order.

    Args:
        pairs: of each program, what is predicted and what is measured.
        noise: of the smaller of two measured times, how far apart they are at most that a second measurement may order
            the other way: such pairs are left out, whatever is predicted. Equal predictions of others count as 0.
    """
    signs = [
        _sign(one[0] - other[0]) * _sign(one[1] - other[1])
        for one, other in combinations(pairs, 2)
        if abs(one[1] - other[1]) > noise * min(one[1], other[1])
    ]
    return statistics.fmean(signs) if signs else 1.0


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
