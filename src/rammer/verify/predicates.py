"""Proof that nobody looks at what a skipped rOperator has not written (rules T20 and T21).

A fact is a bool of the model and how it came out. An rOperator with a predicate runs where some facts hold: that of the
predicate, and those that the predicate joins. Whoever reads what it writes has to know all of them: by its own
predicate, or because a choice by these bools takes what is read as it is. Arithmetic and indices are no choice, for
they would be computed with what nobody wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from rammer.errors import VerificationError
from rammer.ir.expr import Call, Cast, Const, Expr, Load, TensorExpr
from rammer.ir.functions import CHOICES
from rammer.ir.task import Binding, ROperator, TaskGraph, TensorRole
from rammer.ir.types import DType
from rammer.verify.footprints import Footprints, Region
from rammer.verify.naming import describe_operator, describe_tensor, sources_of

_Element = tuple[int, int]
_Fact = tuple[_Element, bool]
_Facts = frozenset[_Fact]
_Sides = tuple[tuple[int, bool], ...]


def check_predicates(graph: TaskGraph) -> None:
    """Check the predicates of a task graph whose storage and bindings are sound.

    Raises:
        VerificationError: T20 or T21 is broken.
    """
    predicated = [operator for operator in graph.operators if operator.predicate is not None]
    if not predicated:
        return
    footprints = Footprints(graph)
    writes: dict[int, list[tuple[ROperator, Region]]] = {}
    for operator in predicated:
        for region in footprints.writes(operator, *_whole(operator)):
            writes.setdefault(region.tensor, []).append((operator, region))
    for operator in predicated:
        _check_predicate(graph, operator, writes)
    facts = _Known(graph)
    for reader in graph.operators:
        for region in footprints.reads(reader, *_whole(reader)):
            for writer, written in writes.get(region.tensor, ()):
                if writer.id < reader.id and _overlap(region, written):
                    _check_read(graph, facts, reader, writer, region.tensor)


def _whole(operator: ROperator) -> tuple[TensorExpr, tuple[int, ...]]:
    """An rOperator's expression as one tile."""
    expr = operator.kernels[0].expr
    return expr, tuple(max(1, axis.extent) for axis in expr.axes)


def _overlap(one: Region, other: Region) -> bool:
    return bool(((one.lo < other.hi) & (other.lo < one.hi)).all())


def _check_predicate(
    graph: TaskGraph, operator: ROperator, writes: Mapping[int, Sequence[tuple[ROperator, Region]]]
) -> None:
    """The predicate is there, and what it guards nobody else counts on."""
    binding = operator.predicate
    assert binding is not None
    name = describe_operator(operator)
    for maker, _ in writes.get(graph.root(binding.tensor).id, ()):
        message = f"the predicate of {name} is written by {describe_operator(maker)}, which has one itself"
        raise VerificationError("T20", message, where=sources_of(operator, maker))
    for written in operator.writes:
        if graph.root(written.tensor).role is not TensorRole.INTERMEDIATE or graph.root(written.tensor).layout.tagged:
            message = f"{name}, which may be skipped, writes {describe_tensor(graph.root(written.tensor))}"
            raise VerificationError("T20", f"{message}, whose elements others count on", where=sources_of(operator))


def _check_read(graph: TaskGraph, facts: _Known, reader: ROperator, writer: ROperator, tensor: int) -> None:
    """Whoever reads what another one writes knows that it ran."""
    needed = facts.of(writer)
    own = facts.of(reader)
    for slot, sides in _looked_at(reader.kernels[0].expr):
        if graph.root(reader.reads[slot].tensor).id != tensor:
            continue
        known = own.union(*(facts.following(graph, reader.reads[side], holds=holds) for side, holds in sides))
        if not needed <= known:
            message = (
                f"{describe_operator(reader)} looks at {describe_tensor(graph.tensors[tensor])} where "
                f"{describe_operator(writer)} may have been skipped"
            )
            raise VerificationError("T21", message, where=sources_of(reader, writer))


