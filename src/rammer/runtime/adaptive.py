"""A model that tries other programs of itself while it is called, and keeps what is quicker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rammer.errors import RammerError
from rammer.runtime.executable import Executable
from rammer.runtime.learnt import Learnt, Outcome
from rammer.runtime.trials import Trial, Verdict

_log = logging.getLogger(__name__)

_COLD_CALLS = 2
"""Of a program that is tried, and of the other one beside it: they do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A program that may be tried.

    Attributes:
        name: the policy that scheduled it, and what it changes.
        digest: of its schedule: equal for equal programs.
        predicted: its simulated time over that of the first program.
        build: makes it, proved and compiled.
    """

    name: str
    digest: str
    predicted: float
    build: Callable[[], Executable]


@dataclass(frozen=True, slots=True)
class _Built:
    """An arm's program; `outcome` is what became of it in an earlier trial, if that is known."""

    arm: Arm
    program: Executable
    outcome: Outcome | None


class AdaptiveModel:
    """A compiled model that is called as any other, and is quicker later: `rammer.adapt` makes it.

    Other programs of the model are built in the background, one at a time, and called in turns with the one that runs
    now. Every call gives a right answer: what is tried is proved and compiled like all programs. One that is quicker
    in a sign test over pairs of calls, and by at least one in a hundred, takes over between two calls.

    Calls from several threads are safe; while programs are tried they run one after another.
    """

    def __init__(
        self,
        first: Executable,
        arms: Iterator[Arm],
        budget_runs: int,
        max_slowdown: float,
        *,
        digest: str = "",
        learnt: Learnt | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Begin with a program.

        Args:
            first: runs until another one is quicker.
            arms: made in the background, for they take time to schedule.
            budget_runs: calls that may be given to programs that are tried.
            max_slowdown: as in `Trial`; arms that are predicted to be slower than that are not built.
            digest: of the first program's schedule.
            learnt: outcomes of earlier trials, which are not made again; those of these are added.
            clock: what calls are timed by, in seconds.
        """
        self._best = first
        self._digest = digest
        self._learnt = learnt
        self._arms = arms
        self._left = budget_runs
        self._max_slowdown = max_slowdown
        self._clock = clock
        self._lock = threading.Lock()
        self._history: list[Outcome] = []
        self._tried: tuple[Arm, Executable, Trial] | None = None
        self._known_us: float | None = None
        self._calls = 0
        self._builder: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix="rammer-adapt")
        self._next: Future[_Built | None] | None = self._builder.submit(self._build_next)

    @property
    def history(self) -> tuple[Outcome, ...]:
        """What became of the programs that were tried, in order."""
        return tuple(self._history)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is tried any more: all programs were, or the budget is spent."""
        return self._builder is None

    def __call__(self, *inputs: object, **named: object) -> Any:  # noqa: ANN401 - what the model gives
        """Call the model, as its executable is called; now and then by a program that is tried.

        Raises:
            CallError: the inputs are not what the signature says.
        """
        if self.is_settled:
            return self._best(*inputs, **named)
        with self._lock:
            self._take_next()
            if self._tried is None:
                return self._best(*inputs, **named)
            # Of two pairs in a row, one begins with the newcomer: being first is no advantage.
            second, first_is_new = self._calls % 2 == 1, self._calls // 2 % 2 == 1
            is_new = first_is_new is not second
            arm, newcomer, trial = self._tried
            begin = self._clock()
            results = (newcomer if is_new else self._best)(*inputs, **named)
            took_us = 1e6 * (self._clock() - begin)
            self._left -= is_new
            self._calls += 1
            if not second:
                self._known_us = took_us
            elif self._calls > _COLD_CALLS and self._known_us is not None:
                known_us, new_us = (self._known_us, took_us) if is_new else (took_us, self._known_us)
                self._decide(arm, newcomer, trial, trial.pair(known_us, new_us))
            if self._left <= 0:
                self._settle()
            return results

    def freeze(self) -> Executable:
        """Stop trying; the program that is the quickest so far, which may be saved."""
        with self._lock:
            self._settle()
        return self._best

    def _take_next(self) -> None:
        """Begin with the next arm where it is built."""
        if self._tried is not None or self._next is None or not self._next.done():
            return
        error = self._next.exception()
        if error is not None:  # of scheduling what might be tried: what runs now is as right as before
            _log.warning("nothing more can be tried: %s", error)
        built = None if error is not None else self._next.result()
        if built is None:
            self._settle()
            return
        self._calls, self._next = 0, None
        if built.outcome is None:
            self._tried = (built.arm, built.program, Trial(self._max_slowdown))
            return
        self._history.append(built.outcome)
        self._take_over(built.arm, built.program)
        self._build_on()

    def _decide(self, arm: Arm, newcomer: Executable, trial: Trial, verdict: Verdict | None) -> None:
        if verdict is None:
            return
        outcome = self._note(arm.name, verdict.value, len(trial.ratios), trial.ratio)
        if self._learnt is not None:
            self._learnt.keep(arm.digest, self._digest, outcome)
        if verdict is Verdict.QUICKER:
            self._take_over(arm, newcomer)
        self._tried = None
        self._build_on()

    def _take_over(self, arm: Arm, newcomer: Executable) -> None:
        self._best, self._digest = newcomer, arm.digest

    def _build_on(self) -> None:
        if self._builder is not None:
            self._next = self._builder.submit(self._build_next)

    def _build_next(self) -> _Built | None:
        """The next arm that can be tried or is known to be quicker; runs in the background, while none is tried."""
        for arm in self._arms:
            if self.is_settled:
                break
            outcome = None if self._learnt is None else self._learnt.find(arm.digest, self._digest)
            if outcome is not None and outcome.verdict != Verdict.QUICKER.value:
                self._history.append(outcome)
                continue
            if arm.predicted > self._max_slowdown:
                self._note(arm.name, "predicted too slow", 0, None)
                continue
            try:
                return _Built(arm, arm.build(), outcome)
            except RammerError as error:
                _log.warning("%s cannot be tried: %s", arm.name, error)
                self._note(arm.name, "failed", 0, None)
        return None

    def _note(self, name: str, verdict: str, pairs: int, ratio: float | None) -> Outcome:
        _log.info("%s: %s after %d pairs", name, verdict, pairs)
        self._history.append(Outcome(name=name, verdict=verdict, pairs=pairs, ratio=ratio))
        return self._history[-1]

    def _settle(self) -> None:
        """Try nothing any more; whoever builds ends by itself."""
        if self._builder is not None:
            self._builder.shutdown(wait=False, cancel_futures=True)
        self._builder = self._next = self._tried = None
