"""Who moves next: the speeds of the vEUs, as choices that make every legal execution possible."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol


class Picker(Protocol):
    """Chooses the vEU that makes the next event happen. A picker that keeps state serves one run."""

    def pick(self, enabled: Sequence[int], progress: Sequence[int]) -> int:
        """One of `enabled`, which is ascending and never empty; `progress[v]` counts vEU v's events so far."""
        ...


class Lowest:
    """The vEU of lowest number that can go on: the others as late as possible."""

    def pick(self, enabled: Sequence[int], progress: Sequence[int]) -> int:
        """The first."""
        return enabled[0]


class Highest:
    """The vEU of highest number that can go on: the others as late as possible."""

    def pick(self, enabled: Sequence[int], progress: Sequence[int]) -> int:
        """The last."""
        return enabled[-1]


class Behind:
    """The vEU that has done least: all of them nearly in step."""

    def pick(self, enabled: Sequence[int], progress: Sequence[int]) -> int:
        """The one with the fewest events, the lowest among equals."""
        return min(enabled, key=lambda veu: progress[veu])


class Starving:
    """The victim only when nobody else can go on, else the vEU that has done least."""

    def __init__(self, victim: int) -> None:
        self._victim = victim

    def pick(self, enabled: Sequence[int], progress: Sequence[int]) -> int:
        """Anybody but the victim."""
        others = [veu for veu in enabled if veu != self._victim]
        return min(others, key=lambda veu: progress[veu]) if others else self._victim


class Random:
    """Any vEU, all equally likely."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, enabled: Sequence[int], progress: Sequence[int]) -> int:
        """One of them."""
        return enabled[int(self._random.random() * len(enabled))]


class Bursts:
    """One vEU for a while, then another: long stretches without the others, as on a machine with fewer cores."""

    def __init__(self, seed: int, mean_events: float = 8.0) -> None:
        self._random = random.Random(seed)
        self._stay = 1.0 - 1.0 / mean_events
        self._current = -1

    def pick(self, enabled: Sequence[int], progress: Sequence[int]) -> int:
        """The current one while it can go on and its burst lasts."""
        if self._current not in enabled or self._random.random() > self._stay:
            self._current = enabled[int(self._random.random() * len(enabled))]
        return self._current