class _Known:
    """What follows from bools: one that joins others says no more than how they came out."""

    def __init__(self, graph: TaskGraph) -> None:
        self._graph = graph
        self._implied: dict[_Element, _Facts] = {}
        for operator in graph.operators:
            joined = _joined(operator.kernels[0].expr)
            if joined:
                facts = [self.following(graph, operator.reads[slot], holds=holds) for slot, holds in joined]
                self._implied[_element(graph, operator.writes[0])] = frozenset[_Fact]().union(*facts)

    def of(self, operator: ROperator) -> _Facts:
        """What holds where an rOperator runs."""
        if operator.predicate is None:
            return frozenset()
        return self.following(self._graph, operator.predicate, holds=True)

    def following(self, graph: TaskGraph, binding: Binding, *, holds: bool) -> _Facts:
        """What holds where a bool came out one way."""
        element = _element(graph, binding)
        plain = frozenset({(element, holds)})
        return self._implied.get(element, plain) if holds else plain


def _element(graph: TaskGraph, binding: Binding) -> _Element:
    """The root tensor and the row-major position that a bool is bound to."""
    shape = graph.tensors[binding.tensor].type.shape
    place = int(np.ravel_multi_index(binding.origin, shape)) if shape else 0
    return graph.root(binding.tensor).id, place


@lru_cache(maxsize=256)
def _joined(expr: TensorExpr) -> _Sides:
    """How bools came out where an expression of one element is true; none where that is not plain."""
    if expr.axes or len(expr.outputs) != 1 or expr.outputs[0].type.dtype is not DType.BOOL:
        return ()
    node: Expr = expr.outputs[0].body
    found: list[tuple[int, bool]] = []
    while True:
        slot = _bool_slot(node, expr)
        match node:
            case Load() if slot is not None:
                return (*found, (slot, True))
            case Call(fn, (condition, Const(False), Const(True))) if fn in CHOICES:
                slot = _bool_slot(condition, expr)
                return () if slot is None else (*found, (slot, False))
            case Call(fn, (condition, inner, Const(False))) if fn in CHOICES:
                slot = _bool_slot(condition, expr)
                if slot is None:
                    return ()
                found.append((slot, True))
                node = inner
            case _:
                return ()


def _bool_slot(node: Expr, expr: TensorExpr) -> int | None:
    """The slot of a load of the one bool that is bound to it."""
    if isinstance(node, Load) and node.type is DType.BOOL and node.fill is None and expr.inputs[node.slot].size == 1:
        return node.slot
    return None


@lru_cache(maxsize=1024)
def _looked_at(expr: TensorExpr) -> tuple[tuple[int, _Sides], ...]:
    """Every slot that is loaded, with the sides of choices that take it as it is, once for each way to it."""
    found: dict[tuple[int, _Sides], None] = {}
    below: list[tuple[Expr, _Sides]] = [(root, ()) for root in expr.roots]
    seen = set(below)
    while below:
        node, sides = below.pop()
        if isinstance(node, Load):
            found[node.slot, sides] = None
        for each in _parts(node, sides, expr):
            if each not in seen:
                seen.add(each)
                below.append(each)
    return tuple(found)


def _parts(node: Expr, sides: _Sides, expr: TensorExpr) -> Iterator[tuple[Expr, _Sides]]:
    """What a node is made of, with the sides that take it."""
    match node:
        case Call(fn, (selector, if_true, if_false)) if fn in CHOICES:
            slot = _bool_slot(selector, expr)
            yield selector, () if slot is None else sides
            yield if_true, sides if slot is None else (*sides, (slot, True))
            yield if_false, sides if slot is None else (*sides, (slot, False))
        case Cast():
            yield node.arg, sides
        case _:
            for part in node.parts:
                yield part, ()
