"""A newcomer beside another program, in pairs of calls: judged as a whole, or part by part.

Each program is called twice in a row, for a call behind one of the other program finds its constants and code
displaced: on an H200 one of NASNet takes 226 us instead of 203. A pair are calls that both come behind the other
program, or both behind one of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from rammer.devices.base import Lap
from rammer.runtime.executable import Executable
from rammer.runtime.laps import TimerOf, timer_of
from rammer.runtime.trials import Trial, Verdict

T = TypeVar("T")
Program = TypeVar("Program")

WHOLE = ""
"""The name of the only part where a program is judged as a whole."""
_ROUND = 4
"""Calls after which the same come again."""
_COLD_CALLS = 2
"""Of a program that is tried, and of the other one beside it: they do not count."""
_MOST_WAITING = 64
"""Calls whose times are not known yet; two more where the newcomer has its turn."""
_MOST_BY_PROGRAM = 2
"""The same where each rProgram is timed apart, for which a device keeps more of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts(Generic[Program]):
    """Judgement part by part.

    Attributes:
        programs: by the name of the part, the numbers of its rPrograms, whose time decides.
        digest: of the schedule of the program that it is compared with.
        beside: makes that program.
    """

    programs: Mapping[str, tuple[int, ...]]
    digest: str
    beside: Callable[[], Program]

    def further(self, finish: Callable[[Program], T]) -> Parts[T]:
        """The same, whose program is made into something else once it is built."""
        return Parts(programs=self.programs, digest=self.digest, beside=lambda: finish(self.beside()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm(Generic[Program]):
    """A program that may be tried; `Program` is what it is built as.

    Attributes:
        name: the policy that scheduled it, and what it changes.
        digest: of its schedule: equal for equal programs.
        predicted: its simulated time over that of the first program.
        build: makes it, proved and compiled.
        learn: is told which of its parts gain, once that is known.
        parts: that are judged apart, beside a program that is as it is but for them; None judges it as a whole, beside
            what runs then, whose place it takes if it gains.
    """

    name: str
    digest: str
    predicted: float
    build: Callable[[], Program]
    learn: Callable[[Mapping[str, bool]], None] = lambda gains: None
    parts: Parts[Program] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its parts."""
        return (WHOLE,) if self.parts is None else tuple(self.parts.programs)

    def further(self, finish: Callable[[Program], T]) -> Arm[T]:
        """The same arm, whose programs are made into something else once they are built."""
        return Arm(
            name=self.name,
            digest=self.digest,
            predicted=self.predicted,
            build=lambda: finish(self.build()),
            learn=self.learn,
            parts=None if self.parts is None else self.parts.further(finish),
        )


class Contest:
    """Calls of an arm's program and of the one beside it, in turns.

    On a device that works while the host goes on, calls are judged later than they are made. A call is never made to
    wait: with too many whose times are not known yet, calls go to the known program, untimed, where it had the last
    call as well, so that no call that counts comes behind another program than it would have.

    Attributes:
        verdicts: by part, as far as there is one.
        trials: by part.
    """

    def __init__(
        self,
        arm: Arm[Executable],
        newcomer: Executable,
        known: Executable,
        max_slowdown: float,
        timer_of: TimerOf = timer_of,
    ) -> None:
        """Begin; `known` is the program beside it."""
        self.arm, self.newcomer, self.known = arm, newcomer, known
        self.verdicts: dict[str, Verdict] = {}
        self.trials = {name: Trial(max_slowdown) for name in arm.names}
        by_program = arm.parts is not None
        self._timers = timer_of(known, by_program), timer_of(newcomer, by_program)
        self._most_waiting = _MOST_BY_PROGRAM if by_program else _MOST_WAITING
        self._programs = {WHOLE: (0,)} if arm.parts is None else arm.parts.programs
        self._made = 0
        self._waiting: deque[Lap] = deque()
        self._times: list[Mapping[str, float]] = []

    @property
    def program(self) -> Executable:
        """Whose the next call is: after the first call, each program has two in a row."""
        return self.newcomer if self._is_new and not self._is_full else self.known

    @property
    def is_decided(self) -> bool:
        """Whether there is a verdict on every part."""
        return len(self.verdicts) == len(self.trials)

    @property
    def is_idle(self) -> bool:
        """Whether the times of all calls are known."""
        return not self._waiting

    def call(self, work: Callable[[Executable], T]) -> T:
        """Make the next call; `work` makes it with a program."""
        if self._is_full:
            return work(self.known)
        with self._timers[self._is_new]() as lap:
            result = work(self.program)
        self._waiting.append(lap)
        self._made += 1
        return result

    def judge(self) -> None:
        """Judge the calls whose times are known by now."""
        while self._waiting and not self.is_decided and (times_us := self._waiting[0].times_us()) is not None:
            self._waiting.popleft()
            self._note({name: sum(times_us[i] for i in numbers) for name, numbers in self._programs.items()})

    @property
    def _is_new(self) -> bool:
        return self._made % _ROUND in (1, 2)

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= self._most_waiting and self._made % _ROUND in (0, 1)

    def _note(self, times_us: Mapping[str, float]) -> None:
        """The time of the first call that has none."""
        number = len(self._times)
        self._times.append(times_us)
        if number >= _COLD_CALLS + 2 and number % _ROUND in (0, 1):
            one, other = self._times[-1], self._times[-3]
            known_us, new_us = (other, one) if number % _ROUND == 1 else (one, other)
            self._judge(known_us, new_us)

    def _judge(self, known_us: Mapping[str, float], new_us: Mapping[str, float]) -> None:
        for name, trial in self.trials.items():
            if name not in self.verdicts and (verdict := trial.pair(known_us[name], new_us[name])) is not None:
                self.verdicts[name] = verdict
        if Verdict.TOO_SLOW in self.verdicts.values():  # it is not called again: the other parts have had their chance
            for name in self.trials:
                self.verdicts.setdefault(name, Verdict.NO_QUICKER)
