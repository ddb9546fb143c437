"""The paper's scheduling interface: Append(rTask, vEU) and Wait(rTask, predecessors) (Rammer, section 4.2).

A policy says where rTasks go and what they wait for; the builder turns that into steps with as few Waits and Signals
as it can. For each vEU it keeps a vector clock: how many rTasks of every other vEU have surely ended when the vEU's
next rTask starts. From a set of predecessors only a *frontier* matters: the last one on each vEU, without those that
another of them already implies. A Wait is written only where the clock does not hold the frontier yet. There is one
counter for each distinct frontier, whoever waits for it; its members signal it right after they ran, those that all
waiting rTasks know by other means excepted, and its waits are for all of its signals. An rTask that would wait for many
frontiers, one after the other, waits for the frontier of them all.

An rTask can only wait for rTasks appended before it, so a program built here cannot deadlock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rammer.ir.program import Execute, RProgram, Signal, Step, Wait
from rammer.ir.task import RTask
from rammer.schedule.dependencies import TaskSet

# A clock: for each vEU, how many of its rTasks have ended, int32 [vEUs].
_Clock = npt.NDArray[np.int32]
# rTasks by place: (vEU, number from one in its queue).
_Members = tuple[tuple[int, int], ...]
# Of an rTask: what each of them costs it is more than another counter costs those who signal it.
_MOST_WAITS = 2


@dataclass(slots=True, eq=False)
class _Frontier:
    """The last rTasks to wait for: rTask number `counts[i]` (from one) of vEU `veus[i]`; they imply `clock`.

    `needed[i]` is whether some rTask waits for that member and does not know it by other means.
    """

    veus: npt.NDArray[np.int32]
    counts: _Clock
    clock: _Clock
    needed: npt.NDArray[np.bool_]

    def signallers(self) -> _Members:
        """The members that are needed."""
        pairs = zip(self.veus.tolist(), self.counts.tolist(), self.needed.tolist(), strict=True)
        return tuple((veu, count) for veu, count, needed in pairs if needed)


@dataclass(slots=True)
class _Entry:
    """An rTask in a vEU's queue and what it waits for first."""

    task: RTask
    waits: list[_Frontier] = field(default_factory=list)


@dataclass(slots=True)
class _History:
    """The clocks that a vEU had: `clocks[i]` from its rTask number `counts[i]` on, its own component excepted."""

    counts: list[int] = field(default_factory=list)
    clocks: list[_Clock] = field(default_factory=list)


