"""inline_views: read the data itself instead of a view of it; see `views` for what that means and when it is done.

    y = Transpose(x), z = Conv(Slice(y), w)  ->  z = Conv'(x, w), whose loads have other indices

The views stay for readers that need them (a `Concat` or `Reshape`, which lowering places by their kind, a graph
output) and are dead otherwise. A padded load keeps reading a `Slice`: lowering binds it to the part of the tensor, and
then the operator's other loads read the `Slice`, too: branches on different parts stay equal. So do reductions that
many operators have in common, as the steps of a recurrent layer do, where they read slices that lowering only binds.
A padded load that may not go through a view of a view goes through the last of them at least: of rows that become an
image it reads the `Reshape`. Products of bytes read padding from memory: several bytes are one load where none of them
is a condition.

Ordering restriction: before `fuse`, which combines loads of the same data only; `eliminate_dead` should follow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import replace

from rammer.ir.expr import Cast, Expr, Load, TensorExpr, cast
from rammer.ir.graph import Graph, Operator, SourceLocation
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import ByteProducts
from rammer.operators.attributes import integers
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.helpers.slots import map_bodies, without_unused_slots
from rammer.passes.helpers.views import Joined, View, joined, view_of
from rammer.tiling.pattern import contraction

_MANY = 8
"""Equal operators that are left equal: what follows looks at each distinct expression once."""


def run(graph: Graph) -> Graph:
    """Inline views; see the module."""
    inlining = _Inlining(graph)
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        rewriter.insert(inlining.visit(operator))
    return rewriter.finish()


class _Inlining:
    """Operators in topological order, each reading through the views before it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._equal = Counter(operator.expr for operator in graph.operators)
        self._bound = _bound_parts(graph)
        self._cut = {operator.outputs[0] for operator in graph.operators if operator.kind == "Slice"}
        self._views: dict[int, View | Joined] = {}
        self._last: dict[int, View] = {}  # views of what may be a view itself
        self._sources: dict[int, tuple[SourceLocation, ...]] = {}

    def visit(self, operator: Operator) -> Operator:
        """What becomes of an operator; it is remembered if it is a view itself."""
        changed = self._inlined(operator)
        view = joined(operator) or view_of(changed)
        if view is not None:
            (output,) = operator.outputs
            self._views[output] = view
            last = view_of(operator)
            if last is not None and last != view:
                self._last[output] = last
            self._sources[output] = () if isinstance(view, Joined) else changed.sources
        return operator if operator.kind in PLACED_KINDS else changed

    def _inlined(self, operator: Operator) -> Operator:
        """The operator with its loads led through views."""
        if operator.expr is None or self._views.keys().isdisjoint(operator.inputs):
            return operator
        slots = {slot for slot, value in enumerate(operator.inputs) if value in self._views}
        slots -= self._kept(operator.inputs, operator.expr)
        if operator.expr.reductions and self._equal[operator.expr] >= _MANY:
            slots -= {slot for slot in slots if self._is_bound(operator.inputs[slot])}
        if not slots:
            return operator
        operands = _Operands(operator.inputs, self._views)
        sources: dict[SourceLocation, None] = {}

        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, Load) or node.slot not in slots:
                return None
            element = self._through(node.at(operator.inputs[node.slot], node.indices), sources)
            found = _load_of(element)
            slot = operands.slot(found.slot, node.slot)
            return cast(element.dtype, found.at(slot, found.indices))

        expr = map_bodies(operator.expr, visit)
        if expr == operator.expr and operands.values == operator.inputs:
            return operator
        expr = replace(expr, inputs=tuple(map(self._type, operands.values)))
        expr, inputs = without_unused_slots(expr, operands.values)
        sources.update(dict.fromkeys(operator.sources))
        return replace(operator, expr=expr, inputs=inputs, attributes={}, sources=tuple(sources))

    def _kept(self, inputs: Sequence[int], expr: TensorExpr) -> set[int]:
        """The slots whose padded loads have to read a view."""
        padded = [load for load in expr.loads if load.fill is not None]
        ends = [(load.slot, replace(load, slot=inputs[load.slot])) for load in padded]
        kept = {slot for slot, load in ends if load.slot in self._views and self._through(load, {}) is load}
        return kept | {
            load.slot for load in _of_bytes(expr) if self._is_padding(load.at(inputs[load.slot], load.indices))
        }

    def _is_padding(self, load: Load) -> bool:
        """Whether a load means padding where it meant none before, along any dimension."""
        if load.slot not in self._views:
            return False
        through = _load_of(self._through(load, {}))
        shapes = self._type(load.slot).shape, self._type(through.slot).shape
        is_wider = len(shapes[0]) == len(shapes[1]) and any(a > b for a, b in zip(*shapes, strict=True))
        return through.fill != load.fill or (through.fill is not None and is_wider)

    def _is_bound(self, value: int) -> bool:
        """Whether a value is cut from one that is no view: looked through, each part would have indices of its own."""
        is_cut = False
        while value in self._bound:
            is_cut |= value in self._cut
            value = self._bound[value]
            if value not in self._views:
                return is_cut
        return False

    def _through(self, load: Load, sources: dict[SourceLocation, None]) -> Expr:
        """The element that a load means, led through as many views as possible; their sources are added."""
        view = self._views.get(load.slot)
        if view is None:
            return load
        if isinstance(view, Joined):
            element = view.through(load)
        else:
            element = view.through(load, self._type(view.value).shape)
        if element is None and (last := self._last.get(load.slot)) is not None:
            element = last.through(load, self._type(last.value).shape)
        if element is None:
            return load
        sources.update(dict.fromkeys(self._sources[load.slot]))
        return cast(element.dtype, self._through(_load_of(element), sources))

    def _type(self, value: int) -> TensorType:
        return self._graph.values[value].type


