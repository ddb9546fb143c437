"""Placing rTasks on paper: each on the vEU that can start it earliest, given when vEUs are free and inputs are there.

rTasks are taken in the order in which their inputs are there, long ones first among equals. Starts that differ by less
than a hand-over count as equal. Among equal vEUs the rTask's *keeper* is preferred, which was last to use the same
constants (a recurrent layer's weights stay in one cache), then the one that made most of its inputs, then the
earliest. What loads weights first, to keep them, does so while it waits where a vEU is idle, and so prefers none.
Before a vEU takes an rTask from elsewhere, it takes one whose keeper it is that could start as early.

Products whose constants are copied ahead *take turns* instead: an rTask goes to the vEU that has been idle longest of
those where it starts by the time that its inputs are first at hand anywhere. Its copies begin earliest there, and delay
no rTask that others wait for. Attention over what such products made does likewise, and leaves their vEUs to products
behind it. Of two rows of tiles, rTasks of the same constants follow each other, and so mostly lie on neighbouring vEUs,
which may get what both read by one request (ADR 0012).

Times are estimates, carried along from trial to trial: nothing is simulated twice.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rammer.ir.kernel_form import Skeleton
from rammer.ir.task import RKernel, ROperator, RTask, TaskGraph, TensorRole
from rammer.schedule.dependencies import Dependencies, Predecessors, TaskSet, union
from rammer.schedule.estimates import Estimates
from rammer.schedule.handovers import Arrivals, Handovers, Times
from rammer.schedule.regions import Boxes, IntArray, regions_of
from rammer.schedule.stationary import Stationary

# rOperator -> its candidate rKernel.
Selection = Mapping[int, int]
# An rOperator, its candidate rKernel and those of its producers.
_Tiling = tuple[int, int, tuple[int, ...]]
# The constants that an rTask reads: per slot the root tensor and the box's bounds.
Constants = tuple[tuple[int, bytes], ...]
_PAIR = 2  # vEUs that may get what both read by one request: multiprocessors of a TPC


@dataclass(frozen=True, slots=True)
class _Inputs:
    """What an rTask waits for: when each vEU has it at hand, the first of these times, and how much each vEU made.

    `makers` are the vEUs that made any of it, ascending, and `shares` how much each did; None: as much as any other.
    """

    ready_us: Times
    first_us: float
    made: Mapping[int, int]
    makers: IntArray
    shares: IntArray | None

    @staticmethod
    def of(ready_us: Times, made: Mapping[int, int]) -> _Inputs:
        """What vEUs made, and when each has it."""
        makers = sorted(made)
        shares = None if len(set(made.values())) == 1 else np.array([made[veu] for veu in makers], dtype=np.int64)
        return _Inputs(ready_us, float(ready_us.min()), made, np.array(makers, dtype=np.int64), shares)

    def maker(self, starts_us: Times, equal_us: float) -> int | None:
        """Of the vEUs that could start by `equal_us`, which made most; of these the first to start. None made any."""
        own_us = starts_us[self.makers]
        if self.shares is not None:
            shares = np.where(own_us <= equal_us, self.shares, 0)
            own_us = np.where(shares == shares.max(), own_us, np.inf)
        place = own_us.argmin()
        return int(self.makers[place]) if own_us[place] <= equal_us else None


class Job(NamedTuple):
    """An rTask to be placed, and what decides where; a NamedTuple, for there are several for each rTask.

    It may start `early_us` before its inputs are there, of which it takes `load_us` for what it keeps. Those of its
    `predecessors` whose results are not tagged are `awaited`. `keeper` is the vEU that was last to use its constants,
    or, if it is `settled`, the only one for it. If it `takes_turns`, it goes to the vEU that has been idle longest.
    `rank` is its place among the rTasks of its rOperator.
    """

    task: RTask
    rank: int
    task_us: float
    early_us: float
    load_us: float
    predecessors: Predecessors
    awaited: Predecessors
    constants: Constants
    keeper: int | None
    settled: bool
    takes_turns: bool
    inputs: _Inputs | None

    def starts_us(self, free_us: Times) -> Times:
        """When it could start on each vEU."""
        return free_us if self.inputs is None else np.maximum(free_us, self.inputs.ready_us - self.early_us)

    def urgency(self, idle_us: float) -> tuple[float, float, int, int]:
        """The key to sort by where some vEU is idle from `idle_us` on."""
        ready_us = idle_us if self.inputs is None else max(idle_us, self.inputs.first_us - self.early_us)
        return ready_us, -self.task_us, self.task.operator, self.rank


class Step(NamedTuple):
    """A job on a vEU and when it ends."""

    job: Job
    veu: int
    end_us: float


@dataclass(frozen=True, slots=True)
class Trial:
    """rOperators scheduled on paper, `steps` in the order of appending.

    `free_us[v]` is when vEU v is then free, `end_us` when all are that have run something.
    """

    selection: Selection
    steps: tuple[Step, ...]
    free_us: Times
    end_us: float


class ProgramTimes:
    """An rProgram under construction: when each vEU is free and where and when its rTasks end.

    rTasks that it does not hold ended before it starts. vEUs that other models have first are free from `busy_us` on.
    """

    def __init__(self, handovers: Handovers, busy_us: Sequence[float] = ()) -> None:
        self._busy_us: Times = np.array(busy_us or [0.0] * len(handovers.homes))
        self.free_us = self._busy_us
        self._handovers = handovers
        self._ends: dict[RTask, tuple[int, float]] = {}
        # What has been derived since the last trial was added.
        self._by_set: dict[TaskSet, _Inputs | None] = {}
        self._by_sets: dict[Predecessors, _Inputs | None] = {}

    @property
    def end_us(self) -> float:
        """When all vEUs are free that have run something."""
        return self.end_of(self.free_us)

    def end_of(self, free_us: Times) -> float:
        """The same where vEUs are free from `free_us` on."""
        return float(np.where(free_us > self._busy_us, free_us, 0.0).max())

    @property
    def width(self) -> int:
        """The vEUs that are there for what comes next: those that other models have longer are not."""
        return int((self._busy_us <= max(self.end_us, float(self._busy_us.min()))).sum())

    def room_us(self, until_us: float) -> float:
        """What all vEUs together have time for until then."""
        return float(np.maximum(until_us - self.free_us, 0.0).sum())

    def copy(self) -> ProgramTimes:
        """The same rProgram, to be gone on with in another way."""
        other = ProgramTimes(self._handovers, self._busy_us.tolist())
        other.free_us, other._ends = self.free_us, dict(self._ends)
        return other

    def add(self, trial: Trial) -> None:
        """Append a trial that began from these times."""
        self.free_us = trial.free_us
        self._ends.update((step.job.task, (step.veu, step.end_us)) for step in trial.steps)
        self._by_set.clear()
        self._by_sets.clear()

    def inputs(self, predecessors: Predecessors) -> _Inputs | None:
        """When rTasks, all of them added by now, are at hand; None where this rProgram holds none of them."""
        if predecessors not in self._by_sets:
            found = [self._set_inputs(tasks) for tasks in predecessors]
            self._by_sets[predecessors] = _merged([part for part in found if part is not None])
        return self._by_sets[predecessors]

    def _set_inputs(self, tasks: TaskSet) -> _Inputs | None:
        if tasks not in self._by_set:
            places = [self._ends[task] for task in tasks.tasks if task in self._ends]
            self._by_set[tasks] = self._inputs(places) if places else None
        return self._by_set[tasks]

    def _inputs(self, places: Sequence[tuple[int, float]]) -> _Inputs:
        """Of rTasks, each given by its vEU and end: other vEUs go on a hand-over after the last of them."""
        made: Counter[int] = Counter()
        arrivals = Arrivals(self._handovers)
        for veu, end_us in places:
            made[veu] += 1
            arrivals.note(veu, end_us)
        return _Inputs.of(arrivals.seen_by_all_us(), made)


def _merged(parts: Sequence[_Inputs]) -> _Inputs | None:
    """What waits for all of `parts`."""
    if len(parts) < 2:
        return parts[0] if parts else None
    ready_us = np.maximum.reduce([part.ready_us for part in parts])
    made: Counter[int] = Counter()
    for part in parts:
        made.update(part.made)
    return _Inputs.of(ready_us, made)


class Placer:
    """Places rOperators on paper; `commit` makes a trial's choices final."""

    def __init__(self, graph: TaskGraph, estimates: Estimates) -> None:
        self._graph = graph
        self._estimates = estimates
        self._regions = regions_of(graph)
        self.dependencies = Dependencies(graph, self._regions)
        self._producers = [self.dependencies.producers(operator.id) for operator in graph.operators]
        self._picks: dict[int, int] = {}
        self._predecessors: dict[_Tiling, tuple[tuple[Predecessors, ...], tuple[Predecessors, ...]]] = {}
        self._keepers: dict[Constants, int] = {}
        self._keys: dict[Boxes, list[bytes]] = {}
        self._constants_of: dict[tuple[int, int], tuple[Constants, ...]] = {}
        self._stationary: Mapping[int, Stationary] = {}

    def settle(self, stationary: Mapping[int, Stationary]) -> None:
        """Give the rTasks of some rOperators their vEUs."""
        self._stationary = stationary

    def place(self, operators: Sequence[ROperator], selection: Selection, times: ProgramTimes) -> Trial:
        """The rTasks of some rOperators, appended to an rProgram.

        Args:
            operators: do not depend on each other, and all producers of theirs are committed.
            selection: a candidate for each.
            times: the rProgram; left as it is.
        """
        trial = self.place_by(math.inf, operators, selection, times)
        assert trial is not None  # nothing ends after that
        return trial

    def place_by(
        self,
        latest_us: float,
        operators: Sequence[ROperator],
        selection: Selection,
        times: ProgramTimes,
        aside: Collection[int] = frozenset(),
    ) -> Trial | None:
        """As `place`; None as soon as an rTask ends after `latest_us`.

        rOperators that are `aside` run on the vEUs that the others leave free, if they leave any.
        """
        free_us = times.free_us.copy()
        steps: dict[RTask, Step] = {}
        for is_aside in (False, True) if aside else (False,):
            own = [operator for operator in operators if (operator.id in aside) == is_aside]
            jobs = [job for operator in own for job in self._jobs(operator, selection[operator.id], times)]
            used = sorted({step.veu for step in steps.values()})
            kept_us = free_us[used]
            if len(used) < len(free_us):
                free_us[used] = math.inf
            if not self._fill(latest_us, jobs, free_us, steps):
                return None
            free_us[used] = np.where(np.isinf(free_us[used]), kept_us, free_us[used])
        return Trial(selection, tuple(steps.values()), free_us, times.end_of(free_us))

    def _fill(self, latest_us: float, jobs: list[Job], free_us: Times, steps: dict[RTask, Step]) -> bool:
        """Place rTasks on vEUs, whose times go on; False as soon as one ends after `latest_us`."""
        idle_us = float(free_us.min())
        jobs.sort(key=lambda job: job.urgency(idle_us))
        at_keeper: dict[int, deque[Job]] = {}
        for job in jobs:
            if job.keeper is not None:
                at_keeper.setdefault(job.keeper, deque()).append(job)
        queue = deque(jobs)
        while queue:
            if queue[0].task in steps:
                queue.popleft()
                continue
            job = queue[0]
            veu, start_us = self._earliest(free_us, job)
            if veu != job.keeper:
                waiting = at_keeper.get(veu, deque())
                while waiting and waiting[0].task in steps:
                    waiting.popleft()
                if waiting and waiting[0].starts_us(free_us)[veu] <= start_us:
                    job = waiting[0]
                    start_us = float(job.starts_us(free_us)[veu])
            end_us = start_us + job.task_us
            if end_us > latest_us:
                return False
            free_us[veu] = end_us
            steps[job.task] = Step(job, veu, end_us)
        return True

    def place_on(self, veu: int, operator: ROperator, pick: int, times: ProgramTimes) -> Trial:
        """The rTasks of an rOperator, one after another on a vEU; otherwise as `place`."""
        free_us = times.free_us.copy()
        steps = []
        for job in self._jobs(operator, pick, times):
            free_us[veu] = job.starts_us(free_us)[veu] + job.task_us
            steps.append(Step(job, veu, float(free_us[veu])))
        return Trial({operator.id: pick}, tuple(steps), free_us, times.end_of(free_us))

    def commit(self, trial: Trial) -> None:
        """Take a trial for what happens."""
        for number, pick in trial.selection.items():
            self._picks[number] = pick
            self.dependencies.commit(number, self._graph.operators[number].kernels[pick])
        self._keepers.update((step.job.constants, step.veu) for step in trial.steps if step.job.constants)

    def keepers(self) -> dict[Constants, int]:
        """The vEU that was last to use each constant, of what is committed; to be given back to `go_back`."""
        return dict(self._keepers)

    def go_back(self, keepers: Mapping[Constants, int]) -> None:
        """Forget what was committed since `keepers`: to be committed in another way, in the same order."""
        self._keepers = dict(keepers)

    def _earliest(self, free_us: Times, job: Job) -> tuple[int, float]:
        """The vEU for an rTask and when it starts there."""
        starts_us = job.starts_us(free_us)
        if job.takes_turns:
            veu = int(np.where(starts_us <= starts_us.min() + job.early_us, free_us, np.inf).argmin())
            return veu, float(starts_us[veu])
        veu = job.keeper if job.keeper is not None and job.settled else int(starts_us.argmin())
        equal_us = float(starts_us[veu]) + max(0.0, self._estimates.handover_us - job.load_us)
        if job.keeper is not None and starts_us[job.keeper] <= equal_us:
            veu = job.keeper
        elif job.inputs is not None and (maker := job.inputs.maker(starts_us, equal_us)) is not None:
            veu = maker
        return veu, float(starts_us[veu])

    def _jobs(self, operator: ROperator, pick: int, times: ProgramTimes) -> Iterator[Job]:
        load_us = self._estimates.load_us[operator.id][pick]
        task_us = self._estimates.task_us[operator.id][pick] + load_us
        early_us = self._estimates.early_us[operator.id][pick] + load_us
        kernel, turns = operator.kernels[pick], self._takes_turns(operator, pick)
        rows = zip(*self._predecessors_of(operator, pick), self._constants(operator, pick), _ranks(kernel), strict=True)
        found, takes_late = self._stationary.get(operator.id), kernel.form.takes_late
        costs, settled = (task_us, early_us, load_us), found is not None
        for index, (predecessors, awaited, constants, rank) in enumerate(rows):
            keeper = found.veus[index] if found else self._keepers.get(constants)
            inputs = times.inputs(awaited if takes_late else predecessors)
            task = RTask(operator.id, index)
            yield Job(task, rank, *costs, predecessors, awaited, constants, keeper, settled, turns, inputs)

    def _takes_turns(self, operator: ROperator, pick: int) -> bool:
        """Whether rTasks go to the vEUs that have been idle longest."""
        kernel = operator.kernels[pick]
        if kernel.form.skeleton is not Skeleton.ATTENTION:
            return kernel.form.copies_ahead and bool(kernel.constants)
        makers = (self._graph.operators[producer] for producer in self._producers[operator.id])
        return any(maker.kernels[self._picks[maker.id]].form.copies_ahead for maker in makers)

    def _predecessors_of(
        self, operator: ROperator, pick: int
    ) -> tuple[tuple[Predecessors, ...], tuple[Predecessors, ...]]:
        """Per rTask, all predecessors and those that are awaited."""
        key = (operator.id, pick, tuple(self._picks[producer] for producer in self._producers[operator.id]))
        if key not in self._predecessors:
            kernel = operator.kernels[pick]
            awaited, taken = (self.dependencies.awaited(operator, kernel, tagged=tagged) for tagged in (False, True))
            self._predecessors[key] = (tuple(map(union, awaited, taken)), awaited)
        return self._predecessors[key]

    def _constants(self, operator: ROperator, pick: int) -> tuple[Constants, ...]:
        """Per rTask, the constants that it reads; trial after trial asks for the same."""
        key = (operator.id, pick)
        if key not in self._constants_of:
            self._constants_of[key] = tuple(self._found_constants(operator, operator.kernels[pick]))
        return self._constants_of[key]

    def _found_constants(self, operator: ROperator, kernel: RKernel) -> Iterable[Constants]:
        """As `_constants`, computed."""
        columns = [
            [(region.tensor, bounds) for bounds in self._bounds(region.boxes)]
            for region in self._regions.reads(operator, kernel)
            if region is not None and self._graph.tensors[region.tensor].role is TensorRole.CONSTANT
        ]
        return zip(*columns, strict=True) if columns else itertools.repeat((), kernel.task_count)

    def _bounds(self, boxes: Boxes) -> list[bytes]:
        """Each box as a key."""
        if boxes not in self._keys:
            self._keys[boxes] = [row.tobytes() for row in np.hstack([boxes.lo, boxes.hi])]
        return self._keys[boxes]


def _ranks(kernel: RKernel) -> Iterable[int]:
    """The place of each rTask among those of its rKernel: the two of a column after each other, if it copies ahead."""
    if kernel.form.copies_ahead and len(kernel.grid) == 2 and kernel.grid[0] == _PAIR:
        columns = kernel.grid[1]
        return [index % columns * _PAIR + index // columns for index in range(kernel.task_count)]
    return range(kernel.task_count)