class ProgramBuilder:
    """An rProgram under construction on `veus` execution units.

    `after` is the builder of the rProgram that runs before this one; rTasks that it or its forerunners hold have
    ended before anything here starts, so nobody waits for them.
    """

    def __init__(self, veus: int, *, after: ProgramBuilder | None = None) -> None:
        self._veus = veus
        self._ended: frozenset[RTask] = frozenset() if after is None else after._ended.union(after._places)
        self._queues: list[list[_Entry]] = [[] for _ in range(veus)]
        self._places: dict[RTask, tuple[int, int]] = {}
        self._pending: dict[RTask, tuple[TaskSet, ...]] = {}
        self._clocks: list[_Clock] = [np.zeros(veus, dtype=np.int32) for _ in range(veus)]
        self._histories = [_History() for _ in range(veus)]
        self._by_set: dict[TaskSet, _Frontier | None] = {}
        self._frontiers: dict[_Members, _Frontier] = {}
        self._barrier: _Frontier | None = None

    def wait(self, task: RTask, predecessors: Iterable[TaskSet]) -> None:
        """Make an rTask that is yet to be appended start after all rTasks of `predecessors`.

        Raises:
            ValueError: `task` is already appended.
        """
        if task in self._places:
            raise ValueError(f"{task} is already appended")
        self._pending[task] = (*self._pending.get(task, ()), *predecessors)

    def append(self, task: RTask, veu: int) -> None:
        """Put an rTask at the end of a vEU's queue.

        Raises:
            ValueError: it is already there, or it waits for an rTask that is not appended.
        """
        if task in self._places or task in self._ended:
            raise ValueError(f"{task} is already appended")
        wanted = [self._frontier_of(task, tasks) for tasks in self._pending.pop(task, ())]
        wanted.append(self._barrier)
        known = self._clocks[veu]
        frontiers = [frontier for frontier in wanted if frontier is not None]
        missing = _missing(known, frontiers)
        if len(missing) > _MOST_WAITS:
            # Of all, also those that this vEU knows: so others that wait for the same rTasks share it.
            missing = _missing(known, [self._joint(frontiers)])
        entry = _Entry(task, list(missing))
        for frontier, members in missing.items():
            frontier.needed |= members
            np.maximum(known, frontier.clock, out=known)
        queue = self._queues[veu]
        queue.append(entry)
        self._places[task] = (veu, len(queue))
        if entry.waits:
            self._histories[veu].counts.append(len(queue))
            self._histories[veu].clocks.append(known.copy())
        known[veu] = len(queue)

    def barrier(self) -> None:
        """Make every rTask appended from now on start after all rTasks appended so far, on any vEU."""
        last = [(veu, len(queue)) for veu, queue in enumerate(self._queues) if queue]
        self._barrier = self._frontier(last) if last else None

    def build(self) -> RProgram:
        """The rProgram.

        Raises:
            ValueError: `wait` named an rTask that was never appended.
        """
        if self._pending:
            raise ValueError(f"{min(self._pending)} waits but is not appended")
        counters, waits = self._counters()
        signals: dict[tuple[int, int], list[Step]] = {}
        for members, counter in counters.items():
            for member in members:
                signals.setdefault(member, []).append(Signal(counter))
        steps: list[tuple[Step, ...]] = []
        for veu, queue in enumerate(self._queues):
            own: list[Step] = []
            for position, entry in enumerate(queue):
                own.extend(dict.fromkeys(waits[frontier] for frontier in entry.waits))
                own.append(Execute(entry.task))
                own.extend(signals.get((veu, position + 1), ()))
            steps.append(tuple(own))
        return RProgram(steps=tuple(steps), counter_count=len(counters))

    def _counters(self) -> tuple[dict[_Members, int], dict[_Frontier, Wait]]:
        """The counters by the members that signal them, and how each frontier is waited for."""
        counters: dict[_Members, int] = {}
        waits: dict[_Frontier, Wait] = {}
        for queue in self._queues:
            for entry in queue:
                for frontier in entry.waits:
                    if frontier not in waits:
                        members = frontier.signallers()
                        waits[frontier] = Wait(counters.setdefault(members, len(counters)), len(members))
        return counters, waits

    def _frontier_of(self, task: RTask, tasks: TaskSet) -> _Frontier | None:
        if tasks not in self._by_set:
            last: dict[int, int] = {}
            for predecessor in tasks.tasks:
                if predecessor in self._places:
                    veu, count = self._places[predecessor]
                    last[veu] = max(count, last.get(veu, 0))
                elif predecessor not in self._ended:
                    raise ValueError(f"{task} waits for {predecessor}, which is not appended")
            self._by_set[tasks] = self._frontier(sorted(last.items())) if last else None
        return self._by_set[tasks]

    def _joint(self, frontiers: Iterable[_Frontier]) -> _Frontier:
        """The frontier of all members of some frontiers."""
        last: _Clock = np.zeros(self._veus, dtype=np.int32)
        for frontier in frontiers:
            last[frontier.veus] = np.maximum(last[frontier.veus], frontier.counts)
        return self._frontier([(veu, count) for veu, count in enumerate(last.tolist()) if count])

    def _frontier(self, members: Sequence[tuple[int, int]]) -> _Frontier:
        """The frontier of some rTasks (vEU, number), at most one a vEU, by vEU; there is at least one."""
        clocks = np.stack([self._clock_after(veu, count) for veu, count in members])
        if len(members) > 1:
            veus, counts = np.array(members, dtype=np.int32).T
            implied = (clocks[:, veus] >= counts).sum(axis=0) > 1
            members = [member for member, drop in zip(members, implied.tolist(), strict=True) if not drop]
        key = tuple(members)
        if key not in self._frontiers:
            veus, counts = np.array(members, dtype=np.int32).T
            needed = np.zeros(len(members), dtype=np.bool_)
            self._frontiers[key] = _Frontier(veus, counts, clocks.max(axis=0), needed)
        return self._frontiers[key]

    def _clock_after(self, veu: int, count: int) -> _Clock:
        """What is known once rTask number `count` of a vEU has ended."""
        history = self._histories[veu]
        place = bisect_right(history.counts, count)
        clock: _Clock = history.clocks[place - 1].copy() if place else np.zeros(self._veus, dtype=np.int32)
        clock[veu] = count
        return clock


def _missing(known: _Clock, frontiers: Iterable[_Frontier]) -> dict[_Frontier, npt.NDArray[np.bool_]]:
    """The frontiers that a vEU's clock does not hold yet, in the order to wait for them, each with who is missing.

    Whoever knows most comes first, so that its clock makes the others' waits needless.
    """
    clock = known.copy()
    found: dict[_Frontier, npt.NDArray[np.bool_]] = {}
    for frontier in sorted(frontiers, key=lambda frontier: -int(frontier.clock.sum())):
        missing = clock[frontier.veus] < frontier.counts
        if missing.any():
            found[frontier] = missing
            np.maximum(clock, frontier.clock, out=clock)
    return found
