"""The policy `critical-path`: rKernels chosen by what they do to the waves behind, along the critical path.

It begins with the rKernels of `wavefront`, which judges a wave by its own end, and goes over the waves again. Each wave
is placed with other rKernels, the next waves behind it as they are chosen so far, and what lets the last of these end
soonest is kept. What is tried for a wave:

- for each limit, the rKernels of least work whose rTasks take no longer;
- for an rOperator on the critical path of these waves, its other rKernels that none is better than in both time and
  work: for all equal rOperators of the wave together, then for this one alone.

A trial places a few waves only, so thousands of them fit a compilation; how many rTasks are placed in all is bounded,
not the time, so that equal arguments give equal schedules. The best of all sweeps and of `wavefront` by simulation is
the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rammer.ir.program import Schedule
from rammer.ir.task import RKernel, ROperator, TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.estimates import Estimates
from rammer.schedule.placement import Constants, Placer, ProgramTimes, Selection, Step
from rammer.schedule.policies import wavefront
from rammer.schedule.simulator import simulate
from rammer.schedule.stationary import find_stationary

_AHEAD = (1, 2, 1)
"""In each sweep, the waves that are placed behind one to see what its rKernels are worth."""
_MOST_PLACED = 400_000
"""rTasks that are placed in trials: some ten seconds."""
_MOST_LIMITS = 12
_GAIN = 1e-3
"""Of the time of the waves of a trial, what another choice has to gain; estimates can't say what is closer."""
_ROUNDING_US = 1e-6


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel, *, most_placed: int = _MOST_PLACED) -> Schedule:
    """The best schedule that is found while up to `most_placed` rTasks are placed in trials."""
    return min(
        sweeps(graph, device, costs, most_placed=most_placed),
        key=lambda found: simulate(graph, found, device, costs).total_us,
    )


