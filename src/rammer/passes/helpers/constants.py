"""Which operators share a constant, or a state that a run does not change before it has been read."""

from __future__ import annotations

from collections import Counter

from rammer.ir.graph import Graph, Operator
from rammer.ir.region import depends_on_data


def read_once(graph: Graph) -> frozenset[int]:
    """The constants that one operator alone reads, beside gathers of a few of their elements."""
    readers = Counter(
        operator.inputs[slot]
        for operator in graph.operators
        for slot in {slot for slot, value in enumerate(operator.inputs) if value in graph.constants}
        - gathered(operator)
    )
    return frozenset(value for value, count in readers.items() if count == 1)


def gathered(operator: Operator) -> set[int]:
    """The slots that an operator reads at places that depend on data, and nowhere else."""
    if operator.expr is None:
        return set()
    by_data, otherwise = set[int](), set[int]()
    for load in operator.expr.loads:
        (by_data if any(map(depends_on_data, load.indices)) else otherwise).add(load.slot)
    return by_data - otherwise


def read_again(graph: Graph) -> frozenset[int]:
    """The constants that several operators read, and the states that several equal ones do, as the steps of a layer.

    What a run reads of a state nobody writes.
    """
    readers = Counter(value for operator in graph.operators for value in set(operator.inputs))
    states = frozenset(graph.inputs[len(graph.inputs) - len(graph.states) :])
    equal = Counter(
        (value, operator.expr)
        for operator in graph.operators
        if operator.expr is not None and operator.expr.reductions
        for value in states.intersection(operator.inputs)
    )
    steps = {value for (value, _), count in equal.items() if count > 1}
    return frozenset(steps.union(value for value in graph.constants if readers[value] > 1))
