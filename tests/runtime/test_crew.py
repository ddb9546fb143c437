"""Jobs on several threads: all done once, failures raised where they are waited for, an end in any case."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from threading import Event, get_ident

import pytest

from rammer.runtime.crew import Crew


def test_all_jobs_are_done_once() -> None:
    done: list[int] = []
    Crew(partial(done.append, i) for i in range(100)).finish()
    assert sorted(done) == list(range(100))
    Crew([]).finish()


def test_who_waits_helps() -> None:
    """One job waits for the other: no single thread could do both."""
    begun, other = Event(), Event()
    threads: list[int] = []

    def first() -> None:
        threads.append(get_ident())
        begun.set()
        assert other.wait(60)

    def second() -> None:
        threads.append(get_ident())
        other.set()

    crew = Crew([first, second])
    assert begun.wait(60)
    crew.finish()
    assert get_ident() in threads or len(set(threads)) == 2


def failing(error: Exception) -> Callable[[], None]:
    def job() -> None:
        raise error

    return job


def test_what_a_job_raises_is_raised_by_who_waits() -> None:
    with pytest.raises(MemoryError, match="no room"):
        Crew([failing(MemoryError("no room"))]).finish()


def test_who_gives_up_waits_for_what_was_begun() -> None:
    begun, may_end, ended = Event(), Event(), Event()
    left: list[int] = []

    def job() -> None:
        begun.set()
        may_end.wait(60)
        ended.set()

    crew = Crew([job, *(partial(left.append, i) for i in range(1000))])
    assert begun.wait(60)
    may_end.set()
    crew.give_up()
    assert ended.is_set()
    assert not any(thread.is_alive() for thread in crew._threads)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="threads cannot be kept to cores here")
def test_who_waits_runs_where_it_ran_before() -> None:
    before, within = os.sched_getaffinity(0), []
    Crew([lambda: within.append(os.sched_getaffinity(0))] * 8).finish()
    assert os.sched_getaffinity(0) == before
    assert all(cores <= before for cores in within)
    with pytest.raises(ValueError, match="no"):
        Crew([failing(ValueError("no"))]).finish()
    assert os.sched_getaffinity(0) == before
