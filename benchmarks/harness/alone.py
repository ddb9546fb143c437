"""Contestants that each run in a process of their own, so that no one's idle threads or memory are in another's way."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import cast

from benchmarks.harness.cases import Case
from benchmarks.harness.clock import WallClock
from benchmarks.harness.contestant import Array, Contestant, Prepared
from benchmarks.harness.measure import settle
from benchmarks.harness.setups import Setup


def alone(setup: Setup) -> Setup:
    """The same comparison on the processor with a process for each contestant; turns are timed within it."""
    ours = setup.ours
    return replace(
        setup,
        region=f"{setup.region}, each in a process of its own",
        clock=RemoteClock(),
        peers=tuple(map(Alone, setup.peers)),
        ours=lambda policy: Alone(ours(policy)),
    )


@dataclass(frozen=True, slots=True)
class Alone:
    """A contestant that prepares and runs in a process of its own; `RemoteClock` times it."""

    contestant: Contestant

    @property
    def name(self) -> str:
        """What the table calls it."""
        return self.contestant.name

    def version(self) -> str | None:
        """Its version, or None where it is not installed."""
        return self.contestant.version()

    def prepare(self, case: Case) -> Prepared:
        """Load and compile there.

        Raises:
            RuntimeError: the contestant refuses the model.
        """
        remote = _Remote(self.contestant, case)
        return Prepared(run=remote, outputs=remote.outputs)


class _Remote:
    """A prepared model in another process, which ends when nobody holds this any longer."""

    def __init__(self, contestant: Contestant, case: Case) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        spawn.Process(target=_serve, args=(theirs, contestant, case), daemon=True).start()
        theirs.close()
        self._answer()

    def __call__(self) -> list[float]:
        return self.time_us(1)

    def time_us(self, count: int) -> list[float]:
        """The times of `count` calls; the process is idle again when they arrive."""
        self._connection.send(count)
        return cast(list[float], self._answer())

    def outputs(self) -> list[Array]:
        """The outputs of one call."""
        self._connection.send(None)
        return cast(list[Array], self._answer())

    def _answer(self) -> object:
        answer: object = self._connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


class RemoteClock:
    """Asks a process for the times of its calls, which it takes itself."""

    def time_us(self, run: Callable[[], object], count: int) -> list[float]:
        """The times of `count` calls, one after another, in microseconds.

        Raises:
            TypeError: the calls are of this process.
        """
        if not isinstance(run, _Remote):
            raise TypeError("this clock times contestants in processes of their own")
        return run.time_us(count)


def _serve(connection: Connection, contestant: Contestant, case: Case) -> None:
    try:
        prepared = contestant.prepare(case)
        connection.send([])
        while True:
            count = connection.recv()
            connection.send(prepared.outputs() if count is None else _timed(prepared, count))
    except EOFError:
        return
    except Exception as error:  # noqa: BLE001 - whatever it is, it is raised where the answer is waited for
        connection.send(RuntimeError(f"{contestant.name}: {type(error).__name__}: {error}"))


def _timed(prepared: Prepared, count: int) -> list[float]:
    times_us = WallClock().time_us(prepared.run, count)
    settle()
    return times_us
