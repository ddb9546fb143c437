"""hoist_pointwise: move pointwise operators before the views between them and the operator they can fuse with.

    z = relu(concat(x, y))                        ->  z = concat(relu(x), relu(y))
    z = relu(reshape(x))                          ->  z = reshape(relu(x))
    y0 = relu(slice0(x)), y1 = relu(slice1(x))    ->  x' = relu(x), y0 = slice0(x'), y1 = slice1(x')
    z = relu(slice(x))                            ->  z = slice(relu(x)), where nobody reads x's margin

Constants that broadcast are cut or joined with the operand. No element is computed more often than before: all parts
of an operand have to be treated equally; only a small margin may be computed for nothing. For the first two rules and
the last, operators that can take the work must make the operands: the views themselves cost nothing, they only stand
between a product and its epilogue. Parts of several concatenations stay as they are, for each of them would want
another form.

Ordering restriction: after `merge_products`, which makes the slices; also before `fold_batch_norm`, which sees more
products that way; before `inline_views` and `fuse`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Graph, Operator, SourceLocation
from rammer.operators.attributes import integer, integers
from rammer.passes.helpers.pointwise import Pointwise, pointwise
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter

LARGEST_PARTS = 16
"""Concatenations of more parts keep what follows them: one operator is better than very many small ones."""


def run(graph: Graph) -> Graph:
    """Hoist pointwise operators; see the module."""
    return _Hoisting(graph).run()


class _Hoisting:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._rewriter = Rewriter(graph)
        self._consumers = graph.consumers()
        self._originals: dict[int, int] = {}  # the values of the graph that new ones stand for
        self._slices: dict[int, list[Operator]] = {}  # by the value that they read

    def run(self) -> Graph:
        """Walk the operators; what stands before each one is hoisted already."""
        rules = {"Concat": self._over_concat, "Reshape": self._over_reshape, "Slice": self._over_slices}
        for operator in self._graph.operators:
            if self._rewriter.current(operator.outputs[0]) != operator.outputs[0]:
                continue
            step = self._pointwise(operator)
            view = None if step is None else self._rewriter.maker(step.operand)
            hoisted = step is not None and view is not None and view.kind in rules and rules[view.kind](step, view)
            if not hoisted:
                self._rewriter.insert(operator)
                self._note_slice(operator.outputs[0])
        return self._rewriter.finish()

    def _pointwise(self, operator: Operator) -> Pointwise | None:
        variable = [value for value in operator.inputs if value not in self._graph.constants]
        return pointwise(operator, variable[0], self._graph.constants) if len(variable) == 1 else None

    def _note_slice(self, value: int) -> None:
        maker = self._rewriter.maker(value)
        if maker is not None and maker.kind == "Slice":
            self._slices.setdefault(maker.inputs[0], []).append(maker)

    def _over_concat(self, step: Pointwise, view: Operator) -> bool:
        parts = [self._rewriter.current(part) for part in view.inputs]
        several = any(self._concatenations(part) > 1 for part in parts)
        if len(parts) > LARGEST_PARTS or several or not self._can_take_work(parts):
            return False
        dim = integer(view.attributes, "axis")
        start = 0
        for i, part in enumerate(parts):
            extent = self._rewriter.type(part).shape[dim]
            operands = [self._cut(step, slot, dim, start, extent) for slot in range(len(step.expr.inputs))]
            operands[step.data] = part
            parts[i] = self._add(step, step.resized(dim, extent), operands, f".{i}", step.operator.sources)
            start += extent
        self._stand_for(step.operator, view, parts)
        return True

    def _over_reshape(self, step: Pointwise, view: Operator) -> bool:
        operand = self._rewriter.current(view.inputs[0])
        if len(step.expr.inputs) > 1 or not self._can_take_work([operand]):
            return False
        made = self._add(step, step.reshaped(self._rewriter.type(operand).shape), [operand], "", step.operator.sources)
        self._stand_for(step.operator, view, [made])
        return True

    def _over_slices(self, step: Pointwise, view: Operator) -> bool:
        operand = self._rewriter.current(view.inputs[0])
        shape = self._rewriter.type(operand).shape
        parts = _partition(self._slices.get(operand, []), shape)
        if parts is None:
            return self._over_margin(step, view)
        dim, views = parts
        whole = step.resized(dim, shape[dim])
        steps = [
            found for view in views if (found := self._equal_reader(view.outputs[0], step, dim, whole)) is not None
        ]
        joined = self._joined(steps, dim) if len(steps) == len(views) else None
        if joined is None:
            return False
        joined[step.data] = operand
        made = self._add(step, whole, joined, "", [source for found in steps for source in found.operator.sources])
        for part, found in zip(views, steps, strict=True):
            self._stand_for(found.operator, part, [made])
        return True

    def _over_margin(self, step: Pointwise, view: Operator) -> bool:
        operand = self._rewriter.current(view.inputs[0])
        shape, kept = self._rewriter.type(operand), self._rewriter.type(view.outputs[0])
        original = self._originals.get(operand, operand)
        # What hoisting made is read by slices only.
        readers = self._consumers.get(original, self._slices[operand])
        if (
            len(readers) > 1
            or original in self._graph.outputs
            or 2 * kept.size < shape.size
            or not self._can_take_work([operand])
        ):
            return False
        whole = step
        strides = integers(view.attributes, "steps")
        for dim, (extent, part, stride) in enumerate(zip(shape.shape, kept.shape, strides, strict=True)):
            moves = extent != part or stride != 1  # all elements in the reverse order move, too
            if moves and any(step.followed_by(slot, dim) is not None for slot in step.constants):
                return False
            if extent != part:
                whole = replace(whole, expr=whole.resized(dim, extent))
        operands = [operand if slot == step.data else value for slot, value in enumerate(step.operator.inputs)]
        made = self._add(step, whole.expr, operands, "", step.operator.sources)
        self._stand_for(step.operator, view, [made])
        return True

    def _equal_reader(self, value: int, step: Pointwise, dim: int, whole: TensorExpr) -> Pointwise | None:
        """A reader of a part of a value that is `step` for that part."""
        for reader in self._consumers.get(self._originals.get(value, value), []):
            waits = self._rewriter.current(reader.outputs[0]) == reader.outputs[0]
            found = self._pointwise(reader) if waits and reader.kind == step.operator.kind else None
            if found is not None and found.data == step.data and found.resized(dim, whole.axes[dim].extent) == whole:
                return found
        return None

    def _joined(self, steps: Sequence[Pointwise], dim: int) -> list[int] | None:
        """The operands of equal operators on the parts of a value, for one on the whole; the data's are left out."""
        first = steps[0]
        operands = list(first.operator.inputs)
        for slot, value in enumerate(first.operator.inputs):
            if slot == first.data:
                continue
            along = first.followed_by(slot, dim)
            arrays = [self._graph.constants[step.operator.inputs[slot]] for step in steps]
            if along is not None:
                operands[slot] = self._rewriter.constant(np.concatenate(arrays, axis=along), self._rewriter.name(value))
            elif not all(np.array_equal(array, arrays[0]) for array in arrays):
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

    def _can_take_work(self, values: Sequence[int]) -> bool:
        """Whether operators that are no views make all of `values`."""
        makers = [self._rewriter.maker(value) for value in values]
        return all(maker is not None and maker.kind not in PLACED_KINDS for maker in makers)

    def _concatenations(self, value: int) -> int:
        return sum(reader.kind == "Concat" for reader in self._consumers.get(value, ()))

    def _add(
        self, step: Pointwise, expr: TensorExpr, operands: Sequence[int], suffix: str, sources: Sequence[SourceLocation]
    ) -> int:
        """The moved operator. It keeps its attributes, which do not depend on shapes."""
        old = step.operator
        return self._rewriter.add_expression(
            expr,
            operands,
            kind=old.kind,
            name=old.name + suffix,
            sources=tuple(dict.fromkeys(sources)),
            attributes=old.attributes,
        )

    def _stand_for(self, operator: Operator, view: Operator, operands: Sequence[int]) -> None:
        """Build a view anew, on what the moved operator made; it stands for that operator's result."""
        (output,) = operator.outputs
        name = self._rewriter.name(output)
        made = self._rewriter.add(view.kind, operands, view.attributes, name=name, sources=view.sources)
        self._rewriter.replace(output, made)
        self._originals[made] = output
        self._note_slice(made)


def _partition(views: Sequence[Operator], shape: Sequence[int]) -> tuple[int, list[Operator]] | None:
    """The dimension along which slices with step 1 cut a value into all its parts, and the slices in order."""
    names = ("starts", "steps", "sizes")
    cuts = [tuple(zip(*(integers(view.attributes, name) for name in names), strict=True)) for view in views]
    dims = [dim for dim, extent in enumerate(shape) if any(cut[dim] != (0, 1, extent) for cut in cuts)]
    if len(dims) != 1:
        return None
    (dim,) = dims
    ordered = sorted(range(len(views)), key=lambda i: cuts[i][dim])
    end = 0
    for start, step, size in (cuts[i][dim] for i in ordered):
        if start != end or step != 1:
            return None
        end += size
    return (dim, [views[i] for i in ordered]) if end == shape[dim] else None
