"""write_twice: what the next step of a layer waits for, and others read later, is written once for each.

    h = Cell(x, h0, w); g = Cell(x', h, w); y = Concat(h, g)  ->  h, h' = Cell(..); g, g' = Cell(..); y = Concat(h', g')

A step takes the state of the step before as flagged words, which products over all steps, as gradients by weights are,
cannot read. So this is for layers that are trained, whose weights are states. Layers by constants stay as they are:
what reads all their steps is mostly another layer.

Ordering restriction: after `fuse_cells`, which makes cells what they are; no pass behind it may take two results of an
operator for one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Graph, Operator
from rammer.ir.vdevice import VDevice
from rammer.ir.workload import Workload
from rammer.passes.helpers.constants import read_again
from rammer.passes.helpers.predicted import laid_out
from rammer.passes.helpers.rewrite import Rewriter
from rammer.tiling.pattern import contraction
from rammer.tiling.persistent_rnn import plan_of


def run(graph: Graph, device: VDevice) -> Graph:
    """Write states twice; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: says which weights stay.
    """
    if not device.stationary_bytes or not graph.states:
        return graph
    vectors = _vectors(graph, device)
    taken = {value for of_step in vectors.values() for value in of_step}
    others = {
        value
        for operator in graph.operators
        for value in operator.inputs
        if value not in vectors.get(operator.outputs, ())
    }
    wanted = _with_parts(graph, (taken & others).difference(graph.outputs), vectors)
    return _Writing(graph, wanted, vectors).run() if wanted else graph


def _vectors(graph: Graph, device: VDevice) -> dict[tuple[int, ...], frozenset[int]]:
    """The vectors of each step, an operator with weights that are states and stay, by its outputs."""
    kept = read_again(graph)
    weights = kept.difference(graph.constants)
    known: dict[tuple[TensorExpr, frozenset[int]], frozenset[int]] = {}
    found: dict[tuple[int, ...], frozenset[int]] = {}
    for operator in graph.operators if weights else ():
        expr = operator.expr
        if expr is None or weights.isdisjoint(operator.inputs) or contraction(expr) is None:
            continue
        constants = frozenset(slot for slot, value in enumerate(operator.inputs) if value in kept)
        if (expr, constants) not in known:
            layouts = [graph.values[value].storage for value in (*operator.inputs, *operator.outputs)]
            workload = Workload(expr, laid_out(expr, layouts, constants, device), constants=constants)
            kernels = device.rules.persistent(workload.tagged(), device)
            parts = plan_of(kernels[0]).parts if kernels else ()
            known[expr, constants] = frozenset(load.slot for part in parts for load in part.loads)
        if known[expr, constants]:
            found[operator.outputs] = frozenset(operator.inputs[slot] for slot in known[expr, constants])
    return found


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
