"""Partitions: which models of one program run side by side, each on vEUs of its own, and which follow each other.

A *partition* is some neighbouring vEUs and the models that run on them, one after another. One partition for all is
what a sequence of calls would be; a partition for each keeps every unit busy where no model alone can. Between these
extremes models are dealt out by their times, the longest first, to the partition that is free first.

The vEUs of partitions are shared out so that all end together: each gets in proportion to its share and the time that
it takes with it, until that changes nothing.

Of two models one may *take over*: it begins on the vEUs that the other leaves, and goes on with all when that has
ended. The other then has as many as make it quick, not as many as make it as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

TimeUs = Callable[[int, int], float]
"""The time of a model, by its number, on so many vEUs, in microseconds."""

TakingOver = Callable[[int, int], float]
"""The cost where the model of that number has so many vEUs, until the other takes them over."""

_ROUNDS = 8
_FIRST_SHARES = (3, 4, 6)
"""Of twelve parts of the vEUs, what is tried for the model that the other takes over from."""
_FINER = (1.0, 0.5)
"""Of these parts, how far from the best so far others are tried."""
_EVEN = 0.02
"""Of the longest partition's time, how far the shortest one's may be from it; estimates can't say what is closer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """Models, by number, in the order in which they run, and their vEUs; the first `taken_over` are another's first."""

    models: tuple[int, ...]
    veus: range
    taken_over: int = 0


def find_partitions(
    veus: int, priorities: Sequence[float], time_us: TimeUs, cost_of_taking_over: TakingOver | None = None
) -> tuple[Partition, ...]:
    """The partitions with which the last model ends first; the time of each counts as often as its priority says.

    Args:
        veus: execution units.
        priorities: one for each model, positive.
        time_us: how long each takes on how many vEUs.
        cost_of_taking_over: of two models; None: neither may.
    """
    most = min(len(priorities), veus)
    counts = sorted({most, *(1 << power for power in range(most.bit_length()) if 1 << power < most)})
    search = _Search(veus, priorities, time_us)
    cost, found = min((search.best(count) for count in counts), key=lambda found: found[0])
    if cost_of_taking_over is not None and len(priorities) == 2 and veus > 1:
        return search.taken_over(cost, cost_of_taking_over) or found
    return found


class _Search:
    """Looks for partitions of one problem."""

    def __init__(self, veus: int, priorities: Sequence[float], time_us: TimeUs) -> None:
        self._veus = veus
        self._priorities = priorities
        self._time_us = time_us

    def best(self, count: int) -> tuple[float, tuple[Partition, ...]]:
        """The best of some ways to share out the vEUs among so many partitions, with its cost."""
        dealt = self._deal(count)
        shares = _split(self._veus, [1.0] * count)
        best: tuple[float, tuple[Partition, ...]] | None = None
        for _ in range(_ROUNDS):
            costs = [self._cost(models, share) for models, share in zip(dealt, shares, strict=True)]
            if best is None or max(costs) < best[0]:
                best = max(costs), _partitions(dealt, shares)
            wanted = _split(self._veus, [cost * share for cost, share in zip(costs, shares, strict=True)])
            if wanted == shares or min(costs) >= (1 - _EVEN) * max(costs):
                break
            shares = wanted
        assert best is not None
        return best

    def taken_over(self, most: float, cost_of: TakingOver) -> tuple[Partition, ...] | None:
        """The best of some ways in which one of two models takes the other's vEUs over; None if all cost `most`."""
        costs: dict[tuple[int, int], float] = {}

        def try_shares(tried: Sequence[tuple[int, float]]) -> tuple[int, int]:
            for first, twelfths in tried:
                share = min(self._veus - 1, max(1, round(self._veus * twelfths / 12)))
                if (first, share) not in costs and self._cost((first,), share) < min([most, *costs.values()]):
                    costs[first, share] = cost_of(first, share)
            return min(costs, key=lambda one: costs[one], default=(0, 0))

        first, share = try_shares([(first, twelfths) for twelfths in _FIRST_SHARES for first in (0, 1)])
        for step in _FINER:
            twelfths = 12 * share / self._veus
            first, share = try_shares([(first, twelfths - step), (first, twelfths + step)])
        if costs.get((first, share), most) >= most or costs[first, share] <= self._cost((first,), share) * (1 + _EVEN):
            return None  # or nothing is left when the first has ended
        return (
            Partition(models=(first,), veus=range(share)),
            Partition(models=(1 - first,), veus=range(self._veus), taken_over=share),
        )

    def _deal(self, count: int) -> list[tuple[int, ...]]:
        """The models of each partition, those of high priority first."""
        share = self._veus // count
        times_us = [self._time_us(model, share) for model in range(len(self._priorities))]
        partitions: list[list[int]] = [[] for _ in range(count)]
        for model in sorted(range(len(times_us)), key=lambda model: -times_us[model]):
            min(partitions, key=lambda partition: sum(times_us[other] for other in partition)).append(model)
        return [
            tuple(sorted(partition, key=lambda model: (-self._priorities[model], model))) for partition in partitions
        ]

    def _cost(self, models: Sequence[int], share: int) -> float:
        """The latest end in a partition, ends counted by priority."""
        end_us = cost = 0.0
        for model in models:
            end_us += self._time_us(model, share)
            cost = max(cost, self._priorities[model] * end_us)
        return cost


def _partitions(dealt: Sequence[tuple[int, ...]], shares: Sequence[int]) -> tuple[Partition, ...]:
    partitions, first = [], 0
    for models, share in zip(dealt, shares, strict=True):
        partitions.append(Partition(models=models, veus=range(first, first + share)))
        first += share
    return tuple(partitions)


def _split(veus: int, weights: Sequence[float]) -> list[int]:
    """So many vEUs in proportion to weights, at least one for each; what rounding leaves goes to the largest rests."""
    whole = sum(weights) or 1.0
    spare = veus - len(weights)
    exact = [spare * weight / whole for weight in weights]
    shares = [1 + int(part) for part in exact]
    rests = sorted(range(len(exact)), key=lambda partition: (int(exact[partition]) - exact[partition], partition))
    for partition in rests[: veus - sum(shares)]:
        shares[partition] += 1
    return shares
