"""A run of any schedule on any vDevice, played through with estimated times.

Rules: a vEU goes through its steps in order. An rTask takes its estimated time. A signal is seen at once by the vEU
that gives it and a hand-over later by all others, as late as by the last of those that wait for it; a Wait ends when as
many signals as its threshold are seen. Waits and signals take no time of their own. Tagged results are seen by all vEUs
a tagged hand-over later, and an rTask that takes some starts when it sees all of them or, where its form takes them
late, makes its own results then. Where rTasks wait by themselves, their overhead passes meanwhile: they start so much
before what they wait for is seen, but not before the rTask ahead has ended; constants that are copied first, and the
look at what they wait for, come before that, too. What keeps weights on its vEU fetches them before it waits, where
others took their place or there are none yet, and looks at what others made then; the time of tagged results has that
in it. Code that a vEU runs for the first time comes from afar if too many constants are read between runs of it, and so
do all constants of a model that has too many, and results that leave a vEU's own cache before they are read. The first
rProgram starts when the device has started; others follow as `Estimates.program_us` says. A vEU that other models have
first begins when they have ended.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rammer.ir.program import Execute, RProgram, Schedule, Signal, Wait
from rammer.ir.task import RKernel, RTask, TaskGraph, kernels_of
from rammer.ir.timeline import Span, Timeline
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.dependencies import Predecessors, TaskSet, find_tagged
from rammer.schedule.estimates import Estimates
from rammer.schedule.handovers import Arrivals
from rammer.schedule.leaving import Written, find_far_bytes, find_leaving


def simulate(graph: TaskGraph, schedule: Schedule, device: VDevice, costs: CostModel) -> Timeline:
    """When each rTask would run and how long each vEU would stand at Waits.

    Raises:
        ValueError: the schedule deadlocks.
    """
    estimates = Estimates(graph, device, costs)
    tagged = find_tagged(graph, schedule.choice)
    load_us = [times[pick] for times, pick in zip(estimates.load_us, schedule.choice, strict=True)]
    stream_us = [
        estimates.stream_us(operator, pick) for operator, pick in zip(graph.operators, schedule.choice, strict=True)
    ]
    task_us = [
        times[pick] + load + stream
        for times, pick, load, stream in zip(estimates.task_us, schedule.choice, load_us, stream_us, strict=True)
    ]
    early_us = [
        times[pick] + load for times, pick, load in zip(estimates.early_us, schedule.choice, load_us, strict=True)
    ]
    held_us = [
        estimates.held_us(operator, pick) for operator, pick in zip(graph.operators, schedule.choice, strict=True)
    ]
    times = _Times(
        task_us=task_us,
        early_us=early_us,
        held_us=held_us,
        rest_us=[estimates.rest_us(kernel) for kernel in kernels_of(graph, schedule.choice)],
        kept=_Kept(graph, schedule.choice, estimates),
        code=_Code(graph, schedule.choice, estimates),
        caches=_Caches(graph, schedule, device, estimates),
    )
    waiting = [0.0] * max((program.veus for program in schedule.programs), default=device.veu_count)
    spans: list[Span] = []
    now = device.start_us.value if any(program.veus for program in schedule.programs) else 0.0
    for number, program in enumerate(schedule.programs):
        if number > 0:
            now += estimates.program_us
        busy_us = () if number else device.busy_us[: program.veus]
        run = _ProgramRun(number, program, times, tagged, estimates, now, busy_us)
        run.play()
        now = max((time for time, queue in zip(run.times, program.steps, strict=True) if queue), default=now)
        for veu, waited in enumerate(run.waiting):
            waiting[veu] += waited
        spans.extend(span for own in run.spans for span in own)
    return Timeline(spans=tuple(spans), waiting_us=tuple(waiting), total_us=now)


class _Kept:
    """Which weights each vEU keeps."""

    def __init__(self, graph: TaskGraph, choice: Sequence[int], estimates: Estimates) -> None:
        self._fetch_us = [times[pick] for times, pick in zip(estimates.fetch_us, choice, strict=True)]
        self._constants = {
            operator.id: estimates.kept_constant(operator, kernel)
            for operator, kernel, fetch_us in zip(
                graph.operators, kernels_of(graph, choice), self._fetch_us, strict=True
            )
            if fetch_us
        }
        self._keep_us = [estimates.keep_us(kernel) for kernel in kernels_of(graph, choice)]
        self._overhead_us = estimates.overhead_us
        self._at: dict[int, tuple[int, int] | None] = {}
        self._fetched: set[tuple[int, tuple[int, int]]] = set()

    def look_us(self, task: RTask) -> float:
        """What an rTask takes to look at what others made, once its weights are there."""
        return self._overhead_us if task.operator in self._constants else 0.0

    def fetch_us(self, veu: int, task: RTask) -> float:
        """What an rTask that starts on a vEU takes first, before it waits, if its weights are not there."""
        constant = self._constants.get(task.operator)
        before = self._at.get(veu)
        self._at[veu] = now = None if constant is None else (constant, task.tile)
        if now is None or before == now:
            return 0.0
        is_first = (veu, now) not in self._fetched
        self._fetched.add((veu, now))
        return self._fetch_us[task.operator] + (self._keep_us[task.operator] if is_first else 0.0)


class _Code:
    """Which rKernels each vEU has run."""

    def __init__(self, graph: TaskGraph, choice: Sequence[int], estimates: Estimates) -> None:
        self._kernels = kernels_of(graph, choice)
        first = {kernel: number for number, kernel in reversed(list(enumerate(self._kernels)))}
        last = {kernel: number for number, kernel in enumerate(self._kernels)}
        self._fetch_us = {kernel: estimates.code_us(kernel, first[kernel], last[kernel]) for kernel in first}
        self._run: set[tuple[int, RKernel]] = set()

    def fetch_us(self, veu: int, task: RTask) -> float:
        """What an rTask takes longer, since its vEU has not run its code yet."""
        kernel = self._kernels[task.operator]
        if not self._fetch_us[kernel] or (veu, kernel) in self._run:
            return 0.0
        self._run.add((veu, kernel))
        return self._fetch_us[kernel]


class _Caches:
    """What rTasks take longer for results that leave the caches of the vEUs that write them, or are read elsewhere."""

    def __init__(self, graph: TaskGraph, schedule: Schedule, device: VDevice, estimates: Estimates) -> None:
        self._us: dict[tuple[int, int], float] = {}
        if not device.own_cache_bytes:
            return
        picks = list(zip(graph.operators, schedule.choice, strict=True))
        written = Written.of(schedule, [estimates.written_bytes(operator, pick) for operator, pick in picks])
        far_bytes = find_far_bytes(graph, schedule, written, device.own_cache_bytes)
        self._us = {place: estimates.fetched_us(size_bytes) for place, size_bytes in far_bytes.items()}
        leaving_us = [estimates.leaving_us(operator, pick) for operator, pick in picks]
        if any(leaving_us):
            for veu, operator in find_leaving(graph, written, device.own_cache_bytes):
                self._us[veu, operator] = self._us.get((veu, operator), 0.0) + leaving_us[operator]

    def fetch_us(self, veu: int, task: RTask) -> float:
        """What an rTask takes longer on a vEU."""
        return self._us.get((veu, task.operator), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Times:
    """What rTasks take, by rOperator: all in all, before they need what they wait for, and before they look at it.

    Those that take tagged results late begin without them and have `rest_us` still to go when they see them; None is of
    others. `kept` weights and `code` take more time on a vEU that has them not, and so do results, by its `caches`.
    """

    task_us: Sequence[float]
    early_us: Sequence[float]
    held_us: Sequence[float]
    rest_us: Sequence[float | None]
    kept: _Kept
    code: _Code
    caches: _Caches


@dataclass(slots=True, eq=False)
class _Taken:
    """Tagged results that rTasks take together: `left` of them are still to come, and `takers` stand for them."""

    left: int
    takers: list[int]
    arrivals: Arrivals

    def note(self, veu: int, end_us: float) -> None:
        """A maker ends."""
        self.left -= 1
        self.arrivals.note(veu, end_us)


class _ProgramRun:
    """One rProgram, its vEUs always advanced in the order of their clocks.

    So signals come in the order of time, and a Wait ends with the signal that completes its count.
    """

    def __init__(
        self,
        number: int,
        program: RProgram,
        times: _Times,
        tagged: Mapping[RTask, Predecessors],
        estimates: Estimates,
        start_us: float,
        busy_us: Sequence[float],
    ) -> None:
        self._number = number
        self._program = program
        self._times = times
        self._waited = [False] * program.veus
        self._taken: dict[RTask, list[_Taken]] = {}
        self._made: dict[RTask, list[_Taken]] = {}
        self._handovers, self._tagged_handovers = estimates.handovers, estimates.tagged_handovers
        self._note_tagged(tagged)
        self.times = [start_us + busy for busy in busy_us] if busy_us else [start_us] * program.veus
        self._ended = list(self.times)
        self.waiting = [0.0] * program.veus
        self.spans: list[list[Span]] = [[] for _ in range(program.veus)]
        self._positions = [0] * program.veus
        self._signals: list[list[tuple[float, int]]] = [[] for _ in range(program.counter_count)]
        self._arrivals = [Arrivals(self._handovers) for _ in range(program.counter_count)]
        self._waiters: dict[tuple[int, int], list[int]] = {}
        waits = Counter(step.counter for queue in program.steps for step in queue if isinstance(step, Wait))
        self._late_us = {counter: estimates.late_us(count) for counter, count in waits.items()}

    def _note_tagged(self, tagged: Mapping[RTask, Predecessors]) -> None:
        """Find what each rTask takes and makes; what earlier rPrograms made is there."""
        own = {task for _, _, task in self._program.tasks()}
        known: dict[TaskSet, _Taken] = {}
        for task in own & tagged.keys():
            for results in tagged[task]:
                if results not in known:
                    makers = [maker for maker in results.tasks if maker in own]
                    arrivals = Arrivals(self._tagged_handovers)
                    known[results] = _Taken(left=len(makers), takers=[], arrivals=arrivals)
                    for maker in makers:
                        self._made.setdefault(maker, []).append(known[results])
                if known[results].left:
                    self._taken.setdefault(task, []).append(known[results])

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
                taken = self._taken.get(task, ())
                missing = next((results for results in taken if results.left), None)
                if missing is not None:
                    missing.takers.append(veu)
                    return []
                seen = max((results.arrivals.seen_us(veu) for results in taken), default=0.0)
                rest_us, look_us = self._times.rest_us[task.operator], self._times.kept.look_us(task)
                ready = max(self.times[veu], seen - look_us) if rest_us is None else self.times[veu]
                is_held = self._waited[veu] or rest_us is not None
                held_us = self._times.held_us[task.operator] if is_held else 0.0
                held_us += self._times.kept.fetch_us(veu, task)
                start = max(self._ended[veu], ready - self._times.early_us[task.operator] - held_us)
                self.waiting[veu] += start - self._ended[veu]
                brought_us = self._times.code.fetch_us(veu, task) + self._times.caches.fetch_us(veu, task) + look_us
                end = start + held_us + self._times.task_us[task.operator] + brought_us
                end = max(end, seen + rest_us) if taken and rest_us is not None else end
                self._waited[veu] = False
                self.spans[veu].append(Span(program=self._number, veu=veu, task=task, start_us=start, end_us=end))
                self.times[veu] = self._ended[veu] = end
                for results in self._made.get(task, ()):
                    results.note(veu, end)
                    if not results.left:
                        runnable += results.takers
            case Wait(counter, threshold):
                if len(self._signals[counter]) < threshold:
                    self._waiters.setdefault((counter, threshold), []).append(veu)
                    return []
                resumed = max(self.times[veu], self._seen_us(veu, counter, threshold))
                self.times[veu] = resumed
                self._waited[veu] = True
            case Signal(counter):
                signals = self._signals[counter]
                signals.append((self.times[veu], veu))
                self._arrivals[counter].note(veu, self.times[veu])
                runnable += self._waiters.pop((counter, len(signals)), ())
        self._positions[veu] = position + 1
        return runnable

    def _seen_us(self, veu: int, counter: int, threshold: int) -> float:
        """When `threshold` of a counter's signals, which are in the order of time, are seen by a vEU."""
        late_us = self._late_us[counter]
        if 0 < threshold == len(self._signals[counter]):
            return self._arrivals[counter].seen_us(veu, late_us)
        seen = sorted(
            time if giver == veu else time + self._handovers.between_us(giver, veu) + late_us
            for time, giver in self._signals[counter]
        )
        return seen[threshold - 1] if threshold > 0 else 0.0
