"""How time is taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Takes the time of calls, on the host or on a device."""

    def time_us(self, run: Callable[[], object], count: int) -> list[float]:
        """The times of `count` calls, one after another, in microseconds."""
        ...


class WallClock:
    """For runtimes whose call ends when the result is there."""

    def time_us(self, run: Callable[[], object], count: int) -> list[float]:
        """The times of `count` calls, one after another, in microseconds."""
        times_us = []
        for _ in range(count):
            start_ns = time.perf_counter_ns()
            run()
            times_us.append((time.perf_counter_ns() - start_ns) / 1e3)
        return times_us
