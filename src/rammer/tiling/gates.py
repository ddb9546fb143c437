"""The gates of a recurrent cell: what its sums are for, as far as each can be finished by a lane of its own.

A gate of a recurrent cell is a function of what its input, its last state and constants add up to. Sums that are only
added to one another need not be told apart, and all gates of a point can be finished side by side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rammer.ir.expr import Call, Expr, Load, ScalarFn
from rammer.ir.types import DType
from rammer.tiling.pattern import Term, values


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """`node` is `function` (none: itself) of the sum of `terms`, one of each part at most, and of constants `biases`.

    Nothing but `node` uses what is below it.
    """

    node: Expr
    terms: tuple[Term, ...]
    biases: tuple[Load, ...] = ()
    function: ScalarFn | None = None


def find_gates(roots: Sequence[Expr], parts: Mapping[Term, int], stay: Collection[Load]) -> tuple[Gate, ...]:
    """The gates, so that those of each part are neighbours.

    Args:
        roots: the bodies of the outputs.
        parts: the number of each term's part.
        stay: loads of constants that are the same in all rTasks.
    """
    computed = values(*roots)
    uses = Counter(child for node in computed for child in node.children) + Counter(roots)
    users = {child: node for node in computed for child in node.children}
    alone = {term.reduce: term for term in parts if uses[term.reduce] == 1}
    found: list[Gate] = []
    for node in computed:
        if _is_sum(node) and not (uses[node] == 1 and node in users and _is_sum(users[node])):
            summands = list(_summands(node, uses))
            terms = [alone[summand] for summand in summands if summand in alone]
            biases = [summand for summand in summands if _is_bias(summand, stay)]
            is_whole = len(terms) + len(biases) == len(summands)
            if terms and is_whole and len({parts[term] for term in terms}) == len(terms):
                loads = tuple(bias for bias in biases if isinstance(bias, Load))
                found.append(Gate(node=node, terms=tuple(sorted(terms, key=lambda term: parts[term])), biases=loads))
    members = {term for gate in found for term in gate.terms}
    found += [Gate(node=term.reduce, terms=(term,)) for term in parts if term not in members]
    found = [_with_function(gate, uses, users) for gate in found]
    order = {term: number for number, term in enumerate(parts)}
    found.sort(key=lambda gate: ([parts[term] for term in gate.terms], order[gate.terms[0]]))
    return tuple(found)


def _with_function(gate: Gate, uses: Mapping[Expr, int], users: Mapping[Expr, Expr]) -> Gate:
    user = users.get(gate.node)
    if uses[gate.node] == 1 and isinstance(user, Call) and len(user.args) == 1 and user.dtype is DType.FLOAT32:
        return Gate(node=user, terms=gate.terms, biases=gate.biases, function=user.fn)
    return gate


def _is_bias(node: Expr, stay: Collection[Load]) -> bool:
    return isinstance(node, Load) and node in stay and node.dtype is DType.FLOAT32 and node.fill is None


def _is_sum(node: Expr) -> bool:
    return isinstance(node, Call) and node.fn is ScalarFn.ADD


def _summands(node: Expr, uses: Mapping[Expr, int]) -> Iterator[Expr]:
    """What a sum adds up, sums that nothing else uses taken apart."""
    for child in node.children:
        if _is_sum(child) and uses[child] == 1:
            yield from _summands(child, uses)
        else:
            yield child
