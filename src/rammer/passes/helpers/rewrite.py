"""Rewriting the immutable graph: what every pass shares.

A pass walks `graph.operators` in order and tells a `Rewriter` what becomes of each one: insert it (perhaps changed),
add others, or let the readers of its results read other values. The graph that comes out has dense ids in order of
first appearance, holds no value that nobody reads or makes, and keeps the outputs' number, order and names.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Array, Attributes, Graph, Operator, SourceLocation, Value
from rammer.ir.recipe import Recipe
from rammer.ir.types import DType, Layout, TensorType
from rammer.operators.registry import CompositeDef, definition_of

PLACED_KINDS = frozenset({"Concat", "Reshape", "Slice"})
"""Kinds that lowering turns into placed stores and views, by their attributes. Passes keep these operators as they
were built: an expression that changes gets another kind."""


class Rewriter:
    """A graph being rewritten. Value ids are the old graph's, plus new ones, until `finish` numbers them anew."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._values: dict[int, Value] = dict(graph.values)
        self._constants: dict[int, Array] = dict(graph.constants)
        self._recipes: dict[int, Recipe] = dict(graph.recipes)
        self._operators: list[Operator] = []
        self._makers: dict[int, Operator] = {}
        self._replaced: dict[int, int] = {}
        self._next = max(self._values, default=-1) + 1

    def current(self, value: int) -> int:
        """What readers of a value read now."""
        while value in self._replaced:
            value = self._replaced[value]
        return value

    def currents(self, values: Sequence[int]) -> tuple[int, ...]:
        """`current` of each."""
        return tuple(map(self.current, values)) if self._replaced else tuple(values)

    def type(self, value: int) -> TensorType:
        """The type of a value."""
        return self._values[self.current(value)].type

    def array(self, value: int) -> Array | None:
        """What a value holds if it is a constant."""
        return self._constants.get(self.current(value))

    def recipe(self, value: int) -> Recipe | None:
        """What a constant is made of, where that is known."""
        return self._recipes.get(self.current(value))

    def maker(self, value: int) -> Operator | None:
        """The operator inserted so far that makes what readers of a value read now, as it was inserted."""
        return self._makers.get(self.current(value))

    def name(self, value: int) -> str:
        """The name of a value."""
        return self._values[self.current(value)].name

    def layout(self, value: int) -> Layout:
        """Where a value's elements lie."""
        return self._values[self.current(value)].storage

    def value(self, type_: TensorType, name: str, layout: Layout | None = None) -> int:
        """A new value; an operator that makes it must follow."""
        fresh = self._next
        self._next += 1
        self._values[fresh] = Value(id=fresh, name=name, type=type_, layout=layout)
        return fresh

    def constant(self, array: Array, name: str, dtype: DType | None = None, recipe: Recipe | None = None) -> int:
        """A new constant, of the array's own element type or of one that NumPy does not know; it must not change."""
        fresh = self.value(TensorType(dtype or DType.of(array), tuple(array.shape)), name)
        self._constants[fresh] = array
        if recipe is not None:
            self._recipes[fresh] = recipe
        return fresh

    def with_layout(self, value: int, layout: Layout) -> int:
        """A constant of the same content under another layout.

        Raises:
            KeyError: the value is no constant.
        """
        fresh = self.value(self.type(value), self.name(value), layout)
        self._constants[fresh] = self._constants[self.current(value)]
        if (recipe := self.recipe(value)) is not None:
            self._recipes[fresh] = recipe
        return fresh

    def insert(self, operator: Operator) -> None:
        """Append an operator that makes values already known; it reads what its inputs are now."""
        inputs = self.currents(operator.inputs)
        settled = operator if inputs == operator.inputs else replace(operator, inputs=inputs)
        self._operators.append(settled)
        for output in settled.outputs:
            self._makers[output] = settled

    def add(
        self,
        kind: str,
        inputs: Sequence[int],
        attributes: Attributes,
        *,
        name: str,
        sources: Sequence[SourceLocation] = (),
    ) -> int:
        """Append an operator of a registered kind with one result, and return that.

        Raises:
            ValueError: the kind is composite.
        """
        definition = definition_of(kind)
        if isinstance(definition, CompositeDef):
            raise ValueError(f"{kind} is composite")
        expr = definition.build([self.type(i) for i in inputs], attributes)
        return self.add_expression(expr, inputs, kind=kind, name=name, sources=sources, attributes=attributes)

    def add_expression(
        self,
        expr: TensorExpr,
        inputs: Sequence[int],
        *,
        kind: str,
        name: str,
        sources: Sequence[SourceLocation] = (),
        attributes: Attributes = MappingProxyType({}),
    ) -> int:
        """Append an operator that computes an expression with one output, and return its result."""
        (output,) = expr.outputs
        result = self.value(output.type, name)
        self.insert(
            Operator(
                kind=kind,
                name=name,
                inputs=tuple(inputs),
                outputs=(result,),
                expr=expr,
                attributes=MappingProxyType(dict(attributes)),
                sources=tuple(sources),
            )
        )
        return result

    def replace(self, old: int, new: int) -> None:
        """Let everything that reads `old` from now on read `new`, graph outputs included.

        Raises:
            ValueError: the types differ.
        """
        if self.type(old) != self.type(new):
            raise ValueError(f"a {self.type(old)} replaced by a {self.type(new)}")
        if self.current(old) != self.current(new):
            self._replaced[self.current(old)] = self.current(new)

    def finish(self) -> Graph:
        """The rewritten graph, which is the old one itself where nothing is changed.

        Graph outputs are results of operators, each listed once: where a replacement would break that, an `Identity`
        named as the operator that was replaced makes the output.
        """
        outputs = self._settle_outputs()
        order: dict[int, int] = {}
        for value in self._graph.inputs:
            order.setdefault(value, len(order))
        for operator in self._operators:
            for value in (*operator.needs, *operator.outputs):
                if value not in order:
                    order[value] = len(order)
        if self._is_unchanged(outputs, order):
            return self._graph
        return Graph(
            name=self._graph.name,
            values=MappingProxyType({new: _numbered(self._values[old], new) for old, new in order.items()}),
            operators=tuple(_renumbered(operator, order) for operator in self._operators),
            inputs=tuple(order[i] for i in self._graph.inputs),
            outputs=tuple(order[o] for o in outputs),
            constants=MappingProxyType(
                {new: self._constants[old] for old, new in order.items() if old in self._constants}
            ),
            states=self._graph.states,
            recipes=MappingProxyType({new: self._recipes[old] for old, new in order.items() if old in self._recipes}),
        )

    def _is_unchanged(self, outputs: tuple[int, ...], order: Mapping[int, int]) -> bool:
        """Whether operators, values and their numbers are those of the old graph."""
        graph = self._graph
        return (
            outputs == graph.outputs
            and self._values == graph.values
            and list(order.items()) == [(value, value) for value in range(len(graph.values))]
            and len(self._operators) == len(graph.operators)
            and all(new is old for new, old in zip(self._operators, graph.operators, strict=True))
        )

    def _settle_outputs(self) -> tuple[int, ...]:
        replaced = self._graph.producers()
        settled: dict[int, None] = {}
        for output in self._graph.outputs:
            value, name = self.current(output), self._graph.values[output].name
            if value not in self._makers or value in settled:
                origin = replaced[output]
                value = self.add("Identity", [value], {}, name=origin.name, sources=origin.sources)
            self._values[value] = replace(self._values[value], name=name)
            settled[value] = None
        return tuple(settled)


