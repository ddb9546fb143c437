"""Residency: which vEUs keep the constants of rOperators that use the same ones wave after wave.

The cells of a recurrent layer are such a *line*: at most one of them in a wave, all with the same weights. Lines that
are alive in the same waves share out the vEUs by their work; what is left of all shares goes to the first lines that
are faster with it. Each takes the rKernel that is fastest on its share and keeps its vEUs from its first wave to its
last, so that every rTask finds its weights where it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rammer.ir.task import ROperator, TaskGraph, TensorRole
from rammer.schedule.estimates import Estimates


@dataclass(frozen=True, slots=True)
class Residence:
    """The candidate rKernel of an rOperator and the vEU of each of its rTasks."""

    pick: int
    veus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    """rOperators that use the same constants, by wave, and the time of all work of the last one."""

    operators: tuple[ROperator, ...]
    first: int
    last: int
    work_us: float


def find_residences(
    graph: TaskGraph, waves: Sequence[Sequence[ROperator]], veus: int, resident_bytes: int, estimates: Estimates
) -> Mapping[int, Residence]:
    """The rOperators whose place follows from their constants.

    Args:
        graph: the task graph.
        waves: its rOperators, in the order in which they are scheduled.
        veus: execution units.
        resident_bytes: constants that one of them keeps.
        estimates: times of candidates.
    """
    if not resident_bytes:
        return {}
    lines = _lines(graph, waves, estimates)
    shares = _shares(lines, veus, estimates)
    residences: dict[int, Residence] = {}
    busy_until = [-1] * veus
    for line, share in zip(lines, shares, strict=True):
        free = [veu for veu in range(veus) if busy_until[veu] < line.first]
        typical = line.operators[-1]
        tile = typical.kernels[estimates.best_kernel(typical, min(share, max(1, len(free))))].tile.task
        picks = {operator.id: _pick(operator, tile) for operator in line.operators}
        counts = {
            operator.kernels[pick].task_count for operator in line.operators if (pick := picks[operator.id]) is not None
        }
        if (
            len(counts) != 1
            or max(counts) > len(free)
            or _constant_bytes(graph, typical) > max(counts) * resident_bytes
        ):
            continue
        homes = tuple(free[: max(counts)])
        for veu in homes:
            busy_until[veu] = line.last
        residences |= {number: Residence(pick, homes) for number, pick in picks.items() if pick is not None}
    return residences


def _lines(graph: TaskGraph, waves: Sequence[Sequence[ROperator]], estimates: Estimates) -> list[_Line]:
    """The lines of a graph, by first wave."""
    members: dict[int, list[tuple[int, ROperator]]] = {}
    for wave, operators in enumerate(waves):
        for operator in operators:
            heaviest = _heaviest_constant(graph, operator)
            if heaviest is not None:
                members.setdefault(heaviest, []).append((wave, operator))
    lines = []
    for found in members.values():
        numbers = [wave for wave, _ in found]
        if len(found) > 1 and len(set(numbers)) == len(numbers):
            typical = found[-1][1]
            work_us = estimates.work_us(typical, estimates.best_kernel(typical, 1))
            lines.append(_Line(tuple(operator for _, operator in found), numbers[0], numbers[-1], work_us))
    return sorted(lines, key=lambda line: line.first)


def _shares(lines: Sequence[_Line], veus: int, estimates: Estimates) -> list[int]:
    """How many vEUs each line may take."""
    works_us = [line.work_us for line in lines]
    shares = [max(1, int(veus * line.work_us / _most(lines, line, works_us))) for line in lines]
    taken = [_fastest_count(line, share, estimates) for line, share in zip(lines, shares, strict=True)]
    for i, line in enumerate(lines):
        shares[i] = max(shares[i], taken[i] + veus - int(_most(lines, line, taken)))
        taken[i] = _fastest_count(line, shares[i], estimates)
    return shares


def _most(lines: Sequence[_Line], line: _Line, amounts: Sequence[float]) -> float:
    """The most that lines have together, each its amount, in a wave of `line`."""
    begins = [line.first, *(other.first for other in lines if line.first < other.first <= line.last)]
    return max(
        sum(amount for other, amount in zip(lines, amounts, strict=True) if other.first <= wave <= other.last)
        for wave in begins
    )


def _fastest_count(line: _Line, share: int, estimates: Estimates) -> int:
    """The rTasks of the rKernel that is fastest on a share."""
    typical = line.operators[-1]
    return typical.kernels[estimates.best_kernel(typical, share)].task_count


def _heaviest_constant(graph: TaskGraph, operator: ROperator) -> int | None:
    """The largest constant that an rOperator reads, if constants are most of what it reads."""
    roots = {graph.root(binding.tensor).id for binding in operator.reads}
    size = {root: graph.tensors[root].nbytes for root in sorted(roots)}
    constants = [root for root in size if graph.tensors[root].role is TensorRole.CONSTANT]
    if 2 * sum(size[root] for root in constants) <= sum(size.values()):
        return None
    return max(constants, key=lambda root: size[root])


def _constant_bytes(graph: TaskGraph, operator: ROperator) -> int:
    roots = {graph.root(binding.tensor).id for binding in operator.reads}
    return sum(graph.tensors[root].nbytes for root in roots if graph.tensors[root].role is TensorRole.CONSTANT)


def _pick(operator: ROperator, tile: tuple[int, ...]) -> int | None:
    """The candidate with a given tile."""
    found = (i for i, kernel in enumerate(operator.kernels) if kernel.tile.task == tile)
    return next(found, None)
