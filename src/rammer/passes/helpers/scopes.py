"""Where work is needed: everywhere, or only where conditions that the model computes have come out one way.

A branch chooses by one bool of a value that is no constant: of what it chooses between, one side alone is looked at.
What nothing but that side depends on is needed where the condition comes out for it alone. So is what an `If` computes,
whatever passes have made of it; nothing has to remember which operator came from which branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from rammer.ir.expr import Call, Cast, Const, Expr, Load, ScalarFn, TensorExpr, nodes
from rammer.ir.functions import CHOICES
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType


class Bool(NamedTuple):
    """One element of a value, or of what a slot holds."""

    value: int
    place: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Within an outer scope, where a bool is `holds`; the outermost is everywhere. Compared by identity."""

    outer: Scope | None
    condition: Bool
    holds: bool
    depth: int


EVERYWHERE = Scope(None, Bool(-1, ()), True, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """The scope of each value that an operator makes, EVERYWHERE where it is not listed, and what choices choose by."""

    narrow: Mapping[int, Scope] = field(default_factory=dict)
    conditions: frozenset[int] = frozenset()

    def of(self, value: int) -> Scope:
        """Where a value is needed."""
        return self.narrow.get(value, EVERYWHERE)


def find_scopes(graph: Graph) -> Scopes:
    """Where each value of a graph is needed. All results of an operator are needed where one of them is."""
    if not any(operator.expr is not None and _has_choice(operator.expr) for operator in graph.operators):
        return Scopes()
    inner = _Inner(graph)
    needed = dict.fromkeys(graph.outputs, EVERYWHERE)
    narrow: dict[int, Scope] = {}
    conditions: set[int] = set()
    for operator in reversed(graph.operators):
        scope = None
        for output in operator.outputs:
            scope = _both(scope, needed.get(output))
        scope = scope or EVERYWHERE
        if scope is not EVERYWHERE:
            narrow.update(dict.fromkeys(operator.outputs, scope))
        uses = _plain_uses(len(operator.inputs)) if operator.expr is None else _uses(operator.expr)
        for slot, choices in uses:
            here = scope
            for condition, holds in choices:
                bool_ = Bool(operator.inputs[condition.value], condition.place)
                if bool_.value not in graph.constants:
                    conditions.add(bool_.value)
                    here = inner.within(here, bool_, holds=holds)
            value = operator.inputs[slot]
            needed[value] = _both(needed.get(value), here) or EVERYWHERE
    return Scopes(narrow=narrow, conditions=frozenset(conditions))


class _Inner:
    """The parts of scopes where conditions come out one way, one object each."""

    def __init__(self, graph: Graph) -> None:
        self._known: dict[tuple[Scope, Bool, bool], Scope] = {}
        self._joined: dict[Bool, tuple[Bool, Bool]] = {}
        for operator in graph.operators:
            if operator.expr is not None and (joined := _joined(operator, graph)) is not None:
                self._joined[Bool(operator.outputs[0], ())] = joined

    def within(self, scope: Scope, condition: Bool, *, holds: bool) -> Scope:
        """The part of a scope where a condition is `holds`; where it joins two others and holds, so do both."""
        wanted = [condition]
        while holds and wanted[-1] in self._joined:
            wanted[-1:] = reversed(self._joined[wanted[-1]])
        for each in reversed(wanted):
            key = (scope, each, holds)
            if key not in self._known:
                is_so = any((other.condition, other.holds) == (each, holds) for other in chain(scope))
                self._known[key] = scope if is_so else Scope(scope, each, holds, scope.depth + 1)
            scope = self._known[key]
        return scope


def _joined(operator: Operator, graph: Graph) -> tuple[Bool, Bool] | None:
    """The bools that both hold where what an operator makes does; the second one counts only where the first holds."""
    expr = operator.expr
    assert expr is not None
    match expr.roots:
        case (Call(ScalarFn.BRANCH, (condition, element, other)),) if not expr.axes:
            pair = [_bool(node, expr) for node in (condition, element)]
            if isinstance(other, Load):
                array = graph.constants.get(operator.inputs[other.slot])
                never = array is not None and not array.any()
            else:
                never = isinstance(other, Const) and other.value is False
            if never and pair[0] is not None and pair[1] is not None:
                first, second = (Bool(operator.inputs[slot], place) for slot, place in (pair[0], pair[1]))
                return first, second
    return None


def chain(scope: Scope) -> Iterator[Scope]:
    """A scope and those around it, without the outermost."""
    while scope.outer is not None:
        yield scope
        scope = scope.outer


def _both(one: Scope | None, other: Scope | None) -> Scope | None:
    """The smallest scope around two; None is nowhere."""
    if one is None or other is None:
        return one or other
    while one is not other:
        if one.depth < other.depth:
            one, other = other, one
        assert one.outer is not None  # the deeper of two
        one = one.outer
    return one


Choices = tuple[tuple[Bool, bool], ...]
"""Conditions in slots, each with how it has to come out."""


def _plain_uses(count: int) -> list[tuple[int, Choices]]:
    return [(slot, ()) for slot in range(count)]


@lru_cache(maxsize=1024)
def _has_choice(expr: TensorExpr) -> bool:
    return any(condition_of(node, expr) is not None for node in nodes(*expr.roots))


def condition_of(node: Expr, expr: TensorExpr) -> Bool | None:
    """The one bool in a slot that a node chooses by, None where it is no choice."""
    return _bool(node.args[0], expr) if isinstance(node, Call) and node.fn is ScalarFn.BRANCH else None


def _bool(node: Expr, expr: TensorExpr) -> Bool | None:
    """The bool in a slot that a node loads, the same at each point; None of anything else."""
    if not isinstance(node, Load) or node.type is not DType.BOOL or node.fill is not None:
        return None
    place = []
    for index, extent in zip(node.indices, expr.inputs[node.slot].shape, strict=True):
        if extent != 1 and not isinstance(index, Const):
            return None
        place.append(int(index.value) if isinstance(index, Const) else 0)
    return Bool(node.slot, tuple(place))


@lru_cache(maxsize=1024)
def _uses(expr: TensorExpr) -> tuple[tuple[int, Choices], ...]:
    """Each slot with what has to hold for it to be looked at, once for each way in which it is used.

    Only what a choice takes as it is, or one element of several, counts as chosen: of arithmetic and indices, one side
    would be computed with what nobody wrote.
    """
    found: dict[tuple[int, Choices], None] = {}
    seen: set[tuple[Expr, Choices]] = set()
    stack: list[tuple[Expr, Choices]] = [(root, ()) for root in reversed(expr.roots)]
    while stack:
        node, choices = stack.pop()
        if (node, choices) in seen:
            continue
        seen.add((node, choices))
        condition = condition_of(node, expr)
        if isinstance(node, Load):
            found[node.slot, choices] = None
        if condition is not None:
            _, if_true, if_false = node.parts
            found[condition.value, choices] = None
            stack += [(if_false, (*choices, (condition, False))), (if_true, (*choices, (condition, True)))]
        elif isinstance(node, Call) and node.fn in CHOICES:
            selector, if_true, if_false = node.args
            stack += [(if_false, choices), (if_true, choices), (selector, ())]
        elif isinstance(node, Cast):
            stack.append((node.arg, choices))
        else:
            stack += [(part, ()) for part in reversed(node.parts)]
    return tuple(found)
