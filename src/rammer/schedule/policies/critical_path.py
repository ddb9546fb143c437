"""The policy `critical-path`: rKernels, order and places chosen by what they do to the waves behind.

It begins with the rKernels of `wavefront`, which judges a wave by its own end, and goes over the waves again. Each wave
is arranged in other ways, the next waves placed behind it as they are arranged so far, and what lets the last of these
end soonest is kept. What is tried for a wave:

- for each limit, the rKernels of least work whose rTasks take no longer;
- for an rOperator on the critical path of these waves, its other rKernels that none is better than in both time and
  work: for all equal rOperators of the wave together, then for this one alone;
- equal rOperators *aside*: on vEUs that the rest of the wave leaves free, with each of these rKernels;
- rOperators left to the next wave, and with them what reads them, as far as these waves go.

A trial places a few waves only, so thousands of them fit a compilation; how many rTasks are placed in all is bounded,
not the time, so that equal arguments give equal schedules. The best of all sweeps and of `wavefront` by simulation is
the result.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rammer.ir.program import Schedule
from rammer.ir.task import RKernel, ROperator, TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.dependencies import find_waves
from rammer.schedule.estimates import Estimates
from rammer.schedule.footprint import uncached_bytes
from rammer.schedule.placement import Constants, Placer, ProgramTimes, Step, Trial
from rammer.schedule.policies import wavefront
from rammer.schedule.simulator import simulate
from rammer.schedule.stationary import find_stationary

_AHEAD = (1, 2, 1)
"""In each sweep, the waves that are placed behind one to see what its rKernels are worth."""
_MOST_PLACED = 1_000_000
"""rTasks that are placed in trials: some ten seconds."""
_MOST_LIMITS = 12
_GAIN = 1e-3
"""Of the time of the waves of a trial, what another choice has to gain; estimates can't say what is closer."""
_ROUNDING_US = 1e-6


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel, *, most_placed: int = _MOST_PLACED) -> Schedule:
    """The best schedule that is found while up to `most_placed` rTasks are placed in trials."""
    return clearly_quickest(sweeps(graph, device, costs, most_placed=most_placed), graph, device, costs, _GAIN)


def clearly_quickest(
    schedules: Sequence[Schedule], graph: TaskGraph, device: VDevice, costs: CostModel, gain: float
) -> Schedule:
    """The first schedule, or one that gains so much over it by simulation, as a share of its time.

    What simulation leaves out may cost more than a small gain: caches of processors, which clusters are for, and which
    have no room for what some schedules hold.
    """
    first, *others = schedules
    most_bytes = uncached_bytes(graph, first, device)
    fitting = [first, *(one for one in others if uncached_bytes(graph, one, device) <= most_bytes)]
    times_us = [simulate(graph, one, device, costs).total_us for one in fitting]
    best = min(range(len(fitting)), key=times_us.__getitem__)
    return fitting[best if times_us[best] < times_us[0] * (1 - gain) else 0]


def sweeps(
    graph: TaskGraph,
    device: VDevice,
    costs: CostModel,
    *,
    ahead: Sequence[int] = _AHEAD,
    is_held: bool = False,
    most_placed: int = _MOST_PLACED,
) -> Sequence[Schedule]:
    """What `schedule` takes the best of: that of `wavefront`, and after each sweep what was found.

    Args:
        graph: the task graph.
        device: what it is for.
        costs: the times of rTasks.
        ahead: in each sweep, the waves that are placed behind one to see what its arrangement is worth.
        is_held: whether trials count what holds rTasks up, as simulation does; see `Estimates`.
        most_placed: rTasks that may be placed in trials.
    """
    best = replace(wavefront.schedule(graph, device, costs), policy="critical-path")
    best_us = simulate(graph, best, device, costs).total_us
    tried = [best]
    search = _Search(graph, device, Estimates(graph, device, costs, is_held=is_held), most_placed)
    arrangement = search.first(best.choice)
    for waves_ahead in ahead:
        found, arranged = search.sweep(arrangement, waves_ahead)
        found_us = simulate(graph, found, device, costs).total_us
        tried.append(found)
        if found_us < best_us:
            best_us, arrangement = found_us, arranged
    return tried


