"""What has surely happened when, in any legal run of a schedule: vector clocks over its steps.

Rules: steps of one vEU happen in order; everything of an rProgram happens before anything of the next; and a Wait
comes after those signals without which its threshold cannot be reached. Of counter c with `total` signals, m of them
by vEU v, `Wait(c, n)` is sure to come after v's k-th if and only if n > total - (m - k + 1): all other signals but
the last m - k + 1 of v are too few. So it comes after the first n - total + m signals of v.

Clocks change at Waits only and are kept there only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.ir.program import RProgram, Schedule, Signal, Wait
from rammer.ir.task import RTask

# For each vEU, how many of its steps have ended, int32 [vEUs]. Steps count on over all rPrograms.
Clock = npt.NDArray[np.int32]


@dataclass(slots=True)
class _Gate:
    """What all equal Waits of an rProgram stand for: steps (vEU, step) that they surely come after."""

    needed: list[tuple[int, int]]
    passed: int = 0
    clock: Clock | None = None

    def missing(self, reached: Sequence[int]) -> tuple[int, int] | None:
        """A needed step that has not ended, when vEU v has ended its first `reached[v]` steps; `reached` only grows."""
        while self.passed < len(self.needed):
            veu, step = self.needed[self.passed]
            if reached[veu] <= step:
                return veu, step
            self.passed += 1
        return None


class HappensBefore:
    """The order that a schedule guarantees.

    Attributes:
        veus: execution units of the widest rProgram.
        places: per rTask the vEU and the step, counted over all rPrograms, of its Execute.

    Raises:
        ValueError: the schedule deadlocks, or a Wait is for more signals than there are.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.veus = max((program.veus for program in schedule.programs), default=0)
        self.places: dict[RTask, tuple[int, int]] = {}
        # clocks[v][i] is vEU v's clock from step positions[v][i] on, its own component excepted.
        self._positions: list[list[int]] = [[] for _ in range(self.veus)]
        self._clocks: list[list[Clock]] = [[] for _ in range(self.veus)]
        base = np.zeros(self.veus, dtype=np.int32)
        for program in schedule.programs:
            for veu, position, task in program.tasks():
                self.places[task] = (veu, int(base[veu]) + position)
            self._add(program, base)
            base = base + np.array([len(queue) for queue in _padded(program, self.veus)], dtype=np.int32)

    def clock(self, veu: int, step: int) -> Clock:
        """How many steps of each vEU have surely ended when `step` of `veu` does what it does; of a Wait, before it."""
        place = bisect_right(self._positions[veu], step)
        clock = self._clocks[veu][place - 1].copy()
        clock[veu] = step
        return clock

    def ordered(self, first: RTask, then: RTask) -> bool:
        """Whether `first` has surely ended when `then` starts."""
        veu, step = self.places[first]
        return bool(self.clock(*self.places[then])[veu] > step)

    def _add(self, program: RProgram, base: Clock) -> None:
        """Derive the clocks of the next rProgram; `base` counts the steps before it."""
        for veu in range(self.veus):
            self._positions[veu].append(int(base[veu]))
            self._clocks[veu].append(base)
        signals = _signals(program)
        gates: dict[Wait, _Gate] = {}
        reached = [0] * program.veus
        blocked: list[list[tuple[int, int]]] = [[] for _ in range(program.veus)]
        ready = deque(range(program.veus))
        while ready:
            veu = ready.popleft()
            for step in range(reached[veu], len(program.steps[veu])):
                reached[veu] = step
                wait = program.steps[veu][step]
                if not isinstance(wait, Wait):
                    continue
                if wait not in gates:
                    gates[wait] = _Gate(list(_needed(wait, signals)))
                gate = gates[wait]
                missing = gate.missing(reached)
                if missing is not None:
                    blocked[missing[0]].append((missing[1], veu))
                    break
                if gate.clock is None:
                    gate.clock = self._join(gate.needed, base)
                self._positions[veu].append(int(base[veu]) + step + 1)
                self._clocks[veu].append(np.maximum(self._clocks[veu][-1], gate.clock))
            else:
                reached[veu] = len(program.steps[veu])
            ready.extend(waiter for at, waiter in blocked[veu] if reached[veu] > at)
            blocked[veu] = [(at, waiter) for at, waiter in blocked[veu] if reached[veu] <= at]
        for veu, waiters in enumerate(blocked):
            if waiters:
                raise ValueError(f"deadlock: vEU {waiters[0][1]} needs step {waiters[0][0]} of vEU {veu} to go on")

    def _join(self, needed: list[tuple[int, int]], base: Clock) -> Clock:
        """What is known after some steps (vEU, step of its rProgram)."""
        clock = base.copy()
        for veu, step in needed:
            np.maximum(clock, self.clock(veu, int(base[veu]) + step + 1), out=clock)
        return clock


def _padded(program: RProgram, veus: int) -> Iterator[tuple[object, ...]]:
    yield from program.steps
    for _ in range(veus - program.veus):
        yield ()


def _signals(program: RProgram) -> list[dict[int, list[int]]]:
    """Per counter and vEU, the steps that signal it, in order."""
    signals: list[dict[int, list[int]]] = [{} for _ in range(program.counter_count)]
    for veu, queue in enumerate(program.steps):
        for position, step in enumerate(queue):
            if isinstance(step, Signal):
                signals[step.counter].setdefault(veu, []).append(position)
    return signals


def _needed(wait: Wait, signals: list[dict[int, list[int]]]) -> Iterator[tuple[int, int]]:
    """Per vEU, the last signal (vEU, step) that the Wait surely comes after."""
    givers = signals[wait.counter]
    total = sum(map(len, givers.values()))
    if wait.threshold > total:
        raise ValueError(f"{wait} can never end: there are {total} signals")
    for veu, steps in givers.items():
        sure = wait.threshold - total + len(steps)
        if sure > 0:
            yield veu, steps[sure - 1]