def _numbered(value: Value, number: int) -> Value:
    return value if value.id == number else replace(value, id=number)


def _renumbered(operator: Operator, numbers: Mapping[int, int]) -> Operator:
    inputs, outputs = (tuple(map(numbers.__getitem__, side)) for side in (operator.inputs, operator.outputs))
    predicate = None if operator.predicate is None else numbers[operator.predicate]
    if (inputs, outputs, predicate) == (operator.inputs, operator.outputs, operator.predicate):
        return operator
    return replace(operator, inputs=inputs, outputs=outputs, predicate=predicate)


def in_topological_order(operators: Sequence[Operator]) -> tuple[Operator, ...]:
    """The operators so that each follows those it reads from, otherwise in the given order.

    Raises:
        ValueError: they form a cycle.
    """
    makers = {output: position for position, operator in enumerate(operators) for output in operator.outputs}
    ordered = behind_others([{makers[i] for i in operator.needs if i in makers} for operator in operators])
    if len(ordered) < len(operators):
        raise ValueError("the operators form a cycle")
    return tuple(operators[position] for position in ordered)


def behind_others(before: Sequence[Collection[int]]) -> list[int]:
    """Positions, each behind those `before` it, otherwise in order; what depends on a cycle is left out."""
    missing = [len(others) for others in before]
    behind: list[list[int]] = [[] for _ in before]
    for position, others in enumerate(before):
        for other in others:
            behind[other].append(position)
    ready = [position for position, count in enumerate(missing) if not count]
    ordered = []
    while ready:
        position = heapq.heappop(ready)
        ordered.append(position)
        for later in behind[position]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, later)
    return ordered
