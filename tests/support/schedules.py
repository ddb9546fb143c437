"""Random legal runs of schedules, and strategies for what scheduling is tested with."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from hypothesis import strategies as st

from rammer.ir.program import Execute, RProgram, Schedule, Signal, Wait
from rammer.ir.region import Box, boxes_overlap
from rammer.ir.task import Access, RTask, TaskGraph, kernels_of
from tests.support.taskgraphs import TileCosts, random_task_graph

seeds = st.integers(0, 2**32 - 1)
randoms = seeds.map(random.Random)
task_graphs = st.builds(random_task_graph, randoms, st.integers(1, 12))
costs = st.builds(TileCosts, fixed_us=st.sampled_from([0.0, 0.1, 1.0]), element_us=st.sampled_from([0.01, 0.2, 1.0]))


class DeadlockError(Exception):
    """No vEU can go on."""


def random_run(schedule: Schedule, generator: random.Random) -> Iterator[tuple[str, RTask]]:
    """("start" | "end", rTask) in the order of one legal run; vEUs advance at random speeds, some far ahead."""
    for program in schedule.programs:
        yield from _run(program, generator)


def _run(program: RProgram, generator: random.Random) -> Iterator[tuple[str, RTask]]:
    speeds = [generator.choice([1, 1, 8, 64]) for _ in program.steps]
    positions = [0] * program.veus
    started = [False] * program.veus
    counts = [0] * program.counter_count
    while True:
        able = []
        for veu, (queue, position) in enumerate(zip(program.steps, positions, strict=True)):
            step = queue[position] if position < len(queue) else None
            if step is not None and not (isinstance(step, Wait) and counts[step.counter] < step.threshold):
                able.append(veu)
        if not able:
            break
        (veu,) = generator.choices(able, [speeds[veu] for veu in able])
        match program.steps[veu][positions[veu]]:
            case Execute(task):
                yield ("end" if started[veu] else "start"), task
                started[veu] = not started[veu]
            case Signal(counter):
                counts[counter] += 1
        positions[veu] += not started[veu]
    if any(position < len(queue) for queue, position in zip(program.steps, positions, strict=True)):
        raise DeadlockError(str(positions))


def all_pairs_dependencies(graph: TaskGraph, choice: tuple[int, ...]) -> dict[RTask, set[RTask]]:
    """For each rTask the rTasks of earlier rOperators whose written boxes meet its read boxes, by trying all pairs."""
    writes: dict[int, list[tuple[RTask, Box]]] = {}
    found: dict[RTask, set[RTask]] = {}
    for operator, kernel in zip(graph.operators, kernels_of(graph, choice), strict=True):
        own: list[tuple[RTask, Access]] = []
        for index in range(kernel.task_count):
            task = RTask(operator.id, index)
            reads, written = graph.accesses(operator, kernel, index)
            found[task] = {
                producer
                for access in reads
                for producer, box in writes.get(access.tensor, ())
                if boxes_overlap(access.box, box)
            }
            own.extend((task, access) for access in written)
        for task, access in own:
            writes.setdefault(access.tensor, []).append((task, access.box))
    return found


def choices(graph: TaskGraph, limit: int = 4) -> list[tuple[int, ...]]:
    """Some choices of rKernels: the first, the last, and mixtures."""
    counts = [len(operator.kernels) for operator in graph.operators]
    mixed = (tuple((place + shift) % count for place, count in enumerate(counts)) for shift in itertools.count())
    return [tuple(0 for _ in counts), tuple(count - 1 for count in counts), *itertools.islice(mixed, limit - 2)]
