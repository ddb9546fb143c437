"""The policy `wavefront`: Algorithm 1 of the Rammer paper (section 4.3).

The graph is walked in waves of breadth-first search. Each wave is scheduled twice on paper: appended to the current
rProgram (P1), and as a new rProgram (P2). P1 is kept if time(P1) <= time(current) + time(P2); otherwise the current
rProgram is closed and P2 becomes it. Here starting P2 costs `Estimates.program_us`, so that closing is not free.

Within a wave, SelectRKernels takes the fastest rKernels where together they do not fill the device. Otherwise it keeps
the rKernels with which the wave ends first: the fastest, the most efficient (both as in the paper), or, between these
extremes, those that are fastest on the share of the vEUs that falls to their rOperator by its work, or those of least
work in the shortest round of rTasks, where each has a vEU or short ones follow each other. How rTasks are then placed,
`schedule.placement` says.
Where some of the next wave's rTasks bring something before they wait, as attention does the rows of a cache, the wave
is also tried on as many vEUs less, which do so meanwhile; kept is that with which the next wave ends first.

Before that, clusters that begin in the wave may be run depth first, each on a vEU, where breadth first they would lose
what they hand on from their caches (`schedule.clusters`). Where waves hold more at a time than the cache that all vEUs
share, each rOperator is a wave of its own, in the model's order, if that holds clearly less and takes hardly longer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from rammer.ir.program import RProgram, Schedule
from rammer.ir.task import ROperator, TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.clusters import Clusters, deal
from rammer.schedule.dependencies import find_waves
from rammer.schedule.estimates import Estimates
from rammer.schedule.footprint import uncached_bytes
from rammer.schedule.placement import Placer, ProgramTimes, Selection, Trial
from rammer.schedule.simulator import simulate
from rammer.schedule.stationary import find_stationary

_ROUNDING = 1e-9
_LESS = 0.8
"""Of what waves hold, what rOperators in turn may hold to be preferred."""
_HARDLY_LONGER = 1.05
"""How much longer they may take by simulation, which does not see all of memory."""


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel) -> Schedule:
    """As few rPrograms as pay, rOperators of a wave side by side, Waits between tiles."""
    estimates = Estimates(graph, device, costs)
    found = schedule_with(graph, device, estimates)
    all_bytes = uncached_bytes(graph, found, device)
    if not all_bytes or device.busy_us:  # until other models end, no rProgram can
        return found
    in_turn = schedule_with(graph, device, estimates, in_turn=True)
    if uncached_bytes(graph, in_turn, device) > _LESS * all_bytes:
        return found
    times_us = [simulate(graph, one, device, costs).total_us for one in (found, in_turn)]
    return in_turn if times_us[1] <= _HARDLY_LONGER * times_us[0] else found


def schedule_with(graph: TaskGraph, device: VDevice, estimates: Estimates, *, in_turn: bool = False) -> Schedule:
    """As `schedule` in waves, or of rOperators `in_turn`, from given estimates."""
    state = _Wavefront(graph, device, estimates, in_turn=in_turn)
    for wave, following in itertools.zip_longest(state.waves, state.waves[1:], fillvalue=()):
        state.add(wave, following)
    return state.finish()


class _Wavefront:
    """The rPrograms so far, the last of them open; of rOperators `in_turn`, it ends when caches of vEUs are full."""

    def __init__(self, graph: TaskGraph, device: VDevice, estimates: Estimates, *, in_turn: bool = False) -> None:
        self._graph = graph
        self._veus = veus = device.veu_count
        self._own_cache_bytes = device.own_cache_bytes
        self._estimates = estimates
        self._placer = Placer(graph, estimates)
        self._producers = [self._placer.dependencies.producers(operator.id) for operator in graph.operators]
        self.waves = [[each] for each in graph.operators] if in_turn else find_waves(graph, self._producers)
        self._left_bytes = self._room_bytes = veus * device.own_cache_bytes if in_turn else math.inf
        self._stationary = find_stationary(graph, self.waves, veus, device.stationary_bytes, estimates)
        self._placer.settle(self._stationary)
        self._clusters = Clusters(graph, self._producers, estimates)
        self._placed: set[int] = set()
        self._choice = [0] * len(graph.operators)
        self._programs: list[RProgram] = []
        self._builder = ProgramBuilder(veus)
        self._times = ProgramTimes(estimates.handovers, device.busy_us)
        self._may_close = not device.busy_us  # until other models end, no time is that of all vEUs

    def add(self, wave: Sequence[ROperator], following: Sequence[ROperator]) -> None:
        """Schedule the next wave, and with it the clusters that are run depth first, with a view to the one behind."""
        if self._left_bytes <= 0:
            self._close()
            self._times, self._left_bytes = ProgramTimes(self._estimates.handovers), self._room_bytes
        waiting = [operator for operator in wave if operator.id not in self._placed]
        clusters = [self._clusters.at(operator) for operator in waiting]
        for cluster, veu in deal(clusters, self._times.free_us, self._own_cache_bytes):
            for operator in self._clusters.operators(cluster):
                pick = self._estimates.best_kernel(operator, 1)
                self._commit(self._placer.place_on(veu, operator, pick, self._times))
        waiting = [operator for operator in waiting if operator.id not in self._placed]
        if waiting:
            self._add(waiting, following)
        self._left_bytes -= sum(output.type.nbytes for each in wave for output in each.kernels[0].expr.outputs)

    def _add(self, wave: Sequence[ROperator], following: Sequence[ROperator]) -> None:
        """Schedule rOperators side by side, in the current rProgram or in a new one."""
        trial = self._select(wave, self._times)
        # P1 costs as much as closing now and running P2 for `spare_us`; rounding must not tell equals apart.
        spare_us = (trial.end_us - self._times.end_us - self._estimates.program_us) * (1 - _ROUNDING)
        if self._may_close and self._times.end_us > 0 and spare_us > self._least_us(wave):
            new = ProgramTimes(self._estimates.handovers)
            fresh = self._select(wave, new)
            if spare_us > fresh.end_us:
                self._close()
                self._times, trial = new, fresh
        self._commit(self._with_room(trial, wave, following))

    def _close(self) -> None:
        """End the current rProgram."""
        self._programs.append(self._builder.build())
        self._builder = ProgramBuilder(self._veus, after=self._builder)

    def _with_room(self, trial: Trial, wave: Sequence[ROperator], following: Sequence[ROperator]) -> Trial:
        """The wave on fewer vEUs, if that leaves as many as rTasks of the next wave load on, and that ends sooner."""
        following = [operator for operator in following if operator.id not in self._placed]
        selection = self._fastest(following, [self._veus] * len(following))
        loading = sum(
            operator.kernels[pick].task_count
            for operator, pick in zip(following, selection.values(), strict=True)
            if self._estimates.load_us[operator.id][pick] > 0
        )
        taken = len({step.veu for step in trial.steps})
        if not 0 < loading < self._veus or taken + loading <= self._veus:
            return trial
        fewer = self._fastest(wave, [self._veus - loading] * len(wave))
        narrow = self._placer.place(wave, fewer, self._times)
        return min(trial, narrow, key=lambda one: self._end_us(one, following, selection))

    def _end_us(self, trial: Trial, following: Sequence[ROperator], selection: Selection) -> float:
        """When the next wave ends behind a trial, which stays one."""
        keepers, times = self._placer.keepers(), self._times.copy()
        self._placer.commit(trial)
        times.add(trial)
        end_us = self._placer.place(following, selection, times).end_us
        self._placer.go_back(keepers)
        return end_us

    def finish(self) -> Schedule:
        """The schedule."""
        programs = (*self._programs, self._builder.build())
        return Schedule(policy="wavefront", choice=tuple(self._choice), programs=programs)

    def _select(self, wave: Sequence[ROperator], times: ProgramTimes) -> Trial:
        """SelectRKernels: the wave with those rKernels with which it ends first, among equals with the least work."""
        veus = times.width
        fastest = self._fastest(wave, [veus] * len(wave))
        if sum(operator.kernels[fastest[operator.id]].task_count for operator in wave) <= veus:
            return self._placer.place(wave, fastest, times)
        efficient = self._fastest(wave, [1] * len(wave))
        work_us = [self._estimates.work_us(operator, efficient[operator.id]) for operator in wave]
        whole_us = sum(work_us)
        shares = [max(1, int(veus * work / whole_us)) if work > 0 else 1 for work in work_us]
        best = self._placer.place(wave, self._fastest(wave, shares), times)
        tried = [best.selection]
        for selection in (*self._rounds(wave, veus), efficient, fastest):
            # No placement beats an even load, which spares most trials.
            load_us = sum(self._estimates.work_us(operator, selection[operator.id]) for operator in wave)
            if selection in tried or times.room_us(best.end_us) <= load_us:
                continue
            tried.append(selection)
            trial = self._placer.place_by(best.end_us, wave, selection, times)
            if trial is not None:
                best = min(best, trial, key=lambda one: (one.end_us, float(one.free_us.sum())))
        return best

    def _rounds(self, wave: Sequence[ROperator], veus: int) -> Iterator[Selection]:
        """The rKernels of least work in the shortest round that the vEUs have room for, if there is any.

        First the one where short rTasks follow each other on a vEU, then the one that has a vEU for each rTask.
        """
        if len(wave) > veus:
            return
        times = [self._estimates.task_us[operator.id] for operator in wave]
        least_us = max(map(min, times))
        is_first = True
        for limit_us in sorted({time_us for one in times for time_us in one if time_us >= least_us}):
            selection = {operator.id: self._within(operator, limit_us) for operator in wave}
            if sum(operator.kernels[selection[operator.id]].task_count for operator in wave) <= veus:
                yield selection
                return
            if is_first and self._taken(wave, selection, limit_us) <= veus:
                is_first = False
                yield selection

    def _taken(self, wave: Sequence[ROperator], selection: Selection, round_us: float) -> int:
        """How many vEUs a round of that length takes, on each of which rTasks of one rOperator follow each other."""
        taken = 0
        for operator in wave:
            pick = selection[operator.id]
            in_turn = max(1, int(round_us / max(self._estimates.task_us[operator.id][pick], _ROUNDING)))
            taken += -(-operator.kernels[pick].task_count // in_turn)
        return taken

    def _within(self, operator: ROperator, limit_us: float) -> int:
        """The rKernel of least work among those whose rTasks take no longer, or that which is settled."""
        if found := self._stationary.get(operator.id):
            return found.pick
        times = enumerate(self._estimates.task_us[operator.id])
        fitting = (pick for pick, time_us in times if time_us <= limit_us)
        return min(fitting, key=lambda pick: self._estimates.work_us(operator, pick))

    def _fastest(self, wave: Sequence[ROperator], shares: Sequence[int]) -> Selection:
        """The rKernels that are fastest when each rOperator has a share of the vEUs to itself, or that are settled."""
        return {
            operator.id: found.pick
            if (found := self._stationary.get(operator.id))
            else self._estimates.best_kernel(operator, share)
            for operator, share in zip(wave, shares, strict=True)
        }

    def _least_us(self, wave: Sequence[ROperator]) -> float:
        """No rProgram of the wave alone ends sooner, whatever the rKernels: a cheap reason not to try one."""
        least_us = 0.0
        load_us = 0.0
        for operator in wave:
            times = zip(operator.kernels, self._estimates.task_us[operator.id], strict=True)
            least_us = max(least_us, min(task_us if kernel.task_count else 0.0 for kernel, task_us in times))
            load_us += self._estimates.work_us(operator, self._estimates.best_kernel(operator, 1))
        return max(least_us, load_us / self._veus)

    def _commit(self, trial: Trial) -> None:
        for number, pick in trial.selection.items():
            self._choice[number] = pick
            self._placed.add(number)
        for step in trial.steps:
            self._builder.wait(step.job.task, step.job.awaited)
            self._builder.append(step.job.task, step.veu)
        self._placer.commit(trial)
        self._times.add(trial)
