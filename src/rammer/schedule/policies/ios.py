"""The policy `ios`: stages found by dynamic programming (Ding et al., IOS, MLSys 2021), as rTasks and Waits.

A schedule is a list of *stages* with a barrier between. The operators of a stage form groups that do not depend on each
other; groups run side by side, each on vEUs of its own, and the operators of a group one after another. The dynamic
program tries every ending of every set of operators that is left (`schedule.endings`), so it finds the best stages
within the pruning's bounds. Interchangeable branches count once, equal blocks of the graph are solved once, and blocks
of more than 32 operators are cut where fewest operators start.

A stage of operators that could be one may also be that one (`Merges`), if that is quicker. Since merging changes the
graph, this is for the compiler, which asks for stages, merges and has the policy schedule what there is then
(`rammer.pipelines.merging`).

A stage costs the time of its slowest group under the best division of the vEUs, by the costs of the rKernels, plus a
barrier. `schedule` keeps the stages' barriers, as IOS does; `schedule_by_tiles` drops them for Waits between tiles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import is_
from typing import NamedTuple

from rammer.ir.program import Schedule
from rammer.ir.task import RTask, TaskGraph
from rammer.ir.vdevice import CostModel, VDevice
from rammer.schedule.builder import ProgramBuilder
from rammer.schedule.dependencies import Dependencies
from rammer.schedule.endings import Branches, Dag, Pruning, Set, blocks, endings, members, split
from rammer.schedule.estimates import Estimates
from rammer.schedule.group_times import Group, GroupTimes
from rammer.schedule.regions import Regions

_MOST_TRANSITIONS = 200_000
_PAPER = Pruning(group=3, groups=8)
_SMALL = 12  # operators of blocks that are solved together
_LARGE = 32  # and of blocks that are cut between levels


class Sibling(NamedTuple):
    """The class of rOperators that could be one with an rOperator, and its place there, where order counts."""

    siblings: Hashable
    place: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merges:
    """Which rOperators could be one.

    Attributes:
        kinds: of the rOperators that could be one with others.
        time_us: the time of a stage of some rOperators as one; None where they cannot be one.
    """

    kinds: Mapping[int, Sibling]
    time_us: Callable[[tuple[int, ...]], float | None]


NO_MERGES = Merges(kinds={}, time_us=lambda _: None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """What the dynamic program found.

    Attributes:
        stages: in order, each its groups.
        merged: rOperators that are one in their stage, which is of one group then.
        total_us: their time, with a barrier after each.
        states: sets of operators that were solved.
        transitions: endings that were tried.
        greedy: blocks with more transitions than the limit, where each stage takes all operators that are ready.
    """

    stages: tuple[tuple[Group, ...], ...]
    merged: tuple[tuple[int, ...], ...]
    total_us: float
    states: int
    transitions: int
    greedy: int


def schedule(graph: TaskGraph, device: VDevice, costs: CostModel, *, barriers: bool = True) -> Schedule:
    """The best stages, with a barrier after each."""
    estimates, found = _searched(_Same((graph, device, costs)))
    dependencies, builder = Dependencies(graph, Regions(graph)), ProgramBuilder(device.veu_count)
    choice = [0] * len(graph.operators)
    for stage in found.stages:
        for group in stage:
            for number in group.operators:
                operator = graph.operators[number]
                choice[number] = pick = estimates.best_kernel(operator, group.veus)
                kernel = operator.kernels[pick]
                dependencies.commit(number, kernel)
                for tile, awaited in enumerate(dependencies.awaited(operator, kernel)):
                    builder.wait(RTask(number, tile), awaited)
                    builder.append(RTask(number, tile), group.first + tile % group.veus)
        if barriers:
            builder.barrier()
    name = "ios" if barriers else "ios-tiles"
    return Schedule(policy=name, choice=tuple(choice), programs=(builder.build(),))


schedule_by_tiles = partial(schedule, barriers=False)
"""The same stages on the same vEUs, each rTask waiting for the tiles that it reads instead of for a whole stage."""


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A graph, a device and costs, equal to the very same ones; to compare what is in them would take too long."""

    parts: tuple[TaskGraph, VDevice, CostModel]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and all(map(is_, self.parts, other.parts))

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.parts)))


