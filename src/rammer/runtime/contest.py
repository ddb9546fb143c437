"""A newcomer beside another program, in pairs of calls: judged as a whole, or part by part.

Each program is called twice in a row, for a call behind one of the other program finds its constants and code
displaced: on an H200 one of NASNet takes 226 us instead of 203. A pair are calls that both come behind the other
program, or both behind one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rammer.runtime.executable import Executable
from rammer.runtime.recorded import Recorded, record
from rammer.runtime.trials import Trial, Verdict

WHOLE = ""
"""The name of the only part where a program is judged as a whole."""
_ROUND = 4
"""Calls after which the same come again."""
_COLD_CALLS = 2
"""Of a program that is tried, and of the other one beside it: they do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Judgement part by part.

    Attributes:
        programs: by the name of the part, the numbers of its rPrograms, whose time decides.
        digest: of the schedule of the program that it is compared with.
        beside: makes that program.
    """

    programs: Mapping[str, tuple[int, ...]]
    digest: str
    beside: Callable[[], Executable]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A program that may be tried.

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
    build: Callable[[], Executable]
    learn: Callable[[Mapping[str, bool]], None] = lambda gains: None
    parts: Parts | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its parts."""
        return (WHOLE,) if self.parts is None else tuple(self.parts.programs)


class Contest:
    """Calls of an arm's program and of the one beside it, in turns.

    Attributes:
        verdicts: by part, as far as there is one.
        trials: by part.
    """

    def __init__(self, arm: Arm, newcomer: Executable, known: Executable | None, max_slowdown: float) -> None:
        """Begin; `known` is the program beside it, None where that is what runs then."""
        self.arm, self.newcomer, self.known = arm, newcomer, known
        self.verdicts: dict[str, Verdict] = {}
        self.trials = {name: Trial(max_slowdown) for name in arm.names}
        self._clocks: tuple[Recorded, ...] = ()
        if arm.parts is not None and known is not None:
            self._clocks = record(known), record(newcomer)
        self._times: list[Mapping[str, float]] = []

    @property
    def is_new(self) -> bool:
        """Whether the next call is the newcomer's: after the first call, each program has two in a row."""
        return len(self._times) % _ROUND in (1, 2)

    @property
    def is_decided(self) -> bool:
        """Whether there is a verdict on every part."""
        return len(self.verdicts) == len(self.trials)

    def note(self, took_us: float) -> None:
        """A call ended, which took so long."""
        is_new, number = self.is_new, len(self._times)
        self._times.append(self._times_us(is_new=is_new, took_us=took_us))
        if number >= _COLD_CALLS + 2 and number % _ROUND in (0, 1):
            one, other = self._times[-1], self._times[-3]
            known_us, new_us = (other, one) if is_new else (one, other)
            self._judge(known_us, new_us)

    def _times_us(self, *, is_new: bool, took_us: float) -> Mapping[str, float]:
        if self.arm.parts is None:
            return {WHOLE: took_us}
        programs_us = self._clocks[is_new].programs_us()
        return {name: sum(programs_us[i] for i in numbers) for name, numbers in self.arm.parts.programs.items()}

    def _judge(self, known_us: Mapping[str, float], new_us: Mapping[str, float]) -> None:
        for name, trial in self.trials.items():
            if name not in self.verdicts and (verdict := trial.pair(known_us[name], new_us[name])) is not None:
                self.verdicts[name] = verdict
        if Verdict.TOO_SLOW in self.verdicts.values():  # it is not called again: the other parts have had their chance
            for name in self.trials:
                self.verdicts.setdefault(name, Verdict.NO_QUICKER)
