"""write_twice: what the next step of a layer waits for, and others read later, is written once for each.

    h = Cell(x, h0, w); g = Cell(x', h, w); y = Concat(h, g)  ->  h, h' = Cell(..); g, g' = Cell(..); y = Concat(h', g')

A step takes the state of the step before as flagged words. Those are nothing that a caller could use, and sums over all
steps, as of gradients by weights or of a product behind the layer, cannot read them. Elementwise work can: what it
alone reads of layers by constants is written once. Weights of layers that are trained are states, and more is read of
them; there everything is written for others.

Ordering restriction: after `fuse_cells`, which makes cells what they are; no pass behind it may take two results of an
operator for one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

from rammer.ir.expr import Load, TensorExpr, nodes
from rammer.ir.graph import Graph, Operator
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.constants import read_again
from rammer.passes.helpers.rewrite import Rewriter
from rammer.tiling.cell_products import products_of
from rammer.tiling.pattern import contraction
from rammer.tiling.persistent_rnn import MOST_COLUMNS, column_axes

_SHARED = ("Concat", "Reshape", "Slice")
"""Kinds of operators whose results lie where their operands do; see `lowering.storage`."""


def run(graph: Graph, device: VDevice) -> Graph:
    """Write states twice; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: says which weights stay.
    """
    if not device.stationary_bytes:
        return graph
    vectors = _vectors(graph)
    plain = _Plain(graph, vectors)
    taken: set[int] = set()
    for outputs, of_step in vectors.items():
        taken |= {value for value in of_step if plain.is_read(value, of_trained=outputs in plain.trained)}
    wanted = _with_parts(graph, taken.difference(graph.outputs), vectors)
    return _Writing(graph, wanted, vectors).run() if wanted else graph


def _vectors(graph: Graph) -> dict[tuple[int, ...], frozenset[int]]:
    """What each step, a product of few vectors and weights that others read, too, multiplies, by its outputs."""
    kept = read_again(graph)
    known: dict[tuple[TensorExpr, frozenset[int]], frozenset[int]] = {}
    found: dict[tuple[int, ...], frozenset[int]] = {}
    for operator in graph.operators:
        if operator.expr is None or kept.isdisjoint(operator.inputs):
            continue
        constants = frozenset(slot for slot, value in enumerate(operator.inputs) if value in kept)
        key = (operator.expr, constants)
        if key not in known:
            known[key] = _vector_slots(graph, operator, constants)
        if known[key]:
            found[operator.outputs] = frozenset(operator.inputs[slot] for slot in known[key])
    return found


def _vector_slots(graph: Graph, operator: Operator, constants: frozenset[int]) -> frozenset[int]:
    """The slots of vectors that constants are multiplied with; none where a unit would not keep these."""
    layouts = tuple(graph.values[value].storage for value in (*operator.inputs, *operator.outputs))
    assert operator.expr is not None  # the caller's
    columns = column_axes(operator.expr, layouts, constants)
    if columns is None or math.prod(axis.extent for axis in columns) > MOST_COLUMNS:
        return frozenset()
    sums = contraction(operator.expr)
    products = None if sums is None else products_of(layouts, sums, constants)
    vectors = () if products is None else (product.vector for product in products.values())
    return frozenset(node.slot for node in nodes(*vectors) if isinstance(node, Load))


class _Plain:
    """Which of the vectors of steps others read as they are, without flags.

    Attributes:
        trained: the outputs of steps whose weights are states.
    """

    def __init__(self, graph: Graph, vectors: Mapping[tuple[int, ...], Collection[int]]) -> None:
        states = set(graph.inputs[len(graph.inputs) - len(graph.states) :])
        self._graph, self._vectors = graph, vectors
        self._consumers, self._producers = graph.consumers(), graph.producers()
        self.trained = {
            operator.outputs
            for operator in graph.operators
            if operator.outputs in vectors and not states.isdisjoint(operator.inputs)
        }

    def is_read(self, value: int, *, of_trained: bool) -> bool:
        """Whether others read a vector so, of a trained layer whether there are any."""
        if value in self._graph.outputs:
            return True
        readers = (one for one in self._consumers[value] if value not in self._vectors.get(one.outputs, ()))
        return any(of_trained or self._reads_plain(reader) for reader in readers)

    def _reads_plain(self, reader: Operator) -> bool:
        if reader.expr is None or reader.expr.reductions:
            return True
        if reader.kind == "Concat" and not all(map(self._is_of_step, reader.inputs)):
            return True  # what others make has no flags, and lies in the same tensor
        return reader.kind in _SHARED and any(self.is_read(value, of_trained=False) for value in reader.outputs)

    def _is_of_step(self, value: int) -> bool:
        """Whether a step makes it that multiplies what others made: the first of a layer may have no vector."""
        maker = self._producers.get(value)
        return maker is not None and not self._graph.constants.keys() >= set(self._vectors.get(maker.outputs, ()))


def _with_parts(graph: Graph, values: Collection[int], steps: Collection[tuple[int, ...]]) -> frozenset[int]:
    """Those of some values that steps make, or that are made of what steps make, which is then among them."""
    producers = graph.producers()
    found: set[int] = set()
    for value in values:
        maker = producers.get(value)
        if maker is None:
            continue
        parts = maker.inputs if maker.kind == "Concat" else (value,)
        if all(part in producers and producers[part].outputs in steps for part in parts):
            found |= {value, *parts}
    return frozenset(found)


class _Writing:
    """Writes `wanted` twice: for steps, and for all others."""

    def __init__(
        self, graph: Graph, wanted: Collection[int], vectors: Mapping[tuple[int, ...], Collection[int]]
    ) -> None:
        self._graph = graph
        self._wanted = wanted
        self._vectors = vectors
        self._rewriter = Rewriter(graph)
        self._second: dict[int, int] = {}

    def run(self) -> Graph:
        """The graph."""
        for operator in self._graph.operators:
            taken = self._vectors.get(operator.outputs, ())
            twice = [value for value in operator.outputs if value in self._wanted]
            if operator.kind == "Concat" and twice:
                self._rewriter.insert(operator)
                self._rewriter.insert(self._reading_second(operator, (), self._new(twice)))
                continue
            outputs = (*operator.outputs, *self._new(twice))
            self._rewriter.insert(self._reading_second(operator, taken, outputs))
        return self._rewriter.finish()

    def _new(self, values: Collection[int]) -> tuple[int, ...]:
        """New values beside some."""
        for value in values:
            entry = self._graph.values[value]
            self._second[value] = self._rewriter.value(entry.type, f"{entry.name}.again", entry.layout)
        return tuple(self._second[value] for value in values)

    def _reading_second(self, operator: Operator, taken: Collection[int], outputs: tuple[int, ...]) -> Operator:
        """An operator that reads what is written for others, but for what it takes, and makes `outputs`."""
        expr, inputs = operator.expr, []
        for value in operator.inputs:
            inputs.append(value if value in taken else self._second.get(value, value))
        if expr is not None and len(outputs) > len(operator.outputs):
            again = [expr.outputs[operator.outputs.index(value)] for value in operator.outputs if value in self._second]
            expr = TensorExpr(axes=expr.axes, inputs=expr.inputs, outputs=(*expr.outputs, *again))
        return replace(operator, expr=expr, inputs=tuple(inputs), outputs=outputs)
