"""What the sums of a resident rKernel are for, as far as each can be finished by a lane of its own.

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
class Total:
    """`node` is `function` (none: itself) of the sum of `terms`, one of each part at most, and of constants `biases`.

    Nothing but `node` uses what is below it.
    """

    node: Expr
    terms: tuple[Term, ...]
    biases: tuple[Load, ...] = ()
    function: ScalarFn | None = None


def find_totals(roots: Sequence[Expr], parts: Mapping[Term, int], constants: Collection[int]) -> tuple[Total, ...]:
    """The totals, so that those of each part are neighbours.

    Args:
        roots: the bodies of the outputs.
        parts: the number of each term's part.
        constants: slots that are constants.
    """
    computed = values(*roots)
    uses = Counter(child for node in computed for child in node.children) + Counter(roots)
    users = {child: node for node in computed for child in node.children}
    alone = {term.reduce: term for term in parts if uses[term.reduce] == 1}
    found: list[Total] = []
    for node in computed:
        if _is_sum(node) and not (uses[node] == 1 and node in users and _is_sum(users[node])):
            summands = list(_summands(node, uses))
            terms = [alone[summand] for summand in summands if summand in alone]
            biases = [summand for summand in summands if _is_bias(summand, constants)]
            is_whole = len(terms) + len(biases) == len(summands)
            if terms and is_whole and len({parts[term] for term in terms}) == len(terms):
                loads = tuple(bias for bias in biases if isinstance(bias, Load))
                found.append(Total(node=node, terms=tuple(sorted(terms, key=lambda term: parts[term])), biases=loads))
    members = {term for total in found for term in total.terms}
    found += [Total(node=term.reduce, terms=(term,)) for term in parts if term not in members]
    found = [_with_function(total, uses, users) for total in found]
    order = {term: number for number, term in enumerate(parts)}
    found.sort(key=lambda total: ([parts[term] for term in total.terms], order[total.terms[0]]))
    return tuple(found)


def _with_function(total: Total, uses: Mapping[Expr, int], users: Mapping[Expr, Expr]) -> Total:
    user = users.get(total.node)
    if uses[total.node] == 1 and isinstance(user, Call) and len(user.args) == 1 and user.dtype is DType.FLOAT32:
        return Total(node=user, terms=total.terms, biases=total.biases, function=user.fn)
    return total


def _is_bias(node: Expr, constants: Collection[int]) -> bool:
    if not isinstance(node, Load) or node.slot not in constants:
        return False
    return node.dtype is DType.FLOAT32 and node.fill is None


def _is_sum(node: Expr) -> bool:
    return isinstance(node, Call) and node.fn is ScalarFn.ADD


def _summands(node: Expr, uses: Mapping[Expr, int]) -> Iterator[Expr]:
    """What a sum adds up, sums that nothing else uses taken apart."""
    for child in node.children:
        if _is_sum(child) and uses[child] == 1:
            yield from _summands(child, uses)
        else:
            yield child
