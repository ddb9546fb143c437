"""Endings of operator graphs, as IOS enumerates them (Ding et al., MLSys 2021, section 4), on sets of bits.

An *ending* of a set of operators holds, with each operator, all that depend on it: what is left can run before. The
groups of an ending are its weakly connected parts, so an ending is a union of groups that do not depend on each other.
Groups are found by closing upwards from any number of operators, so that a part with several sources (`a -> c <- b`)
is found too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Set = int
"""Operators as the bits of an int."""


def members(operators: Set) -> Iterator[int]:
    """The numbers in a set, ascending."""
    while operators:
        lowest = operators & -operators
        yield lowest.bit_length() - 1
        operators ^= lowest


@dataclass(frozen=True, slots=True)
class Dag:
    """A graph of operators: their direct successors and producers, operator by operator in topological order."""

    successors: tuple[Set, ...]
    producers: tuple[Set, ...]

    @staticmethod
    def of(producers: Sequence[Sequence[int]]) -> Dag:
        """The graph in which operator `i` reads the results of `producers[i]`, which are all below `i`."""
        successors = [0] * len(producers)
        for operator, sources in enumerate(producers):
            for source in sources:
                successors[source] |= 1 << operator
        return Dag(tuple(successors), tuple(sum(1 << source for source in set(own)) for own in producers))

    @property
    def everything(self) -> Set:
        """All operators."""
        return (1 << len(self.successors)) - 1

    def neighbours(self, operators: Set) -> Set:
        """What reads or feeds any of some operators."""
        found = 0
        for operator in members(operators):
            found |= self.successors[operator] | self.producers[operator]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """IOS's pruning of endings.

    Attributes:
        group: operators of a group at most (`r` in the paper).
        groups: groups of an ending at most (`s` in the paper).
    """

    group: int = 3
    groups: int = 8


def endings(dag: Dag, operators: Set, pruning: Pruning) -> Iterator[tuple[Set, ...]]:
    """All endings of a set that holds the successors of its members, each as its groups, ascending by lowest bit."""
    found = groups(dag, operators, pruning.group)
    apart = [operators & ~(group | dag.neighbours(group)) for group in found]

    def extend(first: int, chosen: tuple[Set, ...], free: Set) -> Iterator[tuple[Set, ...]]:
        for place in range(first, len(found)):
            if found[place] & ~free == 0:
                taken = (*chosen, found[place])
                yield taken
                if len(taken) < pruning.groups:
                    yield from extend(place + 1, taken, free & apart[place])

    yield from extend(0, (), operators)


def groups(dag: Dag, operators: Set, most: int) -> list[Set]:
    """All weakly connected sets of at most `most` operators that hold all that depends on them in `operators`."""
    closed = {0}
    for operator in reversed(list(members(operators))):
        after = dag.successors[operator] & operators
        closed |= {one | 1 << operator for one in closed if after & ~one == 0 and one.bit_count() < most}
    return sorted((one for one in closed if one and _is_connected(dag, one)), key=lambda one: (one & -one, one))


def _is_connected(dag: Dag, operators: Set) -> bool:
    reached = operators & -operators
    while True:
        wider = reached | (dag.neighbours(reached) & operators)
        if wider == reached:
            return reached == operators
        reached = wider


class Branches:
    """Interchangeable parts of a graph: states that differ only in which of them went ahead count as one.

    Parts are the weakly connected components of a graph without the operators at which many paths meet or part
    (`forks`). Two are interchangeable if their operators have equal `work`, in order, with equal edges among them and
    to the outside.
    """

    def __init__(self, dag: Dag, work: Sequence[object]) -> None:
        self._classes: list[list[tuple[int, ...]]] = []
        known: dict[object, list[tuple[int, ...]]] = {}
        for part in _components(dag, dag.everything & ~_forks(dag)):
            order = tuple(members(part))
            place = {operator: index for index, operator in enumerate(order)}
            edges = tuple(
                (
                    work[operator],
                    tuple(place.get(other, ("out", other)) for other in members(dag.successors[operator])),
                    tuple(place.get(other, ("in", other)) for other in members(dag.producers[operator])),
                )
                for operator in order
            )
            known.setdefault(edges, []).append(order)
        self._classes = [parts for parts in known.values() if len(parts) > 1]

    def canonical(self, operators: Set) -> Set:
        """The representative of all sets that interchangeable parts make of this one."""
        for parts in self._classes:
            patterns = sorted(_pattern(part, operators) for part in parts)
            for part, pattern in zip(parts, patterns, strict=True):
                for index, operator in enumerate(part):
                    bit = 1 << operator
                    operators = operators | bit if pattern >> index & 1 else operators & ~bit
        return operators

    def renaming(self, operators: Set) -> dict[int, int]:
        """Each operator of the representative, and what it stands for in this set; others stand for themselves."""
        names: dict[int, int] = {}
        for parts in self._classes:
            ranked = sorted(parts, key=lambda part: _pattern(part, operators))
            for part, meant in zip(parts, ranked, strict=True):
                names.update(zip(part, meant, strict=True))
        return names


def _pattern(part: Sequence[int], operators: Set) -> int:
    """Which operators of a part are in a set, as bits."""
    return sum(1 << index for index, operator in enumerate(part) if operators >> operator & 1)


def _forks(dag: Dag) -> Set:
    several = (
        1 << operator
        for operator, (after, before) in enumerate(zip(dag.successors, dag.producers, strict=True))
        if after.bit_count() > 1 or before.bit_count() > 1
    )
    return sum(several)


def _components(dag: Dag, operators: Set) -> Iterator[Set]:
    while operators:
        part = operators & -operators
        while (wider := part | (dag.neighbours(part) & operators)) != part:
            part = wider
        yield part
        operators &= ~part


def blocks(dag: Dag) -> list[Set]:
    """The graph cut at each operator that all others precede or follow, in order; a cut ends its block."""
    count = len(dag.successors)
    before: list[Set] = []
    for operator in range(count):
        above = 0
        for producer in members(dag.producers[operator]):
            above |= before[producer] | 1 << producer
        before.append(above)
    after = [0] * count
    for operator in reversed(range(count)):
        for successor in members(dag.successors[operator]):
            after[operator] |= after[successor] | 1 << successor
    found, taken = [], 0
    for operator in range(count):
        if before[operator] | after[operator] | 1 << operator == dag.everything:
            found.append((before[operator] | 1 << operator) & ~taken)
            taken |= found[-1]
    if taken != dag.everything:
        found.append(dag.everything & ~taken)
    return found


def split(dag: Dag, operators: Set, most: int) -> Iterator[Set]:
    """Parts of at most `most` operators, in order, if there is such a cut: between levels, where fewest start.

    An operator's level is the longest way to it. What lies above a level never needs what lies below.
    """
    levels: dict[int, int] = {}
    for operator in members(operators):
        levels[operator] = max((levels[one] + 1 for one in members(dag.producers[operator] & operators)), default=0)
    by_level = [0] * (max(levels.values(), default=0) + 1)
    for operator, level in levels.items():
        by_level[level] |= 1 << operator
    if operators.bit_count() <= most or len(by_level) == 1:
        yield operators
        return
    half = operators.bit_count() / 2
    above = [sum(by_level[:level]).bit_count() for level in range(1, len(by_level))]
    cut = min(
        range(1, len(by_level)), key=lambda level: (by_level[level].bit_count(), abs(above[level - 1] - half), level)
    )
    yield from split(dag, sum(by_level[:cut]), most)
    yield from split(dag, sum(by_level[cut:]), most)