@dataclass(frozen=True, slots=True)
class _Arrangement:
    """What the search decides: by rOperator its rKernel, the rOperators of each wave, and which of them run aside."""

    picks: tuple[int, ...]
    waves: tuple[tuple[int, ...], ...]
    aside: frozenset[int]

    def with_picks(self, picks: Mapping[int, int]) -> _Arrangement:
        """With other rKernels."""
        own = list(self.picks)
        for operator, pick in picks.items():
            own[operator] = pick
        return replace(self, picks=tuple(own))

    def turned(self, operators: Collection[int]) -> _Arrangement:
        """With rOperators aside that were not, or the other way round."""
        return replace(self, aside=self.aside ^ frozenset(operators))

    def later(self, waves: Mapping[int, int]) -> _Arrangement:
        """With rOperators in other waves, later ones."""
        own = [[operator for operator in wave if operator not in waves] for wave in self.waves]
        for operator, number in waves.items():
            own[number].append(operator)
        return replace(self, waves=tuple(tuple(sorted(wave)) for wave in own))


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A wave and some behind it, placed: when the last ends, the sum of when all vEUs are free, and the steps."""

    end_us: float
    load_us: float
    steps: tuple[Step, ...]


class _Search:
    """Goes over the waves."""

    def __init__(self, graph: TaskGraph, device: VDevice, estimates: Estimates, most_placed: int) -> None:
        self._operators = graph.operators
        self._veus, self._busy_us = device.veu_count, device.busy_us
        self._estimates = estimates
        self._placer = Placer(graph, estimates)
        producers = [self._placer.dependencies.producers(operator.id) for operator in graph.operators]
        self._consumers: list[list[int]] = [[] for _ in producers]
        for operator, own in enumerate(producers):
            for producer in own:
                self._consumers[producer].append(operator)
        self._waves = find_waves(graph, producers)
        self._settled = find_stationary(graph, self._waves, self._veus, device.stationary_bytes, estimates)
        self._placer.settle(self._settled)
        self._waves_ahead = 0
        self._left = most_placed
        self._best_kernels: dict[tuple[RKernel, ...], tuple[int, ...]] = {}

    def first(self, choice: tuple[int, ...]) -> _Arrangement:
        """The waves of `wavefront` with a choice of rKernels."""
        waves = tuple(tuple(operator.id for operator in wave) for wave in self._waves)
        return _Arrangement(choice, waves, frozenset())

    def sweep(self, arrangement: _Arrangement, waves_ahead: int) -> tuple[Schedule, _Arrangement]:
        """Go over all waves, beginning with an arrangement; the schedule of what was found, and that."""
        self._waves_ahead = waves_ahead
        self._placer.go_back({})
        times, builder = ProgramTimes(self._estimates.handovers, self._busy_us), ProgramBuilder(self._veus)
        for number in range(len(self._waves)):
            if self._left > 0:
                arrangement = self._improved(number, arrangement, times)
            trial = self._placed(math.inf, number, arrangement, times)
            assert trial is not None  # nothing ends after infinity
            self._placer.commit(trial)
            times.add(trial)
            for step in trial.steps:
                builder.wait(step.job.task, step.job.awaited)
                builder.append(step.job.task, step.veu)
        schedule = Schedule(policy="critical-path", choice=arrangement.picks, programs=(builder.build(),))
        return schedule, arrangement

    def _placed(self, latest_us: float, number: int, arrangement: _Arrangement, times: ProgramTimes) -> Trial | None:
        """A wave as it is arranged; None if it ends after `latest_us`."""
        wave = [self._operators[operator] for operator in arrangement.waves[number]]
        selection = {operator.id: arrangement.picks[operator.id] for operator in wave}
        return self._placer.place_by(latest_us, wave, selection, times, arrangement.aside)

    def _improved(self, number: int, arrangement: _Arrangement, times: ProgramTimes) -> _Arrangement:
        """A wave arranged better, given the rProgram before it."""
        keepers = self._placer.keepers()
        best = self._ahead(number, arrangement, times, keepers)
        assert best is not None  # nothing ends after infinity
        tried = {arrangement}
        others = [*self._limited(number, arrangement), *self._moves(number, arrangement, best)]
        while others:
            before = best
            for other in others:
                if other in tried or self._left <= 0:
                    continue
                tried.add(other)
                found = self._ahead(number, other, times, keepers, best.end_us)
                if found is not None and self._is_better(found, best, times):
                    arrangement, best = other, found
            others = list(self._moves(number, arrangement, best)) if best is not before else []
        self._placer.go_back(keepers)
        return arrangement

    def _is_better(self, found: _Ahead, best: _Ahead, times: ProgramTimes) -> bool:
        """Whether waves that end no later end sooner, or leave the vEUs more time."""
        least_us = _GAIN * (best.end_us - times.end_us)
        return found.end_us < best.end_us - least_us or found.load_us < best.load_us - least_us * self._veus

    def _ahead(
        self,
        number: int,
        arrangement: _Arrangement,
        times: ProgramTimes,
        keepers: Mapping[Constants, int],
        latest_us: float = math.inf,
    ) -> _Ahead | None:
        """Place a wave and those behind it; None if one of them ends after `latest_us`."""
        self._placer.go_back(keepers)
        steps: list[Step] = []
        ahead = times  # which keeps what the first wave waits for, the same in all trials
        for one in range(number, min(number + 1 + self._waves_ahead, len(self._waves))):
            trial = self._placed(latest_us, one, arrangement, ahead)
            own = arrangement.waves[one]
            self._left -= sum(self._operators[id_].kernels[arrangement.picks[id_]].task_count for id_ in own)
            if trial is None:
                return None
            self._placer.commit(trial)
            ahead = ahead.copy() if ahead is times else ahead
            ahead.add(trial)
            steps += trial.steps
        return _Ahead(ahead.end_us, float(ahead.free_us.sum()), tuple(steps))

    def _free(self, number: int, arrangement: _Arrangement) -> list[ROperator]:
        """The rOperators of a wave that are not settled."""
        return [self._operators[one] for one in arrangement.waves[number] if one not in self._settled]

    def _limited(self, number: int, arrangement: _Arrangement) -> Iterator[_Arrangement]:
        """Of each rOperator the rKernel of least work whose rTasks take no longer than a limit, for some limits."""
        free = self._free(number, arrangement)
        times = [[self._estimates.task_us[operator.id][pick] for pick in self._good(operator)] for operator in free]
        least_us = max(map(min, times), default=0.0)
        limits = sorted({time_us for one in times for time_us in one if time_us >= least_us})
        for limit_us in limits[:: -(-len(limits) // _MOST_LIMITS) or 1]:
            yield arrangement.with_picks(
                {
                    operator.id: next(
                        pick
                        for pick in reversed(self._good(operator))
                        if self._estimates.task_us[operator.id][pick] <= limit_us
                    )
                    for operator in free
                }
            )

    def _moves(self, number: int, arrangement: _Arrangement, ahead: _Ahead) -> Iterator[_Arrangement]:
        """Other arrangements of a wave: rKernels of what is on the critical path, what runs aside, what is left."""
        wave = {operator.id: operator for operator in self._free(number, arrangement)}
        equals: dict[tuple[RKernel, ...], list[int]] = {}
        for operator in wave.values():
            equals.setdefault(operator.kernels, []).append(operator.id)
        for operator_id in dict.fromkeys(self._critical(ahead)):
            if operator_id in wave:
                for pick in self._good(wave[operator_id]):
                    yield arrangement.with_picks(dict.fromkeys(equals[wave[operator_id].kernels], pick))
                    yield arrangement.with_picks({operator_id: pick})
        for own in equals.values():
            if len(own) < len(arrangement.waves[number]):
                turned = arrangement.turned(own)
                yield from (turned.with_picks(dict.fromkeys(own, pick)) for pick in self._good(wave[own[0]]))
                yield turned
            left = [self._left_to_next(operator, number, arrangement) for operator in own]
            for waves in ({one: wave for each in left for one, wave in each.items()}, *left):
                if waves and not waves.keys() >= set(arrangement.waves[number]):
                    yield arrangement.later(waves)

    def _left_to_next(self, operator: int, number: int, arrangement: _Arrangement) -> dict[int, int]:
        """The waves of an rOperator and of what reads it, if it is in the one behind `number`; none: it cannot be.

        The last of these waves is one that a trial places: else the trial would have less to do.
        """
        last = min(number + self._waves_ahead, len(self._waves) - 1)
        at = {one: wave for wave in range(number, last + 1) for one in arrangement.waves[wave]}
        later: dict[int, int] = {}
        pending = [(operator, number + 1)]
        while pending:
            one, wave = pending.pop()
            if wave > last or one in self._settled:
                return {}
            if later.get(one, at[one]) < wave:
                later[one] = wave
                pending += [(consumer, wave + 1) for consumer in self._consumers[one] if consumer in at]
        return later

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
