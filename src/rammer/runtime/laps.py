"""How long the calls of a program take: by the clock of its device, or else by that of the host."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from rammer.devices.base import Lap, Swappable
from rammer.runtime.executable import Executable
from rammer.runtime.recorded import record

Timer = Callable[[], AbstractContextManager[Lap]]
"""Times the call that is made inside."""

TimerOf = Callable[[Executable, bool], Timer]
"""What times the calls of a program, each rProgram apart where that is asked for."""


class HostLap:
    """The time of a call that has returned; see `rammer.devices.base.Lap`."""

    def __init__(self) -> None:
        self.told_us: Sequence[float] | None = None

    def times_us(self) -> Sequence[float] | None:
        """The time, once the call is over."""
        return self.told_us


def timer_of(program: Executable, by_program: bool) -> Timer:
    """What times the calls of a program."""
    loaded = program._loaded
    if isinstance(loaded, Swappable):
        return loaded.timed_by_program if by_program else loaded.timed
    return partial(_recorded, record(program).programs_us) if by_program else host_timer(time.perf_counter)


def host_timer(clock: Callable[[], float]) -> Timer:
    """What times calls by a clock, in seconds."""
    return partial(_clocked, clock)


@contextmanager
def _clocked(clock: Callable[[], float]) -> Iterator[Lap]:
    lap, begin_s = HostLap(), clock()
    yield lap
    lap.told_us = (1e6 * (clock() - begin_s),)


@contextmanager
def _recorded(programs_us: Callable[[], Sequence[float]]) -> Iterator[Lap]:
    lap = HostLap()
    yield lap
    lap.told_us = programs_us()


def allow_capture(program: Executable, *, may: bool) -> None:
    """Say whether runs of a program may become part of what replays them later, on devices that have such."""
    loaded = program._loaded
    if isinstance(loaded, Swappable):
        loaded.allow_capture(may=may)
