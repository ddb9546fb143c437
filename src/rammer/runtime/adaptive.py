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
from rammer.runtime.contest import WHOLE, Arm, Contest
from rammer.runtime.executable import Executable
from rammer.runtime.learnt import Learnt, Outcome
from rammer.runtime.trials import Verdict

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Built:
    """An arm's program, what it is compared with (None: what runs then), and whether it is known to be quicker."""

    arm: Arm
    program: Executable
    known: Executable | None
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
        self._tried: Contest | None = None
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
            program = self._best if self._tried.known is None else self._tried.known
            if self._tried.is_new:
                program = self._tried.newcomer
            begin = self._clock()
            results = program(*inputs, **named)
            self._left -= program is not self._best
            self._tried.note(1e6 * (self._clock() - begin))
            if self._tried.is_decided:
                self._decide(self._tried)
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
        self._next = None
        if built.outcome is None:
            self._tried = Contest(built.arm, built.program, built.known, self._max_slowdown)
            return
        self._history.append(built.outcome)
        self._take_over(built.arm, built.program)
        self._build_on()

    def _decide(self, contest: Contest) -> None:
        arm = contest.arm
        for name, verdict in contest.verdicts.items():
            trial = contest.trials[name]
            outcome = self._note(_title(arm, name), verdict.value, len(trial.ratios), trial.ratio)
            if self._learnt is not None:
                self._learnt.keep(_digest(arm, name), self._against(arm), outcome)
        if contest.verdicts.get(WHOLE) is Verdict.QUICKER:
            self._take_over(arm, contest.newcomer)
        else:
            arm.learn({name: verdict is Verdict.QUICKER for name, verdict in contest.verdicts.items()})
        self._tried = None
        self._build_on()

    def _take_over(self, arm: Arm, newcomer: Executable) -> None:
        self._best, self._digest = newcomer, arm.digest
        arm.learn({WHOLE: True})

    def _build_on(self) -> None:
        if self._builder is not None:
            self._next = self._builder.submit(self._build_next)

    def _build_next(self) -> _Built | None:
        """The next arm that can be tried or is known to be quicker; runs in the background, while none is tried."""
        for arm in self._arms:
            if self.is_settled:
                break
            outcomes = self._known_of(arm)
            if outcomes is not None and (arm.parts is not None or outcomes[0].verdict != Verdict.QUICKER.value):
                self._history += outcomes
                gains = [outcome.verdict == Verdict.QUICKER.value for outcome in outcomes]
                arm.learn(dict(zip(arm.names, gains, strict=True)))
                continue
            if arm.predicted > self._max_slowdown:
                self._pass_over(arm, "predicted too slow")
                continue
            try:
                known = None if arm.parts is None else arm.parts.beside()
                return _Built(arm, arm.build(), known, None if outcomes is None else outcomes[0])
            except RammerError as error:
                _log.warning("%s cannot be tried: %s", arm.name, error)
                self._pass_over(arm, "failed")
        return None

    def _known_of(self, arm: Arm) -> list[Outcome] | None:
        """What became of each of its parts in an earlier trial; None where that is not known of all."""
        if self._learnt is None:
            return None
        found = [self._learnt.find(_digest(arm, name), self._against(arm)) for name in arm.names]
        known = [outcome for outcome in found if outcome is not None]
        return known if len(known) == len(found) else None

    def _against(self, arm: Arm) -> str:
        """The digest of the program that an arm is compared with."""
        return self._digest if arm.parts is None else arm.parts.digest

    def _pass_over(self, arm: Arm, why: str) -> None:
        self._note(arm.name, why, 0, None)
        arm.learn(dict.fromkeys(arm.names, False))

    def _note(self, name: str, verdict: str, pairs: int, ratio: float | None) -> Outcome:
        _log.info("%s: %s after %d pairs", name, verdict, pairs)
        self._history.append(Outcome(name=name, verdict=verdict, pairs=pairs, ratio=ratio))
        return self._history[-1]

    def _settle(self) -> None:
        """Try nothing any more; whoever builds ends by itself."""
        if self._builder is not None:
            self._builder.shutdown(wait=False, cancel_futures=True)
        self._builder = self._next = self._tried = None


def _title(arm: Arm, part: str) -> str:
    return arm.name if part == WHOLE else f"{arm.name}: {part}"


def _digest(arm: Arm, part: str) -> str:
    """Equal for equal parts of equal programs."""
    return arm.digest if part == WHOLE else f"{arm.digest}: {part}"
