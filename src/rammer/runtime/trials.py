"""Whether one of two programs is quicker: paired calls in turns, and a sign test.

The calls of a pair are close to each other, so whatever else the machine does, it does to both. The test counts in how
many pairs the newcomer was quicker and asks how likely that would be of equals; how much quicker, it does not assume.
"""

from __future__ import annotations

import enum
import math
import statistics
from dataclasses import dataclass, field

LEAST_GAIN = 0.01
"""What a newcomer has to gain to be taken: what is closer is not worth a change."""
_LOOKS = (16, 32, 64, 128)
"""Pairs after which the test is made: few looks, for each is another chance to be wrong."""
_CHANCE = 0.002
"""How likely a verdict is wrong at a look at most, were both alike."""


class Verdict(enum.Enum):
    """What became of a trial."""

    QUICKER = "quicker"
    NO_QUICKER = "no quicker"
    TOO_SLOW = "too slow"


@dataclass(slots=True)
class Trial:
    """A newcomer beside what runs now.

    Attributes:
        max_slowdown: a newcomer that takes longer than so many times the other's call, twice, is not called again: once
            may be an interruption.
        ratios: of each pair, the newcomer's time over the other's.
    """

    max_slowdown: float
    ratios: list[float] = field(default_factory=list)

    def pair(self, known_us: float, newcomer_us: float) -> Verdict | None:
        """What a pair of calls decides; None where it takes more of them.

        Args:
            known_us: the call of what runs now, in microseconds.
            newcomer_us: the newcomer's.
        """
        ratio = newcomer_us / known_us
        self.ratios.append(ratio)
        if sum(one > self.max_slowdown for one in self.ratios) > 1:
            return Verdict.TOO_SLOW
        count = len(self.ratios)
        if count not in _LOOKS:
            return None
        wins = sum(one < 1.0 for one in self.ratios)
        if tail(count, wins) < _CHANCE and self.ratio <= 1.0 - LEAST_GAIN:
            return Verdict.QUICKER
        lost = tail(count, count - wins) < _CHANCE
        return Verdict.NO_QUICKER if lost or count == _LOOKS[-1] else None

    @property
    def ratio(self) -> float:
        """The median of the pairs' ratios; there is at least one."""
        return statistics.median(self.ratios)


def tail(count: int, wins: int) -> float:
    """How likely one of two equals wins at least so many of `count` pairs."""
    return sum(math.comb(count, k) for k in range(wins, count + 1)) / 2.0**count
