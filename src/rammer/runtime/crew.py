"""Jobs that all cores do side by side: threads of their own, and whoever waits for them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from threading import Thread

Job = Callable[[], None]


class Crew:
    """Threads that begin jobs at once, one core's less than there are: its thread has other work, then it helps.

    What is called by jobs must let go of the interpreter's lock to be any quicker.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = deque(jobs)
        self._failures: list[BaseException] = []
        count = min(max(1, _cores() - 1), len(self._jobs))
        self._threads = [Thread(target=self._work, name=f"rammer-load-{i}") for i in range(count)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Help until all jobs are done.

        Raises:
            Exception: what the first job raised that failed; no other was begun behind it.
        """
        self._work()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def give_up(self) -> None:
        """Leave jobs that have not begun, and wait for the others."""
        self._jobs.clear()
        for thread in self._threads:
            thread.join()

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


def _cores() -> int:
    """Hardware threads that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
