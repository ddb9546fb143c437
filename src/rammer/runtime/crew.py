"""Jobs that all cores do side by side: threads of their own, and whoever waits for them."""

from __future__ import annotations

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from threading import Thread

Job = Callable[[], None]


class Crew:
    """Threads that begin jobs at once, one core's less than there are: its thread has other work, then it helps.

    What is called by jobs must let go of the interpreter's lock to be any quicker. The threads keep to other cores than
    whoever waits for them: the system may leave threads that wake each other on one core for 0.1 s.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = deque(jobs)
        self._failures: list[BaseException] = []
        self._here, others = _cores()
        count = min(max(1, len(others)), len(self._jobs))
        self._threads = [Thread(target=self._begin, args=(others,), name=f"rammer-load-{i}") for i in range(count)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Help until all jobs are done.

        Raises:
            Exception: what the first job raised that failed; no other was begun behind it.
        """
        before = _keep_to(self._here)
        try:
            self._work()
        finally:
            _keep_to(before)
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def give_up(self) -> None:
        """Leave jobs that have not begun, and wait for the others."""
        self._jobs.clear()
        for thread in self._threads:
            thread.join()

    def _begin(self, cores: AbstractSet[int]) -> None:
        _keep_to(cores)
        self._work()

    def _work(self) -> None:
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            try:
                job()
            except BaseException as failure:  # noqa: BLE001 - `finish` raises it
                self._failures.append(failure)
                self._jobs.clear()


def _cores() -> tuple[AbstractSet[int], AbstractSet[int]]:
    """The hardware thread that this thread is on, and the others that this process may use."""
    if sys.platform != "linux":
        return set(), set(range(1, os.cpu_count() or 1))
    here = {ctypes.CDLL(None).sched_getcpu()}
    return here, os.sched_getaffinity(0) - here


def _keep_to(cores: AbstractSet[int]) -> AbstractSet[int]:
    """Let this thread run on these cores only, if any; where it ran before."""
    if sys.platform != "linux" or not cores:
        return set()
    before = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, cores)
    return before
