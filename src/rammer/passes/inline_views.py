"""inline_views: read the data itself instead of a view of it; see `views` for what that means and when it is done.

    y = Transpose(x), z = Conv(Slice(y), w)  ->  z = Conv'(x, w), whose loads have other indices

The views stay for readers that need them (a `Concat` or `Reshape`, which lowering places by their kind, a graph
output) and are dead otherwise. A padded load keeps reading a `Slice`: lowering binds it to the part of the tensor.

Ordering restriction: before `fuse`, which combines loads of the same data only; `eliminate_dead` should follow.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.expr import Cast, Expr, Load, cast
from rammer.ir.graph import Graph, Operator, SourceLocation
from rammer.ir.types import TensorType
from rammer.passes.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.views import Joined, View, joined, view_of
from rammer.passes.work import lift, lower


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
        self._views: dict[int, View | Joined] = {}
        self._sources: dict[int, tuple[SourceLocation, ...]] = {}

    def visit(self, operator: Operator) -> Operator:
        """What becomes of an operator; it is remembered if it is a view itself."""
        changed = self._inlined(operator)
        view = joined(operator) or view_of(changed)
        if view is not None:
            (output,) = operator.outputs
            self._views[output] = view
            self._sources[output] = () if isinstance(view, Joined) else changed.sources
        return operator if operator.kind in PLACED_KINDS else changed

    def _inlined(self, operator: Operator) -> Operator:
        if operator.expr is None or self._views.keys().isdisjoint(operator.inputs):
            return operator
        work = lift(operator)
        sources: dict[SourceLocation, None] = {}
        inlined = work.rewritten(lambda node: self._through(node, sources) if isinstance(node, Load) else None)
        if inlined == work:
            return operator
        sources.update(dict.fromkeys(operator.sources))
        expr, inputs = lower(inlined, self._type)
        return replace(operator, expr=expr, inputs=inputs, attributes={}, sources=tuple(sources))

    def _through(self, load: Load, sources: dict[SourceLocation, None]) -> Expr:
        """The element that a load means, led through as many views as possible; their sources are added."""
        view = self._views.get(load.slot)
        if view is None:
            return load
        if isinstance(view, Joined):
            element = view.through(load)
        else:
            element = view.through(load, self._type(view.load.slot).shape)
        if element is None:
            return load
        sources.update(dict.fromkeys(self._sources[load.slot]))
        inner = element.arg if isinstance(element, Cast) else element
        if not isinstance(inner, Load):
            raise TypeError(f"a view gave {element}")
        return cast(element.dtype, self._through(inner, sources))

    def _type(self, value: int) -> TensorType:
        return self._graph.values[value].type