def sweeps(
    graph: TaskGraph, device: VDevice, costs: CostModel, *, most_placed: int = _MOST_PLACED
) -> Sequence[Schedule]:
    """What `schedule` takes the best of: that of `wavefront`, and after each sweep what was found."""
    estimates = Estimates(graph, device, costs)
    best = replace(wavefront.schedule_with(graph, device, estimates), policy="critical-path")
    best_us = simulate(graph, best, device, costs).total_us
    tried = [best]
    search = _Search(graph, device, estimates, most_placed)
    for ahead in _AHEAD:
        found = search.sweep(best.choice, ahead)
        found_us = simulate(graph, found, device, costs).total_us
        tried.append(found)
        if found_us < best_us:
            best, best_us = found, found_us
    return tried


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A wave and some behind it, placed: when the last ends, the sum of when all vEUs are free, and the steps."""

    end_us: float
    load_us: float
    steps: tuple[Step, ...]


class _Search:
    """Goes over the waves."""

    def __init__(self, graph: TaskGraph, device: VDevice, estimates: Estimates, most_placed: int) -> None:
        self._graph = graph
        self._veus, self._busy_us = device.veu_count, device.busy_us
        self._estimates = estimates
        self._placer = Placer(graph, estimates)
        producers = [self._placer.dependencies.producers(operator.id) for operator in graph.operators]
        self._waves = wavefront.find_waves(graph, producers)
        self._settled = find_stationary(graph, self._waves, self._veus, device.stationary_bytes, estimates)
        self._placer.settle(self._settled)
        self._choice: list[int] = []
        self._waves_ahead = 0
        self._left = most_placed
        self._best_kernels: dict[tuple[RKernel, ...], tuple[int, ...]] = {}

    def sweep(self, choice: Sequence[int], waves_ahead: int) -> Schedule:
        """Go over all waves, beginning with a choice, and schedule what was chosen."""
        self._choice, self._waves_ahead = list(choice), waves_ahead
        self._placer.go_back({})
        times, builder = ProgramTimes(self._estimates.handovers, self._busy_us), ProgramBuilder(self._veus)
        for number, wave in enumerate(self._waves):
            self._improve(number, times)
            trial = self._placer.place(wave, self._selection(wave), times)
            self._placer.commit(trial)
            times.add(trial)
            for step in trial.steps:
                builder.wait(step.job.task, step.job.awaited)
                builder.append(step.job.task, step.veu)
        return Schedule(policy="critical-path", choice=tuple(self._choice), programs=(builder.build(),))

    def _selection(self, wave: Sequence[ROperator]) -> Selection:
        """The rKernels of a wave that are chosen."""
        return {operator.id: self._choice[operator.id] for operator in wave}

    def _improve(self, number: int, times: ProgramTimes) -> None:
        """Choose rKernels for a wave, given the rProgram before it."""
        keepers = self._placer.keepers()
        best = self._ahead(number, times, keepers)
        assert best is not None  # nothing ends after infinity
        for selection in self._limited(self._waves[number]):
            best = self._try(selection, best, number, times, keepers)
        tried: set[frozenset[tuple[int, int]]] = set()
        is_better = True
        while is_better:
            is_better = False
            for selection in self._moves(number, best):
                move = frozenset(selection.items())
                if move in tried or self._left <= 0:
                    continue
                tried.add(move)
                found = self._try(selection, best, number, times, keepers)
                if found is not best:
                    best, is_better = found, True
                    break
        self._placer.go_back(keepers)

    def _try(
        self,
        selection: Mapping[int, int],
        best: _Ahead,
        number: int,
        times: ProgramTimes,
        keepers: Mapping[Constants, int],
    ) -> _Ahead:
        """What becomes of other rKernels, which are kept if that is better."""
        before = {operator: self._choice[operator] for operator in selection}
        if self._left <= 0 or before == selection:
            return best
        self._choose(selection)
        found = self._ahead(number, times, keepers, best.end_us)
        least_us = _GAIN * (best.end_us - times.end_us)
        if found is not None:
            if found.end_us < best.end_us - least_us:
                return found
            if found.load_us < best.load_us - least_us * self._veus:
                return found
        self._choose(before)
        return best

    def _choose(self, selection: Mapping[int, int]) -> None:
        for operator, pick in selection.items():
            self._choice[operator] = pick

    def _ahead(
        self, number: int, times: ProgramTimes, keepers: Mapping[Constants, int], latest_us: float = math.inf
    ) -> _Ahead | None:
        """Place a wave and those behind it; None if one of them ends after `latest_us`."""
        waves = self._waves[number : number + 1 + self._waves_ahead]
        self._left -= sum(operator.kernels[self._choice[operator.id]].task_count for wave in waves for operator in wave)
        self._placer.go_back(keepers)
        steps: list[Step] = []
        ahead = times  # which keeps what the first wave waits for, the same in all trials
        for wave in waves:
            trial = self._placer.place_by(latest_us, wave, self._selection(wave), ahead)
            if trial is None:
                return None
            self._placer.commit(trial)
            ahead = ahead.copy() if ahead is times else ahead
            ahead.add(trial)
            steps += trial.steps
        return _Ahead(ahead.end_us, float(ahead.free_us.sum()), tuple(steps))

    def _limited(self, wave: Sequence[ROperator]) -> Iterator[Mapping[int, int]]:
        """Of each rOperator the rKernel of least work whose rTasks take no longer than a limit, for some limits."""
        free = [operator for operator in wave if operator.id not in self._settled]
        times = [[self._estimates.task_us[operator.id][pick] for pick in self._good(operator)] for operator in free]
        least_us = max(map(min, times), default=0.0)
        limits = sorted({time_us for one in times for time_us in one if time_us >= least_us})
        for limit_us in limits[:: -(-len(limits) // _MOST_LIMITS) or 1]:
            yield {
                operator.id: next(
                    pick
                    for pick in reversed(self._good(operator))
                    if self._estimates.task_us[operator.id][pick] <= limit_us
                )
                for operator in free
            }

    def _moves(self, number: int, ahead: _Ahead) -> Iterator[Mapping[int, int]]:
        """Other rKernels for the rOperators of a wave that are on the critical path: of all equal ones, or of one."""
        wave = {operator.id: operator for operator in self._waves[number] if operator.id not in self._settled}
        for operator in dict.fromkeys(self._critical(ahead)):
            if operator in wave:
                equal = [other.id for other in wave.values() if other.kernels == wave[operator].kernels]
                for pick in self._good(wave[operator]):
                    yield dict.fromkeys(equal, pick)
                    yield {operator: pick}

    def _critical(self, ahead: _Ahead) -> Iterator[int]:
        """The rOperators on the critical path of waves, from the end to the beginning."""
        places = {step.job.task: step for step in ahead.steps}
        before: dict[int, Step | None] = {}
        last: dict[int, Step] = {}
        for number, step in enumerate(ahead.steps):
            before[number] = last.get(step.veu)
            last[step.veu] = step
        numbers = {step.job.task: number for number, step in enumerate(ahead.steps)}
        at: Step | None = max(ahead.steps, key=lambda step: step.end_us, default=None)
        while at is not None:
            yield at.job.task.operator
            start_us = at.end_us - at.job.task_us
            kept: list[tuple[float, Step]] = []
            if (previous := before[numbers[at.job.task]]) is not None:
                kept.append((previous.end_us, previous))
            for tasks in at.job.predecessors:
                for task in tasks.tasks:
                    if (made := places.get(task)) is not None:
                        handover_us = self._estimates.handovers.between_us(made.veu, at.veu)
                        kept.append((made.end_us + handover_us - at.job.early_us, made))
            release_us, at = max(kept, key=lambda one: one[0], default=(0.0, None))
            if release_us < start_us - _ROUNDING_US:
                at = None  # what kept it is before these waves

    def _good(self, operator: ROperator) -> tuple[int, ...]:
        """The candidates that none is better than in both time and work, the quickest rTasks first."""
        if operator.kernels not in self._best_kernels:
            times = self._estimates.task_us[operator.id]
            order = sorted(range(len(times)), key=lambda pick: (times[pick], self._estimates.work_us(operator, pick)))
            found: list[int] = []
            for pick in order:
                if not found or self._estimates.work_us(operator, pick) < self._estimates.work_us(operator, found[-1]):
                    found.append(pick)
            self._best_kernels[operator.kernels] = tuple(found)
        return self._best_kernels[operator.kernels]
