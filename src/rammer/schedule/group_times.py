"""How long groups of rOperators take side by side, each on vEUs of its own, and how the vEUs are best divided."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rammer.ir.task import TaskGraph
from rammer.schedule.estimates import Estimates

_PARTS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Of many vEUs a group gets all, or so much less."""
_FEW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """rOperators that run one after another on the vEUs from `first` on, `veus` of them."""

    operators: tuple[int, ...]
    first: int
    veus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Groups side by side, and the time until the barrier behind the slowest has been passed."""

    groups: tuple[Group, ...]
    total_us: float


class GroupTimes:
    """Times of groups and stages of a task graph on some vEUs; equal ones are looked at once."""

    def __init__(self, graph: TaskGraph, veus: int, estimates: Estimates) -> None:
        self._graph = graph
        self._veus = veus
        self._estimates = estimates
        divided = {max(1, int(veus / part)) for part in _PARTS}
        self._shares = sorted(range(1, veus + 1) if veus <= _FEW else divided)
        self._of_group: dict[tuple[int, ...], tuple[float, ...]] = {}
        self._kinds: dict[tuple[float, ...], int] = {}
        self._times: list[tuple[float, ...]] = []
        self._stage_us: dict[tuple[int, ...], float] = {}

    def work(self, operator: int) -> object:
        """What two rOperators have in common that take the same time on any vEUs."""
        return self._graph.operators[operator].kernels

    def times_us(self, group: tuple[int, ...]) -> tuple[float, ...]:
        """The time of a group, in order, on each of the shares of vEUs that are tried, the fewest first."""
        if group not in self._of_group:
            between_us = (len(group) - 1) * self._estimates.step_us
            times, best = [], float("inf")
            for share in self._shares:
                best = min(best, sum(self._alone_us(operator, share) for operator in group) + between_us)
                times.append(best)
            self._of_group[group] = tuple(times)
        return self._of_group[group]

    def _alone_us(self, operator: int, veus: int) -> float:
        found = self._graph.operators[operator]
        pick = self._estimates.best_kernel(found, veus)
        return -(-found.kernels[pick].task_count // veus) * self._estimates.task_us[operator][pick]

    def kind(self, group: tuple[int, ...]) -> int:
        """A number that groups share which take the same times on any vEUs."""
        times = self.times_us(group)
        if times not in self._kinds:
            self._kinds[times] = len(self._times)
            self._times.append(times)
        return self._kinds[times]

    def stage_us(self, kinds: Iterable[int]) -> float:
        """The time of a stage of groups of these kinds, in any order: `stage(groups).total_us` in short."""
        key = tuple(sorted(kinds))
        if key not in self._stage_us:
            self._stage_us[key] = self._division(key)[1] + self._estimates.program_us
        return self._stage_us[key]

    def stage(self, groups: Sequence[tuple[int, ...]]) -> Stage:
        """Groups under the division of the vEUs with which the slowest ends first."""
        kinds = tuple(map(self.kind, groups))
        veus, _ = self._division(kinds)
        firsts = _firsts(veus, [self.times_us(group)[0] for group in groups], self._veus)
        placed = tuple(
            Group(operators=group, first=first, veus=own)
            for group, first, own in zip(groups, firsts, veus, strict=True)
        )
        return Stage(groups=placed, total_us=self.stage_us(kinds))

    def _division(self, kinds: tuple[int, ...]) -> tuple[tuple[int, ...], float]:
        """The vEUs of each group and the time of the slowest."""
        return _divided([self._times[kind] for kind in kinds], self._shares, self._veus)


def _divided(times: Sequence[tuple[float, ...]], shares: Sequence[int], veus: int) -> tuple[tuple[int, ...], float]:
    """The vEUs of each group and the time of the slowest."""
    if len(times) > veus:
        loads = [0.0] * veus
        for time_us in sorted((time[0] for time in times), reverse=True):
            loads[loads.index(min(loads))] += time_us
        return (1,) * len(times), max(loads)
    limits = sorted(set().union(*times))
    falling = [[-time_us for time_us in time] for time in times]

    def needed(limit_us: float) -> list[int] | None:
        """The fewest vEUs of each group with which it ends within a limit; none where one cannot."""
        found = []
        for time in falling:
            place = bisect_left(time, -limit_us)
            if place == len(time):
                return None
            found.append(shares[place])
        return found

    low, high = 0, len(limits) - 1
    best = [1] * len(times)
    while low <= high:
        middle = (low + high) // 2
        found = needed(limits[middle])
        if found is not None and sum(found) <= veus:
            best, high = found, middle - 1
        else:
            low = middle + 1
    total_us = max(time[shares.index(own)] for time, own in zip(times, best, strict=True))
    return tuple(best), total_us


def _firsts(veus: Sequence[int], alone_us: Sequence[float], count: int) -> list[int]:
    """The first vEU of each group; where there are more groups than vEUs, the longest first to the vEU with least."""
    if len(veus) <= count:
        return [sum(veus[:place]) for place in range(len(veus))]
    loads, firsts = [0.0] * count, [0] * len(veus)
    for place in sorted(range(len(veus)), key=lambda one: -alone_us[one]):
        firsts[place] = loads.index(min(loads))
        loads[firsts[place]] += alone_us[place]
    return firsts