def _of_bytes(expr: TensorExpr) -> tuple[Load, ...]:
    """The loads of bytes that are multiplied: several are one load, where none of them may be padding."""
    found = contraction(expr, ByteProducts.QUADS) or contraction(expr, ByteProducts.PLAIN)
    terms = () if found is None else found.terms
    operands = [operand for term in terms if term.multiplied is DType.INT8 for operand in term.operands]
    return tuple(operand for operand in operands if isinstance(operand, Load))


def _bound_parts(graph: Graph) -> dict[int, int]:
    """The values that lowering binds to parts of others, without a copy: of which value each is a part."""
    placed = {*graph.outputs, *(value for op in graph.operators if op.kind == "Concat" for value in op.inputs)}
    return {
        operator.outputs[0]: operator.inputs[0]
        for operator in graph.operators
        if _is_part(operator, graph) and operator.outputs[0] not in placed
    }


def _is_part(operator: Operator, graph: Graph) -> bool:
    """Whether an operator is a slice without steps, or a reshape that adds or drops dimensions of extent 1."""
    if operator.kind == "Slice":
        return set(integers(operator.attributes, "steps")) <= {1}
    if operator.kind != "Reshape":
        return False
    old, new = (graph.values[value].type.shape for value in (operator.inputs[0], operator.outputs[0]))
    return [extent for extent in old if extent != 1] == [extent for extent in new if extent != 1]


class _Operands:
    """The slots of an operator that is changing.

    What replaces an operand takes its slot if that is free, so that most of the expression stays as it is.
    """

    def __init__(self, inputs: tuple[int, ...], replaceable: Container[int]) -> None:
        self._values = list(inputs)
        self._slots: dict[int, int] = {}
        for slot, value in enumerate(inputs):
            if value not in replaceable:
                self._slots.setdefault(value, slot)

    @property
    def values(self) -> tuple[int, ...]:
        """The value of each slot."""
        return tuple(self._values)

    def slot(self, value: int, preferred: int) -> int:
        """The slot of a value: its own if it has one, else `preferred` if nothing took that, else a new one."""
        if value not in self._slots:
            if preferred in self._slots.values():
                preferred = len(self._values)
                self._values.append(value)
            self._values[preferred] = value
            self._slots[value] = preferred
        return self._slots[value]


def _load_of(element: Expr) -> Load:
    """The load that an element of a view is, or converts."""
    inner = element.arg if isinstance(element, Cast) else element
    if not isinstance(inner, Load):
        raise TypeError(f"a view gave {element}")
    return inner
