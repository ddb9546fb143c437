"""Runs any plan in NumPy, one event at a time, in any order that the schedule allows.

An rTask is two events: it reads and computes while its results hold nothing of use, then it stores them. One that is
skipped, for its predicate does not hold, is a single event, and leaves them with nothing of use. What the vEUs do in
between is up to the picker, so a missing Wait gives wrong results under some picker, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from rammer.devices.base import Trace
from rammer.devices.reference.memory import Memory, place_constants
from rammer.devices.reference.pickers import Picker
from rammer.errors import RunTimeoutError
from rammer.ir.evaluate import evaluate_tile
from rammer.ir.expr import Axis, TensorExpr, const
from rammer.ir.graph import Array
from rammer.ir.program import Execute, Plan, RProgram, Signal, Wait
from rammer.ir.region import Interval
from rammer.ir.task import RTask

_EVENT_NS = 1000
_Stores = list[tuple[tuple[Array, ...], Array]]


class Interpreter:
    """A plan, ready to run. Runs share nothing but constants, so they may overlap."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._kernels = plan.kernels
        self._constants = place_constants(plan)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array], picker: Picker) -> Trace:
        """Run once; an event takes a microsecond in the trace.

        Args:
            inputs: C-contiguous arrays of the graph's input types, in order.
            outputs: C-contiguous arrays of the graph's output types, in order, to be filled.
            picker: chooses the vEU that goes on.

        Raises:
            RunTimeoutError: every vEU that is not done waits for a signal that cannot come.
        """
        memory = Memory(self._plan, self._constants, inputs, outputs)
        now, spans = 0, []
        for number, program in enumerate(self._plan.schedule.programs):
            run = _ProgramRun(self, memory, number, program, now)
            now = run.to_end(picker)
            spans.append(tuple(own * _EVENT_NS for own in run.spans))
        return Trace(spans_ns=tuple(spans))

    def has_tagged(self, memory: Memory, task: RTask) -> bool:
        """Whether all tagged elements that an rTask reads are written."""
        operator, tensors = self._plan.graph.operators[task.operator], self._plan.graph.tensors
        if not any(tensors[binding.tensor].layout.tagged for binding in operator.reads):
            return True
        reads, _ = self._plan.graph.accesses(operator, self._kernels[task.operator], task.tile)
        return all(memory.is_written(access) for access in reads if tensors[access.tensor].layout.tagged)

    def compute(self, memory: Memory, task: RTask) -> _Stores | None:
        """What an rTask will store, from what is in memory now; until it does, there is poison.

        None where its predicate does not hold: the poison stays.
        """
        operator, kernel = self._plan.graph.operators[task.operator], self._kernels[task.operator]
        runs = operator.predicate is None or memory.holds(operator.predicate)
        slots = [memory.window(*slot) for slot in zip(operator.reads, kernel.expr.inputs, strict=True)] if runs else ()
        stores = self.evaluate(kernel.expr if runs else _places(kernel.expr), slots, kernel.tile_ranges(task.tile))
        for binding, (index, _) in zip(operator.writes, stores, strict=True):
            memory.store(binding, index, None)
        return stores if runs else None

    def evaluate(self, expr: TensorExpr, slots: Sequence[Array], ranges: Mapping[Axis, Interval]) -> _Stores:
        """What a tile of an expression stores."""
        return evaluate_tile(expr, slots, ranges)

    def store(self, memory: Memory, task: RTask, stores: _Stores) -> None:
        """Store an rTask's results, none where it was skipped."""
        writes = self._plan.graph.operators[task.operator].writes if stores else ()
        for binding, (index, values) in zip(writes, stores, strict=True):
            memory.store(binding, index, values)


@lru_cache(maxsize=256)
def _places(expr: TensorExpr) -> TensorExpr:
    """An expression that stores where another one does, and reads nothing."""
    outputs = tuple(replace(output, body=const(0, output.type.dtype)) for output in expr.outputs)
    return TensorExpr(axes=expr.axes, inputs=(), outputs=outputs)


class _ProgramRun:
    """The state of one rProgram: `spans[veu][step]` are the first and last events' times, in events."""

    def __init__(self, interpreter: Interpreter, memory: Memory, number: int, program: RProgram, now: int) -> None:
        self._interpreter = interpreter
        self._memory = memory
        self._number = number
        self._steps = program.steps
        self._counters = [0] * program.counter_count
        self._next = [0] * program.veus
        self._progress = [0] * program.veus
        self._pending: dict[int, _Stores] = {}
        self._now = now
        self.spans = [np.full((len(queue), 2), now, dtype=np.int64) for queue in program.steps]

    def to_end(self, picker: Picker) -> int:
        """Let events happen until all steps are done; returns the time."""
        while True:
            left = [veu for veu, queue in enumerate(self._steps) if self._next[veu] < len(queue)]
            if not left:
                return self._now
            enabled = [veu for veu in left if self._is_enabled(veu)]
            if not enabled:
                raise self._deadlock(left)
            self._advance(picker.pick(enabled, self._progress))

    def _is_enabled(self, veu: int) -> bool:
        step = self._steps[veu][self._next[veu]]
        if isinstance(step, Execute):
            return veu in self._pending or self._interpreter.has_tagged(self._memory, step.task)
        return not isinstance(step, Wait) or self._counters[step.counter] >= step.threshold

    def _advance(self, veu: int) -> None:
        """One event of a vEU."""
        place = self._next[veu]
        step = self._steps[veu][place]
        begins = veu not in self._pending
        if begins and not isinstance(step, Wait):
            self.spans[veu][place, 0] = self._now
        self._now += 1
        self._progress[veu] += 1
        if isinstance(step, Execute):
            stores = self._interpreter.compute(self._memory, step.task) if begins else None
            if stores is not None:
                self._pending[veu] = stores
                return
            if not begins:
                self._interpreter.store(self._memory, step.task, self._pending.pop(veu))
        elif isinstance(step, Signal):
            self._counters[step.counter] += 1
        self.spans[veu][place, 1] = self._now
        # A Wait lasts from when its vEU gets there.
        self.spans[veu][place + 1 : place + 2, 0] = self._now
        self._next[veu] += 1

    def _deadlock(self, stuck: Sequence[int]) -> RunTimeoutError:
        lines = []
        for veu in stuck:
            queue, place = self._steps[veu], self._next[veu]
            task = next((step.task for step in queue[place:] if isinstance(step, Execute)), None)
            before = "" if task is None else f" before rTask {task.tile} of rOperator {task.operator}"
            lines.append(f"vEU {veu} at step {place} ({queue[place]}){before}")
        counters = ", ".join(map(str, self._counters))
        return RunTimeoutError(
            f"rProgram {self._number} cannot go on; counters are [{counters}]: {'; '.join(lines)}",
            hint="this is a defect of Rammer; please report it with the model",
        )