@lru_cache(maxsize=1)
def _searched(same: _Same) -> tuple[Estimates, Stages]:
    """The stages, which the policies with barriers and without have in common."""
    graph, device, costs = same.parts
    estimates = Estimates(graph, device, costs)
    return estimates, find_stages(graph, device.veu_count, estimates)


def find_stages(
    graph: TaskGraph,
    veus: int,
    estimates: Estimates,
    pruning: Pruning = _PAPER,
    most_transitions: int = _MOST_TRANSITIONS,
    merges: Merges = NO_MERGES,
) -> Stages:
    """The stages that end first, block by block.

    Args:
        graph: the rOperators.
        veus: execution units.
        estimates: what rKernels and barriers cost.
        pruning: of endings.
        most_transitions: endings of a block that are tried before its stages are chosen greedily.
        merges: which rOperators could be one.
    """
    dependencies = Dependencies(graph, Regions(graph))
    dag = Dag.of([dependencies.producers(operator.id) for operator in graph.operators])
    times = GroupTimes(graph, veus, estimates)
    solved: dict[object, _Solution] = {}
    stages: list[tuple[Group, ...]] = []
    merged: list[tuple[int, ...]] = []
    found: list[_Solution] = []
    parts = itertools.chain.from_iterable(split(dag, block, _LARGE) for block in blocks(dag))
    for block in _joined(parts):
        numbers = tuple(members(block))
        own = _within(dag, numbers)
        key = (own, tuple(times.work(number) for number in numbers), _alike(numbers, merges))
        if key not in solved:
            solved[key] = _solve(own, numbers, times, merges, pruning, most_transitions)
        found.append(solved[key])
        for stage in solved[key].stages:
            groups = [tuple(numbers[i] for i in members(group)) for group in stage.groups]
            if stage.is_merged:
                merged.append(tuple(number for group in groups for number in group))
                stages.append((Group(operators=merged[-1], first=0, veus=veus),))
            else:
                stages.append(times.stage(groups).groups)
    return Stages(
        stages=tuple(stages),
        merged=tuple(merged),
        total_us=sum(solution.total_us for solution in found),
        states=sum(solution.states for solution in solved.values()),
        transitions=sum(solution.transitions for solution in solved.values()),
        greedy=sum(solution.states == 0 for solution in found),
    )


def _joined(cut: Iterable[Set]) -> Iterator[Set]:
    """Neighbouring blocks that are small together, as one: a stage may then reach across the cut between them."""
    joined = 0
    for block in cut:
        if joined and (joined | block).bit_count() > _SMALL:
            yield joined
            joined = 0
        joined |= block
    if joined:
        yield joined


def _alike(numbers: Sequence[int], merges: Merges) -> tuple[tuple[int, int | None] | None, ...]:
    """Equal for rOperators of which the same could be one: for each its class, by first appearance, and its place."""
    classes: dict[Hashable, int] = {}
    found: list[tuple[int, int | None] | None] = []
    for number in numbers:
        kind = merges.kinds.get(number)
        found.append(None if kind is None else (classes.setdefault(kind.siblings, len(classes)), kind.place))
    return tuple(found)


def _within(dag: Dag, numbers: Sequence[int]) -> Dag:
    """The graph of some operators alone, numbered anew."""
    place = {number: index for index, number in enumerate(numbers)}
    return Dag.of([[place[source] for source in members(dag.producers[n]) if source in place] for n in numbers])


class _Stage(NamedTuple):
    """Groups as sets of a block's own numbers, and whether they are one operator."""

    groups: tuple[Set, ...]
    is_merged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solution:
    """The stages of a block; no `states` where it is greedy."""

    stages: tuple[_Stage, ...]
    total_us: float
    states: int
    transitions: int


