"""Epochs: parts of a graph that follow each other, and schedules put together from parts of others.

Astra's super-epochs (Sivathanu et al., ASPLOS 2019): with a barrier at its end, what an epoch takes depends on its own
schedule alone, so that epochs can be explored side by side. Here an epoch is an rProgram. Without the barriers the
same parts make one rProgram, with Waits between tiles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence

from rammer.ir.program import RProgram, Schedule
from rammer.ir.task import RTask, TaskGraph
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.dependencies import Dependencies, Predecessors, find_dependencies
from rammer.schedule.endings import Dag, blocks, members
from rammer.schedule.estimates import Estimates
from rammer.schedule.regions import Regions

Epoch = tuple[int, ...]
"""rOperators, ascending; none of them reads what a later epoch writes."""


def find_epochs(graph: TaskGraph, estimates: Estimates, veus: int, least_us: float) -> tuple[Epoch, ...]:
    """The graph cut at rOperators that all others precede or follow.

    Args:
        graph: the rOperators.
        estimates: what rKernels cost.
        veus: execution units that share the work.
        least_us: neighbouring parts are one epoch until all units together have work for so long.
    """
    dependencies = Dependencies(graph, Regions(graph))
    dag = Dag.of([dependencies.producers(operator.id) for operator in graph.operators])
    found: list[Epoch] = []
    own: list[int] = []
    left_us = least_us * veus
    for block in blocks(dag):
        own += members(block)
        left_us -= sum(_work_us(graph, estimates, number) for number in members(block))
        if left_us <= 0:
            found.append(tuple(sorted(own)))
            own, left_us = [], least_us * veus
    if own or not found:
        last = found.pop() if found else ()
        found.append(tuple(sorted((*last, *own))))
    return tuple(found)


def _work_us(graph: TaskGraph, estimates: Estimates, number: int) -> float:
    operator = graph.operators[number]
    return estimates.work_us(operator, estimates.best_kernel(operator, 1))


def find_classes(graph: TaskGraph, epochs: Sequence[Epoch]) -> tuple[tuple[int, ...], ...]:
    """Epochs, by number, that have equal rOperators in equal order, reading each other alike."""
    dependencies = Dependencies(graph, Regions(graph))
    classes: dict[object, list[int]] = {}
    for number, epoch in enumerate(epochs):
        place = {operator: index for index, operator in enumerate(epoch)}
        key = tuple(
            (
                graph.operators[operator].kernels,
                tuple(place[one] for one in dependencies.producers(operator) if one in place),
            )
            for operator in epoch
        )
        classes.setdefault(key, []).append(number)
    return tuple(map(tuple, classes.values()))


def compose(
    graph: TaskGraph, epochs: Sequence[Epoch], parts: Sequence[Schedule], veus: int, *, barriers: bool
) -> Schedule:
    """One schedule: each epoch with the rKernels, the vEUs and the order that one of several schedules has for it.

    Args:
        graph: the rOperators.
        epochs: of the graph.
        parts: a schedule of the whole graph for each epoch.
        veus: execution units.
        barriers: whether each epoch is an rProgram, or all are one.
    """
    choice = [0] * len(graph.operators)
    for epoch, part in zip(epochs, parts, strict=True):
        for operator in epoch:
            choice[operator] = part.choice[operator]
    dependencies = find_dependencies(graph, choice)
    programs: list[RProgram] = []
    builder = ProgramBuilder(veus)
    for number, (epoch, part) in enumerate(zip(epochs, parts, strict=True)):
        if barriers and number:
            programs.append(builder.build())
            builder = ProgramBuilder(veus, after=builder)
        for task, veu in _in_order(part, set(epoch), dependencies):
            builder.wait(task, dependencies[task.operator][task.tile])
            builder.append(task, veu)
    return Schedule(policy=parts[0].policy, choice=tuple(choice), programs=(*programs, builder.build()))


def _in_order(
    schedule: Schedule, operators: Collection[int], dependencies: Sequence[Sequence[Predecessors]]
) -> Iterator[tuple[RTask, int]]:
    """The rTasks of some rOperators with their vEUs: on each in its order, and behind what they depend on."""
    queues: list[deque[RTask]] = []
    for program in schedule.programs:
        queues += [deque() for _ in range(program.veus - len(queues))]
        for veu, _, task in program.tasks():
            if task.operator in operators:
                queues[veu].append(task)
    left = {task for queue in queues for task in queue}
    while left:
        for veu, queue in enumerate(queues):
            while queue and not _waits(queue[0], left, dependencies):
                left.discard(queue[0])
                yield queue.popleft(), veu


def _waits(task: RTask, left: Collection[RTask], dependencies: Sequence[Sequence[Predecessors]]) -> bool:
    return any(maker in left for makers in dependencies[task.operator][task.tile] for maker in makers.tasks)
