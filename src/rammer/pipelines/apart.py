"""Another process that schedules and writes programs, so that calls of this one never wait for Python's lock.

The two speak by `pipes`. Files of a program that the first one has as well do not travel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, BinaryIO

from rammer.errors import DeviceError, RammerError
from rammer.pipelines.exploring import Explored, Written
from rammer.pipelines.pipes import begin, pickled, receive, send, write
from rammer.runtime.contest import Arm, Parts

_NICENESS = 10
_NEXT, _BUILD, _BESIDE = "next", "build", "beside"

Gains = list[Mapping[str, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """An arm without what it can do."""

    name: str
    digest: str
    predicted: float
    programs: Mapping[str, tuple[int, ...]] | None
    beside: str


class ArmsApart:
    """The arms of a model, from a process that ends with `stop`, or when nobody refers to this any more."""

    def __init__(self, explored: Explored) -> None:
        """Nothing is begun before the first arm is asked for; but pickling, which holds Python's lock, is done now."""
        self._explored = pickled(explored)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def stop(self) -> None:
        """End the process; whoever waits for it sees its end."""
        self._stopped = True
        if self._process is not None:
            self._process.kill()

    def all(self) -> Generator[Arm[Written], None, None]:
        """Every arm, as `Explored.arms` has them.

        Raises:
            DeviceError: the process ended.
            RammerError: there is something wrong with what is scheduled.
        """
        try:
            gains: Gains = []
            while (offer := self._ask(_NEXT, gains)) is not None:
                gains = []
                yield self._arm(offer, gains)
        finally:
            self.stop()
            self._end()

    def _arm(self, offer: _Offer, gains: Gains) -> Arm[Written]:
        parts = None
        if offer.programs is not None:
            parts = Parts(programs=offer.programs, digest=offer.beside, beside=partial(self._ask, _BESIDE))
        return Arm(
            name=offer.name,
            digest=offer.digest,
            predicted=offer.predicted,
            build=partial(self._ask, _BUILD),
            learn=gains.append,
            parts=parts,
        )

    def _ask(self, what: str, gains: Gains | None = None) -> Any:  # noqa: ANN401 - what the process answers
        try:
            if self._process is None:
                self._process = self._begun()
                if self._stopped:  # meanwhile
                    self._process.kill()
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            send(self._process.stdin, (what, gains))
            answer = receive(self._process.stdout)
        except (OSError, EOFError) as error:
            raise DeviceError(f"the process that schedules ended: {error}", hint="call adapt() anew") from error
        if isinstance(answer, RammerError):
            raise answer
        return answer

    def _begun(self) -> subprocess.Popen[bytes]:
        """The process, which knows the model."""
        if self._stopped:
            raise EOFError("it was not wanted any more")
        process = begin(__name__)
        assert process.stdin is not None
        write(process.stdin, self._explored)
        self._explored = []
        return process

    def _end(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
            self._process.wait()


def serve() -> None:
    """What the process does: it answers until nobody asks any more."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed by chance is no answer
    os.nice(_NICENESS)
    with suppress(EOFError, BrokenPipeError):
        _answer(sys.stdin.buffer, answers)


def _answer(questions: BinaryIO, answers: BinaryIO) -> None:
    explored: Explored = receive(questions)
    known = cache(lambda: explored.written(explored.first).source.files)
    arms = explored.arms()
    arm: Arm[Written] | None = None

    def without_known(written: Written) -> Written:
        files = written.source.files
        same = frozenset(name for name, content in files.items() if content == known().get(name))
        source = replace(written.source, files={name: files[name] for name in files if name not in same})
        return replace(written, source=source, as_first=tuple(name for name in files if name in same))

    def answer(what: str, gains: Gains) -> object:
        nonlocal arm
        if what != _NEXT:
            assert arm is not None  # what is asked for is of the last offer
            build = arm.build if what == _BUILD or arm.parts is None else arm.parts.beside
            return without_known(build())
        for gain in gains:
            assert arm is not None  # which they are of
            arm.learn(gain)
        arm = next(arms, None)
        if arm is None:
            return None
        programs, beside = (None, "") if arm.parts is None else (arm.parts.programs, arm.parts.digest)
        return _Offer(name=arm.name, digest=arm.digest, predicted=arm.predicted, programs=programs, beside=beside)

    while True:
        what, gains = receive(questions)
        try:
            found = answer(what, gains)
        except RammerError as error:
            found = error
        send(answers, found)
