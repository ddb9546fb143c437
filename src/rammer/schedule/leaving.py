"""What leaves the caches of vEUs before it is read: results that others take elsewhere, or much later."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence

from rammer.ir.program import Schedule
from rammer.ir.task import TaskGraph


def find_leaving(
    graph: TaskGraph, schedule: Schedule, written_bytes: Sequence[int], own_cache_bytes: int
) -> frozenset[tuple[int, int]]:
    """The vEUs and rOperators whose results leave the vEU's own cache, as pairs.

    They stay where an rOperator that reads them runs on that vEU alone, and begins there before it has written more
    than its cache holds since the first of these results: what others read later is mostly a part of them.

    Args:
        graph: the task graph.
        schedule: what runs where.
        written_bytes: by rOperator, what one rTask writes.
        own_cache_bytes: so much of what was written on a vEU is in a cache of its own.
    """
    begins_bytes: defaultdict[int, dict[int, int]] = defaultdict(dict)
    written: Counter[int] = Counter()
    for program in schedule.programs:
        for veu, _, task in program.tasks():
            begins_bytes[veu].setdefault(task.operator, written[veu])
            written[veu] += written_bytes[task.operator]
    homes: dict[int, set[int]] = {}
    for veu, begins in begins_bytes.items():
        for operator in begins:
            homes.setdefault(operator, set()).add(veu)
    readers: dict[int, set[int]] = {}
    for reader in graph.operators:
        for binding in reader.needs:
            readers.setdefault(graph.root(binding.tensor).id, set()).add(reader.id)

    def stays(veu: int, operator: int) -> bool:
        begins = begins_bytes[veu]
        own = (readers.get(graph.root(binding.tensor).id, ()) for binding in graph.operators[operator].writes)
        return any(
            homes.get(reader) == {veu} and begins[reader] - begins[operator] <= own_cache_bytes
            for reader in itertools.chain.from_iterable(own)
        )

    return frozenset(
        (veu, operator) for veu, begins in begins_bytes.items() for operator in begins if not stays(veu, operator)
    )