@dataclass(frozen=True, slots=True)
class _Best:
    """The best known way to what is left over: its time, and the ending that led there from another state."""

    total_us: float
    before: Set
    ending: _Stage


def _solve(
    dag: Dag, numbers: Sequence[int], times: GroupTimes, merges: Merges, pruning: Pruning, most_transitions: int
) -> _Solution:
    """The dynamic program over one block: from all operators to none, larger states first."""
    branches = Branches(dag, [(times.work(number), merges.kinds.get(number)) for number in numbers])
    kind = cache(lambda part: times.kind(tuple(numbers[i] for i in members(part))))
    merged_us = cache(lambda ending: _merged_us(ending, numbers, merges))
    transitions = _transitions(dag, branches, pruning, most_transitions)
    if transitions is None:
        return _greedy(dag, numbers, times)
    best = {dag.everything: _Best(0.0, 0, _Stage((), False))}
    for state, ending, left in transitions:
        beside_us, as_one_us = times.stage_us(map(kind, ending)), merged_us(ending)
        total_us = best[state].total_us + min(beside_us, as_one_us)
        if left not in best or total_us < best[left].total_us:
            best[left] = _Best(total_us, state, _Stage(ending, as_one_us < beside_us))
    return _Solution(
        stages=_walked(dag, branches, best),
        total_us=best[0].total_us,
        states=len(best) - 1,
        transitions=len(transitions),
    )


def _transitions(
    dag: Dag, branches: Branches, pruning: Pruning, most: int
) -> list[tuple[Set, tuple[Set, ...], Set]] | None:
    """States, larger ones first, each with an ending and the state that it leaves; None if there are more than `most`.

    They do not depend on times, which take longer to find, and which nobody needs where there are too many of them.
    """
    canonical = cache(branches.canonical)
    found: list[tuple[Set, tuple[Set, ...], Set]] = []
    waiting: list[set[Set]] = [set() for _ in range(dag.everything.bit_count() + 1)]
    waiting[-1].add(dag.everything)
    for size in range(len(waiting) - 1, 0, -1):
        for state in sorted(waiting[size]):
            for ending in endings(dag, state, pruning):
                if len(found) == most:
                    return None
                left = canonical(state & ~sum(ending))
                found.append((state, ending, left))
                waiting[left.bit_count()].add(left)
    return found


def _merged_us(ending: Sequence[Set], numbers: Sequence[int], merges: Merges) -> float:
    """The time of a stage of one operator, which is all those of an ending; infinite where they cannot be one."""
    if len(ending) < 2 or any(group.bit_count() > 1 for group in ending):
        return math.inf
    found = merges.time_us(tuple(numbers[i] for group in ending for i in members(group)))
    return math.inf if found is None else found


def _walked(dag: Dag, branches: Branches, best: Mapping[Set, _Best]) -> tuple[_Stage, ...]:
    """The stages in order: the endings of the best way, the last of which comes first, by the operators' own names."""
    way, state = [], 0
    while state != dag.everything:
        way.append(best[state])
        state = best[state].before
    meant = {operator: operator for operator in members(dag.everything)}
    stages = []
    for step in reversed(way):
        groups = tuple(sum(1 << meant[operator] for operator in members(part)) for part in step.ending.groups)
        stages.append(_Stage(groups, step.ending.is_merged))
        names = branches.renaming(step.before & ~sum(step.ending.groups))
        meant = {operator: meant[names.get(operator, operator)] for operator in meant}
    return tuple(reversed(stages))


def _greedy(dag: Dag, numbers: Sequence[int], times: GroupTimes) -> _Solution:
    """A stage of all operators whose producers have run, then the next, as IOS's greedy baseline has it."""
    stages, total_us, left = [], 0.0, dag.everything
    while left:
        ready = tuple(1 << i for i in members(left) if dag.producers[i] & left == 0)
        stages.append(_Stage(ready, False))
        total_us += times.stage([(numbers[i],) for part in ready for i in members(part)]).total_us
        left &= ~sum(ready)
    return _Solution(stages=tuple(stages), total_us=total_us, states=0, transitions=0)
