"""A model that tries other programs of itself while it is called, and keeps what is quicker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from rammer.errors import RammerError
from rammer.runtime.bound import BoundCall
from rammer.runtime.contest import WHOLE, Arm, Contest
from rammer.runtime.executable import Executable
from rammer.runtime.laps import TimerOf, allow_capture, timer_of
from rammer.runtime.learnt import Learnt, Outcome
from rammer.runtime.signature import Signature
from rammer.runtime.trials import Verdict

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Built:
    """An arm's program, what it is compared with (None: what runs then), and whether it is known to be quicker."""

    arm: Arm[Executable]
    program: Executable
    known: Executable | None
    outcome: Outcome | None


class AdaptiveModel:
    """A compiled model that is called as any other, and is quicker later: `rammer.adapt` makes it.

    Other programs of the model are built in the background, one at a time, and called in turns with the one that runs
    now. Every call gives a right answer: what is tried is proved and compiled like all programs. One that is quicker
    in a sign test over pairs of calls, and by at least one in a hundred, takes over between two calls.

    Calls from several threads are safe; while programs are tried they run one after another. On a GPU, a call with
    arrays in its memory returns as soon as the run is given to a stream, whichever program it is of; while programs are
    tried it cannot be captured into a CUDA graph, which would keep the program of that call for good.
    """

    def __init__(
        self,
        first: Executable,
        arms: Iterator[Arm[Executable]],
        budget_runs: int,
        max_slowdown: float,
        *,
        digest: str = "",
        learnt: Learnt | None = None,
        timer_of: TimerOf = timer_of,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin with a program.

        Args:
            first: runs until another one is quicker.
            arms: made in the background, for they take time to schedule.
            budget_runs: calls that may be given to programs that are tried.
            max_slowdown: as in `Trial`; arms that are predicted to be slower than that are not built.
            digest: of the first program's schedule.
            learnt: outcomes of earlier trials, which are not made again; those of these are added.
            timer_of: what times the calls of a program.
            stop: is called when nothing is tried any more, and ends what makes arms.
        """
        self._best = first
        self._digest = digest
        self._learnt = learnt
        self._arms = arms
        self._left = budget_runs
        self._max_slowdown = max_slowdown
        self._timer_of = timer_of
        self._stop = stop
        self._lock = threading.Lock()
        self._history: list[Outcome] = []
        self._tried: Contest | None = None
        allow_capture(first, may=False)
        self._builder: ThreadPoolExecutor | None = ThreadPoolExecutor(1, thread_name_prefix="rammer-adapt")
        self._next: Future[_Built | None] | None = self._builder.submit(self._build_next, [])

    @property
    def signature(self) -> Signature:
        """Names, dtypes and shapes of inputs and outputs."""
        return self._best.signature

    @property
    def history(self) -> tuple[Outcome, ...]:
        """What became of the programs that were tried, in order."""
        return tuple(self._history)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is tried any more: all programs were, or the budget is spent."""
        return self._builder is None

    @property
    def is_trying(self) -> bool:
        """Whether calls are being compared now; else the next program is still being built, or nothing is tried."""
        return self._tried is not None

    def __call__(self, *inputs: object, **named: object) -> Any:  # noqa: ANN401 - what the model gives
        """Call the model, as its executable is called; now and then by a program that is tried.

        Raises:
            CallError: the inputs are not what the signature says.
            RunTimeoutError: the run, or an earlier one on a stream, stopped making progress.
            StreamCaptureError: the call would be captured, while programs are tried.
        """
        return self._do(lambda program: program(*inputs, **named))

    def run(
        self, inputs: Mapping[str, object], *, outputs: Mapping[str, object] | None = None, stream: object = None
    ) -> dict[str, Any]:
        """`Executable.run`, now and then by a program that is tried.

        Raises:
            CallError: the inputs or outputs are not what the signature says, or lie in different places.
            OptionError: the stream cannot be used.
            StreamCaptureError: the run would be captured, while programs are tried.
        """
        return self._do(lambda program: program.run(inputs, outputs=outputs, stream=stream))

    def bind(
        self, inputs: Mapping[str, object], *, outputs: Mapping[str, object] | None = None, stream: object = None
    ) -> BoundCall:
        """`Executable.bind`: each program is tied to the arrays when it is first called with them.

        Raises:
            CallError: the inputs or outputs are not what the signature says, or lie in different places.
            OptionError: the stream cannot be used.
        """
        with self._lock:
            first = self._best
            bound = first.bind(inputs, outputs=outputs, stream=stream)
        calls: WeakKeyDictionary[Executable, BoundCall] = WeakKeyDictionary({first: bound})

        def call(program: Executable) -> None:
            known = calls.get(program)
            if known is None:
                known = calls[program] = program.bind(inputs, outputs=bound.outputs, stream=stream)
            known()

        return BoundCall(partial(self._do, call), bound.outputs, (inputs, stream))

    def wait(self) -> None:
        """Wait until all runs on streams are over.

        Raises:
            RunTimeoutError: one of them stopped making progress.
        """
        self._best.wait()

    def freeze(self) -> Executable:
        """Stop trying; the program that is the quickest so far, which may be saved."""
        with self._lock:
            self._advance()
            self._settle()
        return self._best

    def _do(self, work: Callable[[Executable], T]) -> T:
        """A call: `work` makes it with the program whose turn it is."""
        if self.is_settled:
            return work(self._best)
        with self._lock:
            self._advance()
            contest = self._tried
            if contest is None or self._left <= 0:
                return work(self._best)
            self._left -= contest.program is not self._best
            return contest.call(work)

    def _advance(self) -> None:
        """Judge calls whose times are known by now, and go on to what is built."""
        if self._tried is not None:
            self._tried.judge()
            if self._tried.is_decided:
                self._decide(self._tried)
        if self._tried is None:
            self._take_next()
        if self._left <= 0 and (self._tried is None or self._tried.is_idle):
            self._settle()

    def _take_next(self) -> None:
        """Begin with the next arm where it is built."""
        if self._next is None or not self._next.done():
            return
        error = self._next.exception()
        if error is not None:  # of scheduling what might be tried: what runs now is as right as before
            _log.warning("nothing more can be tried: %s", error)
        built = None if error is not None else self._next.result()
        if built is None:
            self._settle()
            return
        self._next = None
        for program in filter(None, (built.program, built.known)):
            allow_capture(program, may=False)
        if built.outcome is None:
            known = self._best if built.known is None else built.known
            self._tried = Contest(built.arm, built.program, known, self._max_slowdown, self._timer_of)
            return
        self._history.append(built.outcome)
        left = self._take_over(built.arm, built.program)
        self._build_on(left)

    def _decide(self, contest: Contest) -> None:
        arm = contest.arm
        for name, verdict in contest.verdicts.items():
            trial = contest.trials[name]
            outcome = self._note(_title(arm, name), verdict.value, len(trial.ratios), trial.ratio)
            if self._learnt is not None and self._builder is not None:
                self._builder.submit(self._learnt.keep, _digest(arm, name), self._against(arm), outcome)
        if contest.verdicts.get(WHOLE) is Verdict.QUICKER:
            left: object = self._take_over(arm, contest.newcomer)
        else:
            left = contest
            arm.learn({name: verdict is Verdict.QUICKER for name, verdict in contest.verdicts.items()})
        self._tried = None
        self._build_on(left)

    def _take_over(self, arm: Arm[Executable], newcomer: Executable) -> Executable:
        """Let a program run from now on; returns the one that ran before."""
        before, self._best, self._digest = self._best, newcomer, arm.digest
        arm.learn({WHOLE: True})
        return before

    def _build_on(self, left: object) -> None:
        """Build the next program, and let go of what is left of the last one, for which runs of it have to be over."""
        if self._builder is not None:
            self._next = self._builder.submit(self._build_next, [left])

    def _build_next(self, left: list[object]) -> _Built | None:
        """The next arm that can be tried or is known to be quicker; runs in the background, while none is tried."""
        self._let_go(left)
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

    def _known_of(self, arm: Arm[Executable]) -> list[Outcome] | None:
        """What became of each of its parts in an earlier trial; None where that is not known of all."""
        if self._learnt is None:
            return None
        found = [self._learnt.find(_digest(arm, name), self._against(arm)) for name in arm.names]
        known = [outcome for outcome in found if outcome is not None]
        return known if len(known) == len(found) else None

    def _against(self, arm: Arm[Executable]) -> str:
        """The digest of the program that an arm is compared with."""
        return self._digest if arm.parts is None else arm.parts.digest

    def _pass_over(self, arm: Arm[Executable], why: str) -> None:
        self._note(arm.name, why, 0, None)
        arm.learn(dict.fromkeys(arm.names, False))

    def _note(self, name: str, verdict: str, pairs: int, ratio: float | None) -> Outcome:
        _log.info("%s: %s after %d pairs", name, verdict, pairs)
        self._history.append(Outcome(name=name, verdict=verdict, pairs=pairs, ratio=ratio))
        return self._history[-1]

    def _let_go(self, left: list[object]) -> None:
        """Let go of what nobody else needs; no call does so, for it waits for the device."""
        with self._lock:  # a call may look at them until it lets go of the lock
            held = left.copy()
            left.clear()
        held.clear()

    def _settle(self) -> None:
        """Try nothing any more; whoever builds ends by itself, and lets go of what is left."""
        if self._builder is None:
            return
        builder = self._builder
        left: list[object] = [self._tried, self._next, self._arms]
        self._builder = self._next = self._tried = None
        self._arms = iter(())
        self._stop()
        builder.submit(self._let_go, left)
        builder.shutdown(wait=False)
        allow_capture(self._best, may=True)


def _title(arm: Arm[Executable], part: str) -> str:
    return arm.name if part == WHOLE else f"{arm.name}: {part}"


def _digest(arm: Arm[Executable], part: str) -> str:
    """Equal for equal parts of equal programs."""
    return arm.digest if part == WHOLE else f"{arm.digest}: {part}"
