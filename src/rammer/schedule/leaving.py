"""What leaves the caches of vEUs before it is read: results that others take elsewhere, or much later.

How much a vEU has written measures the time between: so much of what was written last is in a cache of its own.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph, TensorRole, kernels_of
from rammer.schedule.regions import Boxes, regions_of


@dataclass(frozen=True, slots=True)
class Written:
    """How many bytes each vEU had written before an rOperator's first rTask there, and with its last one.

    `tasks` are how many rTasks of it a vEU runs.
    """

    before: Mapping[int, Mapping[int, int]]
    until: Mapping[int, Mapping[int, int]]
    tasks: Mapping[tuple[int, int], int]

    @staticmethod
    def of(schedule: Schedule, written_bytes: Sequence[int]) -> Written:
        """What a schedule writes, given by rOperator what one rTask writes."""
        before: defaultdict[int, dict[int, int]] = defaultdict(dict)
        until: defaultdict[int, dict[int, int]] = defaultdict(dict)
        written: Counter[int] = Counter()
        tasks: Counter[tuple[int, int]] = Counter()
        for program in schedule.programs:
            for veu, _, task in program.tasks():
                before[veu].setdefault(task.operator, written[veu])
                written[veu] += written_bytes[task.operator]
                until[veu][task.operator] = written[veu]
                tasks[veu, task.operator] += 1
        return Written(before, until, tasks)


def find_leaving(graph: TaskGraph, written: Written, own_cache_bytes: int) -> frozenset[tuple[int, int]]:
    """The vEUs and rOperators whose results leave the vEU's own cache, as pairs.

    They stay where an rOperator that reads them runs on that vEU alone, and begins there before it has written more
    than its cache holds since the first of these results: what others read later is mostly a part of them.

    Args:
        graph: the task graph.
        written: by its schedule.
        own_cache_bytes: so much of what was written on a vEU is in a cache of its own.
    """
    homes: dict[int, set[int]] = {}
    for veu, begins in written.before.items():
        for operator in begins:
            homes.setdefault(operator, set()).add(veu)
    readers: dict[int, set[int]] = {}
    for reader in graph.operators:
        for binding in reader.needs:
            readers.setdefault(graph.root(binding.tensor).id, set()).add(reader.id)

    def stays(veu: int, operator: int) -> bool:
        begins = written.before[veu]
        own = (readers.get(graph.root(binding.tensor).id, ()) for binding in graph.operators[operator].writes)
        return any(
            homes.get(reader) == {veu} and begins[reader] - begins[operator] <= own_cache_bytes
            for reader in itertools.chain.from_iterable(own)
        )

    return frozenset(
        (veu, operator) for veu, begins in written.before.items() for operator in begins if not stays(veu, operator)
    )


def find_far_bytes(
    graph: TaskGraph, schedule: Schedule, written: Written, own_cache_bytes: int
) -> Mapping[tuple[int, int], float]:
    """What an rTask reads of results that its vEU's own cache does not hold, by vEU and rOperator, where it is any.

    It holds what the vEU took part in making, unless what it has written since, with what the rOperator reads there,
    is more. Of what several rOperators made, each counts alike.

    Args:
        graph: the task graph.
        schedule: what runs where.
        written: by that.
        own_cache_bytes: so much of what was written on a vEU is in a cache of its own.
    """
    regions, kernels = regions_of(graph), kernels_of(graph, schedule.choice)
    makers: dict[int, list[int]] = {}
    for operator in graph.operators:
        for binding in operator.writes:
            makers.setdefault(graph.root(binding.tensor).id, []).append(operator.id)
    reads = [
        [
            (region.tensor, _mean_size(region.boxes) * graph.tensors[region.tensor].element_bytes)
            for region in regions.reads(operator, kernel)
            if region is not None and graph.tensors[region.tensor].role is TensorRole.INTERMEDIATE
        ]
        for operator, kernel in zip(graph.operators, kernels, strict=True)
    ]
    far_bytes: dict[tuple[int, int], float] = {}
    for (veu, reader), count in written.tasks.items():
        begin, until = written.before[veu][reader], written.until[veu]
        total = 0.0
        for tensor, task_bytes in reads[reader]:
            room_bytes = own_cache_bytes - task_bytes * count
            near = sum(maker in until and begin - until[maker] <= room_bytes for maker in makers[tensor])
            total += task_bytes * (1 - near / len(makers[tensor]))
        if total:
            far_bytes[veu, reader] = total
    return far_bytes


@lru_cache(maxsize=4096)
def _mean_size(boxes: Boxes) -> float:
    """Elements of a box, in the mean."""
    return float((boxes.hi - boxes.lo).prod(axis=1).mean()) if len(boxes.lo) else 0.0
