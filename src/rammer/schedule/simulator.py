"""A run of any schedule on any vDevice, played through with estimated times.

Rules: a vEU goes through its steps in order. An rTask takes its estimated time. A signal is seen at once by the vEU
that gives it and a hand-over later by all others; a Wait ends when as many signals as its threshold are seen. Waits
and signals take no time of their own. Tagged results are seen like signals, and an rTask that takes some starts when it
sees all of them. rPrograms follow each other as `Estimates.program_us` says.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from rammer.ir.program import Execute, RProgram, Schedule, Signal, Wait
from rammer.ir.task import RTask, TaskGraph
from rammer.ir.timeline import Span, Timeline
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.dependencies import find_tagged
from rammer.schedule.estimates import Estimates


def simulate(graph: TaskGraph, schedule: Schedule, device: VDevice, costs: CostModel) -> Timeline:
    """When each rTask would run and how long each vEU would stand at Waits.

    Raises:
        ValueError: the schedule deadlocks.
    """
    estimates = Estimates(graph, device, costs)
    tagged = find_tagged(graph, schedule.choice)
    task_us = [times[pick] for times, pick in zip(estimates.task_us, schedule.choice, strict=True)]
    waiting = [0.0] * max((program.veus for program in schedule.programs), default=device.veu_count)
    spans: list[Span] = []
    now = 0.0
    for number, program in enumerate(schedule.programs):
        if number > 0:
            now += estimates.program_us
        run = _ProgramRun(number, program, task_us, tagged, estimates.handover_us, now)
        run.play()
        now = max(run.times, default=now)
        for veu, waited in enumerate(run.waiting):
            waiting[veu] += waited
        spans.extend(span for own in run.spans for span in own)
    return Timeline(spans=tuple(spans), waiting_us=tuple(waiting), total_us=now)


class _ProgramRun:
    """One rProgram, its vEUs always advanced in the order of their clocks.

    So signals come in the order of time, and a Wait ends with the signal that completes its count.
    """

    def __init__(
        self,
        number: int,
        program: RProgram,
        task_us: Sequence[float],
        tagged: Mapping[RTask, Sequence[RTask]],
        handover_us: float,
        start_us: float,
    ) -> None:
        self._number = number
        self._program = program
        self._task_us = task_us
        own = {task for _, _, task in program.tasks()}
        self._tagged = {task: [maker for maker in tagged.get(task, ()) if maker in own] for task in own}
        self._ends: dict[RTask, tuple[float, int]] = {}
        self._takers: dict[RTask, list[int]] = {}
        self._handover_us = handover_us
        self.times = [start_us] * program.veus
        self.waiting = [0.0] * program.veus
        self.spans: list[list[Span]] = [[] for _ in range(program.veus)]
        self._positions = [0] * program.veus
        self._signals: list[list[tuple[float, int]]] = [[] for _ in range(program.counter_count)]
        self._waiters: dict[tuple[int, int], list[int]] = {}

    def play(self) -> None:
        """Run every vEU to its end."""
        ready = [(time, veu) for veu, time in enumerate(self.times)]
        heapq.heapify(ready)
        while ready:
            _, veu = heapq.heappop(ready)
            for runnable in self._step(veu):
                heapq.heappush(ready, (self.times[runnable], runnable))
        for veu, (queue, position) in enumerate(zip(self._program.steps, self._positions, strict=True)):
            if position < len(queue):
                raise ValueError(f"deadlock: vEU {veu} stands at step {position}, {queue[position]}")

    def _step(self, veu: int) -> list[int]:
        """Advance a vEU by a step and name the vEUs that can go on."""
        queue, position = self._program.steps[veu], self._positions[veu]
        if position == len(queue):
            return []
        runnable = [veu]
        match queue[position]:
            case Execute(task):
                missing = next((maker for maker in self._tagged[task] if maker not in self._ends), None)
                if missing is not None:
                    self._takers.setdefault(missing, []).append(veu)
                    return []
                start = max([self.times[veu], *(self._taken_us(veu, maker) for maker in self._tagged[task])])
                self.waiting[veu] += start - self.times[veu]
                end = start + self._task_us[task.operator]
                self.spans[veu].append(Span(program=self._number, veu=veu, task=task, start_us=start, end_us=end))
                self.times[veu] = end
                self._ends[task] = (end, veu)
                runnable += self._takers.pop(task, ())
            case Wait(counter, threshold):
                if len(self._signals[counter]) < threshold:
                    self._waiters.setdefault((counter, threshold), []).append(veu)
                    return []
                resumed = max(self.times[veu], self._seen_us(veu, self._signals[counter], threshold))
                self.waiting[veu] += resumed - self.times[veu]
                self.times[veu] = resumed
            case Signal(counter):
                signals = self._signals[counter]
                signals.append((self.times[veu], veu))
                runnable += self._waiters.pop((counter, len(signals)), ())
        self._positions[veu] = position + 1
        return runnable

    def _taken_us(self, veu: int, maker: RTask) -> float:
        """When a vEU has the tagged results of an rTask."""
        end_us, giver = self._ends[maker]
        return end_us if giver == veu else end_us + self._handover_us

    def _seen_us(self, veu: int, signals: Sequence[tuple[float, int]], threshold: int) -> float:
        """When `threshold` of the signals, which are in the order of time, are seen by a vEU."""
        seen = sorted(time if giver == veu else time + self._handover_us for time, giver in signals)
        return seen[threshold - 1] if threshold > 0 else 0.0
