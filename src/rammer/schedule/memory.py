"""The memory plan: intermediate tensors share an arena where the schedule keeps their lives apart.

Rule: a tensor may take another's bytes only if every access to the other happens before every one of its own writes,
in the order that the schedule guarantees (`happens_before`): so no extra Wait is ever needed for reuse. Whole root
tensors are placed; every rTask of an rOperator that is bound to a tensor, through an alias or not, counts as access.
Tagged tensors share with none. Each memory has an arena of its own; a tensor lies in the one that is home to most of
the rTasks that write it.

With vector clocks that is a comparison of two rows per pair: the *death* of a tensor is the step after its last
access on each vEU, its *birth* how many steps of each vEU have surely ended before any of its writers starts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.ir.program import MemoryPlan, Schedule
from rammer.ir.task import ROperator, RTask, TaskGraph, TensorRole, kernels_of
from rammer.schedule.happens_before import Clock, HappensBefore

_NEVER = np.iinfo(np.int32).max


def plan(graph: TaskGraph, schedule: Schedule, alignment_bytes: int, homes: Sequence[int] = ()) -> MemoryPlan:
    """Memories and offsets of all intermediate root tensors, largest first into the tightest gap.

    Args:
        graph: the task graph.
        schedule: holds every rTask of the chosen rKernels once.
        alignment_bytes: every offset is a multiple of it.
        homes: the memory of each vEU; of those that are not there, 0.

    Raises:
        ValueError: the schedule deadlocks.
        KeyError: the schedule lacks an rTask.
    """
    ids = [tensor.id for tensor in graph.tensors if tensor.role is TensorRole.INTERMEDIATE and tensor.alias_of is None]
    sizes = [-(-graph.tensors[tensor].nbytes // alignment_bytes) * alignment_bytes for tensor in ids]
    memories = _memories(graph, schedule, ids, homes)
    lives = _lives(graph, schedule, ids)
    arenas = [_Arena(memories.count(memory), len(lives.births)) for memory in range(1 + max(homes, default=0))]
    offsets = [0] * len(ids)
    for row in sorted(range(len(ids)), key=lambda row: (-sizes[row], row)):
        if sizes[row] > 0:
            offsets[row] = arenas[memories[row]].place(sizes[row], lives.births[:, row], lives.deaths[:, row])
    return MemoryPlan(
        offsets_bytes=dict(zip(ids, offsets, strict=True)),
        arenas_bytes=tuple(arena.size_bytes for arena in arenas),
        alignment_bytes=alignment_bytes,
        memories={tensor: memory for tensor, memory in zip(ids, memories, strict=True) if memory},
    )


def _memories(graph: TaskGraph, schedule: Schedule, ids: list[int], homes: Sequence[int]) -> list[int]:
    """The memory that is home to most writers of each tensor, the first of equals; 0 where nobody writes it."""
    if not any(homes):
        return [0] * len(ids)
    written = [{graph.root(binding.tensor).id for binding in operator.writes} for operator in graph.operators]
    writers: dict[int, Counter[int]] = {tensor: Counter() for tensor in ids}
    for program in schedule.programs:
        for veu, _, task in program.tasks():
            for tensor in written[task.operator] & writers.keys():
                writers[tensor][homes[veu]] += 1
    return [min(counts, key=lambda home: (-counts[home], home), default=0) for counts in writers.values()]


@dataclass(frozen=True, slots=True)
class _Lives:
    """Per vEU (row) and tensor (column), its birth and death as steps of that vEU."""

    births: Clock
    deaths: Clock


def _lives(graph: TaskGraph, schedule: Schedule, ids: list[int]) -> _Lives:
    order = HappensBefore(schedule)
    columns = {tensor: column for column, tensor in enumerate(ids)}
    births = np.full((order.veus, len(ids)), _NEVER - 1, dtype=np.int32)
    deaths = np.zeros((order.veus, len(ids)), dtype=np.int32)
    for operator, kernel in zip(graph.operators, kernels_of(graph, schedule.choice), strict=True):
        written = _columns(graph, operator, columns, reads=False)
        touched = sorted({*written, *_columns(graph, operator, columns, reads=True)})
        if not touched:
            continue
        for index in range(kernel.task_count):
            veu, step = order.places[RTask(operator.id, index)]
            deaths[veu, touched] = np.maximum(deaths[veu, touched], step + 1)
            if written:
                births[:, written] = np.minimum(births[:, written], order.clock(veu, step)[:, None])
    # Readers of a tagged tensor come at any time, and its tags have to stay until the next run.
    tagged = [column for column, tensor in enumerate(ids) if graph.tensors[tensor].layout.tagged]
    births[:, tagged], deaths[:, tagged] = -1, _NEVER
    return _Lives(births, deaths)


def _columns(graph: TaskGraph, operator: ROperator, columns: dict[int, int], *, reads: bool) -> list[int]:
    """The columns of the tensors that an rOperator touches, or of those that it writes."""
    bindings = operator.bindings if reads else operator.writes
    roots = {graph.root(binding.tensor).id for binding in bindings}
    return sorted(columns[root] for root in roots if root in columns)


class _Arena:
    """Tensors of a memory, placed one after another; no two share bytes unless one's death comes before one's birth."""

    def __init__(self, tensors: int, veus: int) -> None:
        self._births = np.empty((veus, tensors), dtype=np.int32)
        self._deaths = np.empty((veus, tensors), dtype=np.int32)
        self._starts = np.empty(tensors, dtype=np.int64)
        self._ends = np.empty(tensors, dtype=np.int64)
        self._placed = 0

    @property
    def size_bytes(self) -> int:
        """Where the last tensor ends."""
        return int(self._ends[: self._placed].max(initial=0))

    def place(self, size: int, birth: Clock, death: Clock) -> int:
        """Where the next tensor starts: in the tightest gap that holds it."""
        placed = slice(0, self._placed)
        after = (self._deaths[:, placed] <= birth[:, None]).all(axis=0)
        before = (death[:, None] <= self._births[:, placed]).all(axis=0)
        taken = np.flatnonzero(~(after | before))
        start = _tightest(self._starts[taken], self._ends[taken], size)
        self._births[:, self._placed], self._deaths[:, self._placed] = birth, death
        self._starts[self._placed], self._ends[self._placed] = start, start + size
        self._placed += 1
        return start


def _tightest(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], size: int) -> int:
    """The start of the smallest gap of at least `size` between some intervals, or else of the room above them."""
    if len(starts) == 0:
        return 0
    order = np.argsort(starts, kind="stable")
    below = np.concatenate([[0], np.maximum.accumulate(ends[order])])
    gaps = starts[order] - below[:-1]
    fitting = np.where(gaps >= size, gaps, math.inf)
    best = int(np.argmin(fitting))
    return int(below[best] if fitting[best] < math.inf else below[-1])
