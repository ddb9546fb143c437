"""hoist_pointwise: move pointwise operators before the views between them and the operator they can fuse with.

    z = relu(concat(x, y))                        ->  z = concat(relu(x), relu(y))
    z = relu(reshape(x))                          ->  z = reshape(relu(x))
    y0 = relu(slice0(x)), y1 = relu(slice1(x))    ->  x' = relu(x), y0 = slice0(x'), y1 = slice1(x')

Constants that broadcast are cut or joined with the operand. Nobody else may read what is moved over, no element may
be computed more often, and for the first two rules an operator that can take the work must make the operands: the
views themselves cost nothing, they only stand between a product and its epilogue.

Ordering restriction: after `merge_products`, which makes the slices; before `inline_views` and `fuse`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

import numpy as np

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Graph, Operator
from rammer.operators.attributes import integer, integers
from rammer.passes.pointwise import Pointwise, pointwise
from rammer.passes.rewrite import PLACED_KINDS, Rewriter

LARGEST_PARTS = 16
"""Concatenations of more parts keep what follows them: one operator is better than very many small ones."""


def run(graph: Graph) -> Graph:
    """Hoist pointwise operators; see the module."""
    return _Hoisting(graph).run()


class _Hoisting:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriter = Rewriter(graph)
        self._producers = graph.producers()
        self._consumers = graph.consumers()
        self._outputs = frozenset(graph.outputs)
        self._done: set[int] = set()  # results of operators that were moved ahead of their turn

    def run(self) -> Graph:
        """Walk the operators; a view may take those that read it along."""
        rules = {"Concat": self._over_concat, "Reshape": self._over_reshape, "Slice": self._over_slices}
        for operator in self._graph.operators:
            if self._done.isdisjoint(operator.outputs):
                hoisted = operator.kind in rules and rules[operator.kind](operator)
                if not hoisted:
                    self._rewriter.insert(operator)
        return self._rewriter.finish()

    def _over_concat(self, view: Operator) -> bool:
        chain = list(self._chain(view.outputs[0]))
        if not chain or len(view.inputs) > LARGEST_PARTS or not self._can_take_work(view):
            return False
        dim = integer(view.attributes, "axis")
        parts = list(view.inputs)
        extents = [self._rewriter.type(part).shape[dim] for part in parts]
        for step in chain:
            start = 0
            for i, extent in enumerate(extents):
                operands = [self._cut(step, slot, dim, start, extent) for slot in range(len(step.expr.inputs))]
                operands[step.data] = parts[i]
                parts[i] = self._add(step, step.resized(dim, extent), operands, f".{i}")
                start += extent
        self._finish(view, parts, chain)
        return True

    def _over_reshape(self, view: Operator) -> bool:
        chain = list(takewhile(lambda step: len(step.expr.inputs) == 1, self._chain(view.outputs[0])))
        if not chain or not self._can_take_work(view):
            return False
        (operand,) = view.inputs
        for step in chain:
            operand = self._add(step, step.reshaped(self._rewriter.type(operand).shape), [operand], "")
        self._finish(view, [operand], chain)
        return True

    def _over_slices(self, view: Operator) -> bool:
        (operand,) = view.inputs
        views = [reader for reader in self._consumers[operand] if reader.kind == "Slice"]
        if view is not views[0] or len(views) < len(self._consumers[operand]) or operand in self._outputs:
            return False
        dim = self._partitioned(operand, views)
        if dim is None:
            return False
        extent = self._rewriter.type(operand).shape[dim]
        views.sort(key=lambda part: integers(part.attributes, "starts")[dim])
        chains = [list(self._chain(part.outputs[0])) for part in views]
        length = 0
        for steps in zip(*chains, strict=False):
            joined = self._joined(steps, dim, extent)
            if joined is None:
                break
            joined[steps[0].data] = operand
            operand = self._add(steps[0], steps[0].resized(dim, extent), joined, "")
            length += 1
        if not length:
            return False
        for part, chain in zip(views, chains, strict=True):
            self._finish(part, [operand], chain[:length])
        return True

    def _chain(self, value: int) -> Iterator[Pointwise]:
        """The pointwise operators that follow a value one after the other, each its operand's only reader."""
        while value not in self._outputs and len(self._consumers.get(value, ())) == 1:
            found = pointwise(self._consumers[value][0], value, self._graph.constants)
            if found is None:
                return
            yield found
            (value,) = found.operator.outputs

    def _can_take_work(self, view: Operator) -> bool:
        """Whether operators that are no views make all operands."""
        makers = [self._producers.get(value) for value in view.inputs]
        return all(maker is not None and maker.kind not in PLACED_KINDS for maker in makers)

    def _partitioned(self, operand: int, views: Sequence[Operator]) -> int | None:
        """The dimension along which slices with step 1 cut an operand into all its parts."""
        shape = self._rewriter.type(operand).shape
        cuts = [
            tuple(zip(*(integers(view.attributes, name) for name in ("starts", "steps", "sizes")), strict=True))
            for view in views
        ]
        dims = [dim for dim, extent in enumerate(shape) if any(cut[dim] != (0, 1, extent) for cut in cuts)]
        if len(dims) != 1:
            return None
        (dim,) = dims
        end = 0
        for start, step, size in sorted(cut[dim] for cut in cuts):
            if start != end or step != 1:
                return None
            end += size
        return dim if end == shape[dim] else None

    def _joined(self, steps: Sequence[Pointwise], dim: int, extent: int) -> list[int] | None:
        """The operands of equal operators on the parts of a value, for one on the whole; the data's are left out."""
        first = steps[0]
        whole = first.resized(dim, extent)
        if any(step.data != first.data or step.resized(dim, extent) != whole for step in steps):
            return None
        operands = []
        for slot, value in enumerate(first.operator.inputs):
            along = first.followed_by(slot, dim)
            if slot == first.data:
                operands.append(value)
                continue
            arrays = [self._graph.constants[step.operator.inputs[slot]] for step in steps]
            if along is not None:
                name = self._rewriter.name(value)
                operands.append(self._rewriter.constant(np.concatenate(arrays, axis=along), name))
            elif all(np.array_equal(array, arrays[0]) for array in arrays):
                operands.append(value)
            else:
                return None
        return operands

    def _cut(self, step: Pointwise, slot: int, dim: int, start: int, extent: int) -> int:
        """A slot's operand for the part of the result that begins at `start` of dimension `dim`."""
        value = step.operator.inputs[slot]
        along = step.followed_by(slot, dim)
        if slot == step.data or along is None:
            return value
        part = np.take(self._graph.constants[value], range(start, start + extent), axis=along)
        return self._rewriter.constant(part, f"{self._rewriter.name(value)}.{start}")

    def _add(self, step: Pointwise, expr: TensorExpr, operands: Sequence[int], suffix: str) -> int:
        old = step.operator
        return self._rewriter.add_expression(expr, operands, kind=old.kind, name=old.name + suffix, sources=old.sources)

    def _finish(self, view: Operator, operands: Sequence[int], chain: Sequence[Pointwise]) -> None:
        """Build the view on the new operands; it is what the last of the moved operators gave."""
        last = chain[-1].operator.outputs[0]
        name = self._rewriter.name(last)
        made = self._rewriter.add(view.kind, operands, view.attributes, name=name, sources=view.sources)
        self._rewriter.replace(last, made)
        self._done.update(view.outputs)
        self._done.update(step.operator.outputs[0] for step in chain)
