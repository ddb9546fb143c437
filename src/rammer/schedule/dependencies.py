"""Tile-level dependencies (DESIGN D5): for each rTask, the rTasks that write what it reads.

An rTask depends on every rTask of an earlier rOperator whose written box overlaps a box that it reads. Boxes are
hulls, so a dependency may be one too many and never one too few. Model inputs and constants have no producer. All
producers through one operand form one `TaskSet`, whichever rOperators they belong to (a concatenation has several),
and rTasks that depend on the same producers share the set: sets become counters (see `builder`).

A state in place is written where it is read, so its writer depends on the earlier rTasks that read what it overwrites,
too. Its own rTasks read what they write and nothing else of it.

What depends on what follows from the regions alone, so it is computed once for all rOperators with equal work on equal
parts of their tensors (the cells of a recurrent layer) and then only named anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from rammer.ir.task import RKernel, ROperator, RTask, TaskGraph, kernels_of
from rammer.schedule.overlaps import distinct_rows, overlaps, overlaps_of_several
from rammer.schedule.regions import Boxes, IntArray, Regions, regions_of


@dataclass(frozen=True, slots=True, eq=False)
class TaskSet:
    """rTasks that others wait for together, ascending. Compared by identity, which makes it a cheap key."""

    tasks: tuple[RTask, ...]


Predecessors = tuple[TaskSet, ...]


@dataclass(frozen=True, slots=True)
class _Producer:
    """An rOperator that writes a part of a tensor: `place` is its position among the rOperator's outputs.

    For the writer of a state in place it is one that reads a part, and its position among the slots.
    """

    operator: int
    place: int
    reads: bool = False


@dataclass(frozen=True, slots=True)
class _Match:
    """Read boxes grouped by their producers: `members[groups[i]]` are pairs (producer's position, its tiles)."""

    groups: tuple[int, ...]
    members: tuple[tuple[tuple[int, tuple[int, ...]], ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """What follows from a task graph and its regions, whatever rKernels are chosen: producers, and matches so far.

    Attributes:
        slots: as `_producers_by_slot` has them.
        readers: as `_readers_by_output` has them.
        matches: by the boxes that are read and those that are written.
    """

    slots: tuple[tuple[tuple[_Producer, ...], ...], ...]
    readers: Mapping[int, tuple[tuple[_Producer, ...], ...]]
    matches: dict[tuple[Boxes, tuple[Boxes, ...]], _Match]


_SHARED: WeakKeyDictionary[Regions, _Shared] = WeakKeyDictionary()


def _shared(graph: TaskGraph, regions: Regions) -> _Shared:
    """The same for all that ask of these regions."""
    if regions not in _SHARED:
        _SHARED[regions] = _Shared(
            slots=_producers_by_slot(graph, regions), readers=_readers_by_output(graph, regions), matches={}
        )
    return _SHARED[regions]


class Dependencies:
    """Dependencies that follow the choice of rKernels, rOperator by rOperator.

    `commit` fixes the rKernel of an rOperator; `predecessors` may then be asked of any rOperator whose `producers`
    are all committed, under any of its rKernels.
    """

    def __init__(self, graph: TaskGraph, regions: Regions) -> None:
        self._graph = graph
        self._regions = regions
        shared = _shared(graph, regions)
        self._slots, self._readers, self._matches = shared.slots, shared.readers, shared.matches
        self._has_tagged = any(tensor.layout.tagged for tensor in graph.tensors)
        self._written: dict[int, tuple[Boxes, ...]] = {}
        self._read: dict[int, tuple[Boxes | None, ...]] = {}
        self._tasks: dict[int, tuple[RTask, ...]] = {}
        self._sets: dict[tuple[tuple[int, tuple[int, ...]], ...], TaskSet] = {}

    def producers(self, operator: int) -> tuple[int, ...]:
        """The rOperators that an rOperator depends on under any choice of rKernels, ascending."""
        groups = (*self._slots[operator], *self._readers.get(operator, ()))
        return tuple(sorted({producer.operator for group in groups for producer in group}))

    def commit(self, operator: int, kernel: RKernel) -> None:
        """Fix the rKernel of an rOperator."""
        written = self._regions.writes(self._graph.operators[operator], kernel)
        self._written[operator] = tuple(region.boxes for region in written)
        if self._readers:
            read = self._regions.reads(self._graph.operators[operator], kernel)
            self._read[operator] = tuple(None if region is None else region.boxes for region in read)
        self._tasks[operator] = tuple(RTask(operator, index) for index in range(kernel.task_count))

    def predecessors(self, operator: ROperator, kernel: RKernel) -> tuple[Predecessors, ...]:
        """Per rTask of the rOperator under `kernel`, the sets of rTasks that it depends on.

        Raises:
            KeyError: a producer is not committed.
        """
        awaited, taken = (self.awaited(operator, kernel, tagged=tagged) for tagged in (False, True))
        return tuple(map(union, awaited, taken))

    def awaited(self, operator: ROperator, kernel: RKernel, *, tagged: bool = False) -> tuple[Predecessors, ...]:
        """Those of `predecessors` that it has to wait for, or those whose results are `tagged` and wait by themselves.

        Raises:
            KeyError: a producer is not committed.
        """
        found: list[Predecessors] = [()] * kernel.task_count
        if tagged and not self._has_tagged:
            return tuple(found)
        accesses = [*zip(self._regions.reads(operator, kernel), self._slots[operator.id], strict=True)]
        if operator.id in self._readers:
            accesses += zip(self._regions.writes(operator, kernel), self._readers[operator.id], strict=True)
        for region, producers in accesses:
            if region is None or not producers or self._graph.tensors[region.tensor].layout.tagged is not tagged:
                continue
            match = self._match(region.boxes, producers)
            sets = [self._set(producers, members) for members in match.members]
            for index, group in enumerate(match.groups):
                producer_set = sets[group]
                if producer_set.tasks and producer_set not in found[index]:
                    found[index] = (*found[index], producer_set)
        return tuple(found)

    def _match(self, reads: Boxes, producers: Sequence[_Producer]) -> _Match:
        writes = tuple(map(self._boxes, producers))
        key = (reads, writes)
        if key not in self._matches:
            self._matches[key] = _match(reads, writes)
        return self._matches[key]

    def _boxes(self, producer: _Producer) -> Boxes:
        """What each rTask of a producer touches."""
        boxes = (self._read if producer.reads else self._written)[producer.operator][producer.place]
        assert boxes is not None
        return boxes

    def _set(self, producers: Sequence[_Producer], members: Sequence[tuple[int, tuple[int, ...]]]) -> TaskSet:
        """The one object for these producers' tiles."""
        tiles: dict[int, tuple[int, ...]] = {}
        for position, own in members:
            operator = producers[position].operator
            tiles[operator] = tuple(sorted({*tiles[operator], *own})) if operator in tiles else own
        key = tuple(sorted(tiles.items()))
        if key not in self._sets:
            tasks = tuple(self._tasks[operator][tile] for operator, own in key for tile in own)
            self._sets[key] = TaskSet(tasks)
        return self._sets[key]


def union(one: Predecessors, other: Predecessors) -> Predecessors:
    """All sets of both, once each."""
    return tuple(dict.fromkeys((*one, *other))) if one and other else one or other


def find_dependencies(graph: TaskGraph, choice: Sequence[int]) -> tuple[tuple[Predecessors, ...], ...]:
    """Per rOperator and rTask, the sets of rTasks that it depends on when rOperator i runs rKernel `choice[i]`."""
    dependencies = Dependencies(graph, regions_of(graph))
    found = []
    for operator, kernel in zip(graph.operators, kernels_of(graph, choice), strict=True):
        found.append(dependencies.predecessors(operator, kernel))
        dependencies.commit(operator.id, kernel)
    return tuple(found)


def find_waves(graph: TaskGraph, producers: Sequence[Sequence[int]]) -> list[list[ROperator]]:
    """The rOperators by their distance from the inputs: the longest path of producers."""
    depths: list[int] = []
    waves: list[list[ROperator]] = []
    for operator in graph.operators:
        depth = max((depths[producer] + 1 for producer in producers[operator.id]), default=0)
        depths.append(depth)
        if depth == len(waves):
            waves.append([])
        waves[depth].append(operator)
    return waves


def find_tagged(graph: TaskGraph, choice: Sequence[int]) -> dict[RTask, Predecessors]:
    """The rTasks whose tagged results each rTask takes, where there are any; `choice` as for `find_dependencies`."""
    found: dict[RTask, Predecessors] = {}
    if not any(tensor.layout.tagged for tensor in graph.tensors):
        return found
    dependencies = Dependencies(graph, regions_of(graph))
    for operator, kernel in zip(graph.operators, kernels_of(graph, choice), strict=True):
        for index, sets in enumerate(dependencies.awaited(operator, kernel, tagged=True)):
            if sets:
                found[RTask(operator.id, index)] = sets
        dependencies.commit(operator.id, kernel)
    return found


def _producers_by_slot(graph: TaskGraph, regions: Regions) -> tuple[tuple[tuple[_Producer, ...], ...], ...]:
    """Per rOperator and slot, the earlier rOperators that write what any of its rTasks reads there.

    Later ones are no producers even where hulls touch: rOperators are in topological order.
    """
    readers: dict[int, list[tuple[int, int, Boxes]]] = {}
    writers: dict[int, list[tuple[_Producer, Boxes]]] = {}
    for operator in graph.operators:
        for slot, read in enumerate(regions.whole_reads(operator)):
            if read is not None and len(read.boxes.lo):
                readers.setdefault(read.tensor, []).append((operator.id, slot, read.boxes))
        for output, written in enumerate(regions.whole_writes(operator)):
            if (written.boxes.lo < written.boxes.hi).all(axis=1).any():
                writers.setdefault(written.tensor, []).append((_Producer(operator.id, output), written.boxes))
    found: list[list[tuple[_Producer, ...]]] = [
        [()] * len(regions.whole_reads(operator)) for operator in graph.operators
    ]
    for tensor, written_by in writers.items():
        read_by = readers.get(tensor, [])
        if read_by:
            met = overlaps(_stacked([boxes for *_, boxes in read_by]), _stacked([boxes for _, boxes in written_by]))
            for (reader, slot, _), group in zip(read_by, met.groups.tolist(), strict=True):
                producers = (written_by[place][0] for place in met.tiles[group])
                found[reader][slot] = tuple(producer for producer in producers if producer.operator < reader)
    return tuple(map(tuple, found))


def _readers_by_output(graph: TaskGraph, regions: Regions) -> dict[int, tuple[tuple[_Producer, ...], ...]]:
    """Per output of each writer of states in place, the earlier rOperators that read what any rTask overwrites."""
    readers: dict[int, list[tuple[_Producer, Boxes]]] = {old: [] for old in graph.updated.values()}
    found: dict[int, tuple[tuple[_Producer, ...], ...]] = {}
    for operator in graph.operators if readers else ():
        if any(binding.tensor in graph.updated for binding in operator.writes):
            found[operator.id] = tuple(
                tuple(
                    reader
                    for reader, boxes in readers.get(graph.updated.get(written.tensor, -1), ())
                    if overlaps(boxes, written.boxes).tiles[0]
                )
                for written in regions.whole_writes(operator)
            )
        for slot, read in enumerate(regions.whole_reads(operator)):
            if read is not None and read.tensor in readers:
                readers[read.tensor].append((_Producer(operator.id, slot, reads=True), read.boxes))
    return found


def _stacked(boxes: Sequence[Boxes]) -> Boxes:
    """The single boxes of whole rOperators, one row each."""
    return Boxes(np.concatenate([each.lo for each in boxes]), np.concatenate([each.hi for each in boxes]))


def _match(reads: Boxes, writes: Sequence[Boxes]) -> _Match:
    if len(writes) > 1 and (together := overlaps_of_several(reads, writes)) is not None:
        starts = np.cumsum([0, *(len(boxes.lo) for boxes in writes)])
        return _Match(tuple(together.groups.tolist()), tuple(_by_writer(tiles, starts) for tiles in together.tiles))
    found = [overlaps(reads, boxes) for boxes in writes]
    if len(found) == 1:
        (one,) = found
        return _Match(tuple(one.groups.tolist()), tuple(((0, tiles),) if tiles else () for tiles in one.tiles))
    rows, place = distinct_rows(np.stack([each.groups for each in found], axis=1))
    members = tuple(
        tuple((position, found[position].tiles[group]) for position, group in enumerate(row)) for row in rows.tolist()
    )
    kept = tuple(tuple((position, tiles) for position, tiles in row if tiles) for row in members)
    return _Match(tuple(place.tolist()), kept)


def _by_writer(rows: Sequence[int], starts: IntArray) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Boxes of several writers, ascending, as each one's own; `starts` is where those of each begin."""
    if len(rows) == 0:
        return ()
    numbers = np.array(rows, dtype=np.int64)
    writers = np.searchsorted(starts, numbers, side="right") - 1
    places, firsts = np.unique(writers, return_index=True)
    parts = np.split(numbers - starts[writers], firsts[1:])
    return tuple((int(place), tuple(part.tolist())) for place, part in zip(places, parts, strict=True))
