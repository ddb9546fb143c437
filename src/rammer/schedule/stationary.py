"""Weight-stationary placement: which vEUs keep the constants that rOperators use wave after wave.

The cells of a recurrent layer are such a *chain*: at most one of them in a wave, all with the same weights. Chains that
are alive in the same waves share out the vEUs by their work; what is left of all shares goes to the first chains that
are faster with it. Each takes the rKernel that is fastest on its share and keeps its vEUs from its first wave to its
last, so that every rTask finds its weights where it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import Axis, TensorExpr, nodes
from rammer.ir.task import RKernel, ROperator, TaskGraph
from rammer.schedule.estimates import Estimates

_ROUNDING = 1e-6  # of a vEU, by which sums of times are off


@dataclass(frozen=True, slots=True)
class Stationary:
    """The candidate rKernel of an rOperator whose weights stay, and the vEU of each of its rTasks."""

    pick: int
    veus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Chain:
    """rOperators that use the same constants, by wave, and the time of all work of a typical one."""

    operators: tuple[ROperator, ...]
    typical: ROperator
    first: int
    last: int
    work_us: float


def find_stationary(
    graph: TaskGraph, waves: Sequence[Sequence[ROperator]], veus: int, stationary_bytes: int, estimates: Estimates
) -> Mapping[int, Stationary]:
    """The rOperators whose place follows from their constants.

    Args:
        graph: the task graph.
        waves: its rOperators, in the order in which they are scheduled.
        veus: execution units.
        stationary_bytes: constants that one of them keeps.
        estimates: times of candidates.
    """
    if not stationary_bytes:
        return {}
    chains = _chains(graph, waves, estimates)
    shares = _shares(chains, veus, estimates)
    stationary: dict[int, Stationary] = {}
    busy_until = [-1] * veus
    for chain, share in zip(chains, shares, strict=True):
        free = [veu for veu in range(veus) if busy_until[veu] < chain.first]
        typical = chain.typical
        best = typical.kernels[_best_kernel(typical, min(share, max(1, len(free))), estimates)]
        picks = {operator.id: _pick(operator, best) for operator in chain.operators}
        counts = {
            operator.kernels[pick].task_count
            for operator in chain.operators
            if (pick := picks[operator.id]) is not None
        }
        if len(counts) != 1 or max(counts) > len(free) or not _keeps(graph, typical, best, stationary_bytes):
            continue
        keepers = tuple(free[: max(counts)])
        for veu in keepers:
            busy_until[veu] = chain.last
        stationary |= {number: Stationary(pick, keepers) for number, pick in picks.items() if pick is not None}
    return stationary


def _chains(graph: TaskGraph, waves: Sequence[Sequence[ROperator]], estimates: Estimates) -> list[_Chain]:
    """The chains of a graph, by first wave."""
    members: dict[tuple[int, frozenset[int]], list[tuple[int, ROperator]]] = {}
    for wave, operators in enumerate(waves):
        for operator in operators:
            heaviest = _heaviest_constant(graph, operator)
            if heaviest is not None:
                members.setdefault(heaviest, []).append((wave, operator))
    chains = []
    for found in members.values():
        numbers = [wave for wave, _ in found]
        if len(found) > 1 and len(set(numbers)) == len(numbers):
            operators = tuple(operator for _, operator in found)
            typical = _typical(operators)
            work_us = estimates.work_us(typical, estimates.best_kernel(typical, 1))
            chains.append(_Chain(operators, typical, numbers[0], numbers[-1], work_us))
    return sorted(chains, key=lambda chain: chain.first)


def _typical(operators: Sequence[ROperator]) -> ROperator:
    """One with the candidates that most have: the first, whose state is zero, and the last may have others."""
    counts = Counter(operator.kernels for operator in operators)
    return max(reversed(operators), key=lambda operator: counts[operator.kernels])


def _shares(chains: Sequence[_Chain], veus: int, estimates: Estimates) -> list[int]:
    """How many vEUs each chain may take."""
    works_us = [chain.work_us for chain in chains]
    shares = [max(1, int(veus * chain.work_us / _most(chains, chain, works_us) + _ROUNDING)) for chain in chains]
    taken = [_fastest_count(chain, share, estimates) for chain, share in zip(chains, shares, strict=True)]
    for i, chain in enumerate(chains):
        shares[i] = max(shares[i], taken[i] + veus - int(_most(chains, chain, taken)))
        taken[i] = _fastest_count(chain, shares[i], estimates)
    return shares


def _most(chains: Sequence[_Chain], chain: _Chain, amounts: Sequence[float]) -> float:
    """The most that chains have together, each its amount, in a wave of `chain`."""
    begins = [chain.first, *(other.first for other in chains if chain.first < other.first <= chain.last)]
    return max(
        sum(amount for other, amount in zip(chains, amounts, strict=True) if other.first <= wave <= other.last)
        for wave in begins
    )


def _fastest_count(chain: _Chain, share: int, estimates: Estimates) -> int:
    """The rTasks of the rKernel that is fastest on a share."""
    typical = chain.typical
    return typical.kernels[_best_kernel(typical, share, estimates)].task_count


def _best_kernel(operator: ROperator, share: int, estimates: Estimates) -> int:
    """The candidate that is fastest on a share: of those that keep weights, one that does so there if any does."""
    counts = {pick: kernel.task_count for pick, kernel in enumerate(operator.kernels) if kernel.form.kept_bytes}
    beyond = {pick for pick, count in counts.items() if count > share}
    if len(beyond) == len(counts):
        return estimates.best_kernel(operator, share)
    return estimates.best_kernel(operator, share, [pick for pick in range(len(operator.kernels)) if pick not in beyond])


def _heaviest_constant(graph: TaskGraph, operator: ROperator) -> tuple[int, frozenset[int]] | None:
    """The largest constant that an rOperator reads, if constants are most of what it reads, and how it is multiplied.

    That is by the dimensions that sums run along: the backward pass of a layer keeps the weights of its forward pass,
    too, but others of them on a vEU. Of anything else only the part that is bound counts: of a sequence, the input of
    one step.
    """
    constants: dict[int, int] = {}
    slots: dict[int, int] = {}
    others_bytes = 0
    kernel = operator.kernels[0]
    for slot, (binding, type_) in enumerate(zip(operator.reads, kernel.expr.inputs, strict=True)):
        root = graph.root(binding.tensor)
        if slot in kernel.constants:
            constants[root.id] = root.nbytes
            slots.setdefault(root.id, slot)
        else:
            others_bytes += type_.nbytes
    if sum(constants.values()) <= others_bytes:
        return None
    heaviest = max(sorted(constants), key=lambda root: constants[root])
    return heaviest, _summed_dimensions(kernel.expr, slots[heaviest])


@lru_cache(maxsize=4096)
def _summed_dimensions(expr: TensorExpr, slot: int) -> frozenset[int]:
    """The dimensions of a slot whose indices change in sums."""
    outside = frozenset(expr.axes)
    return frozenset(
        dim
        for load in expr.loads
        if load.slot == slot
        for dim, index in enumerate(load.indices)
        if any(isinstance(node, Axis) and node not in outside for node in nodes(index))
    )


def _keeps(graph: TaskGraph, operator: ROperator, kernel: RKernel, stationary_bytes: int) -> bool:
    """Whether vEUs have room for the constants of a candidate; for those that it says it keeps they have."""
    roots = {graph.root(operator.reads[slot].tensor).id for slot in kernel.constants}
    constant_bytes = sum(graph.tensors[root].nbytes for root in roots)
    return kernel.form.kept_bytes > 0 or constant_bytes <= kernel.task_count * stationary_bytes


def _pick(operator: ROperator, like: RKernel) -> int | None:
    """The candidate with the tile of another rOperator's that keeps weights if that one does."""

    def cut(kernel: RKernel) -> tuple[tuple[int, ...], bool]:
        return kernel.tile.task, kernel.form.kept_bytes > 0

    return next((i for i, kernel in enumerate(operator.kernels) if cut(kernel) == cut(like)), None)
