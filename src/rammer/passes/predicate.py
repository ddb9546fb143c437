"""predicate: what only one outcome of a condition needs runs only there.

    p = MatMul(x, w), y = Where(c, p, q)  ->  p = MatMul(x, w) if c, y = Where(c, p, q)

A predicate is one bool that is there whatever comes out: a condition itself, or a small operator that joins it to those
around it. Its test costs an rTask hardly anything; what it guards starts no sooner than the condition is known.

Ordering restriction: behind all passes that rewrite operators, which then have no predicates to keep. Passes that bring
operators together leave apart what `scopes` says is needed in different places.
"""

from __future__ import annotations

from dataclasses import replace

from rammer.ir.expr import Expr, Output, TensorExpr, const, load, select
from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType, TensorType
from rammer.passes.helpers.rewrite import Rewriter, in_topological_order
from rammer.passes.helpers.scopes import EVERYWHERE, Scope, find_scopes

_BOOL = TensorType(DType.BOOL, ())


def run(graph: Graph) -> Graph:
    """Give operators their predicates; see the module."""
    scopes = find_scopes(graph)
    if not scopes.narrow:
        return graph
    rewriter = Rewriter(graph)
    predicates = _Predicates(rewriter)
    operators = [
        replace(operator, predicate=predicates.of(scopes.of(operator.outputs[0]))) for operator in graph.operators
    ]
    for operator in in_topological_order([*predicates.operators, *operators]):
        rewriter.insert(operator)
    return rewriter.finish()


class _Predicates:
    """Bools that say whether a scope is reached, and the operators that make them."""

    def __init__(self, rewriter: Rewriter) -> None:
        self.operators: list[Operator] = []
        self._rewriter = rewriter
        self._known: dict[Scope, int] = {}

    def of(self, scope: Scope) -> int | None:
        """The value of a scope's predicate; None for everywhere."""
        wanted = []
        while scope is not EVERYWHERE and scope not in self._known:
            wanted.append(scope)
            assert scope.outer is not None
            scope = scope.outer
        for each in reversed(wanted):
            self._known[each] = self._made(each)
        return self._known.get(wanted[0] if wanted else scope)

    def _made(self, scope: Scope) -> int:
        outer = None if scope.outer is None or scope.outer is EVERYWHERE else self._known[scope.outer]
        value, place = scope.condition
        type_ = self._rewriter.type(value)
        if outer is None and scope.holds and type_.size == 1:
            return value
        element: Expr = load(0 if outer is None else 1, type_, place or (0,) * type_.rank)
        false = const(False, DType.BOOL)
        if not scope.holds:
            element = select(element, false, const(True, DType.BOOL))
        values, types = [value], [type_]
        if outer is not None:  # what else says of itself whether it is there
            values, types = [outer, value], [self._rewriter.type(outer), type_]
            element = select(load(0, types[0], (0,) * types[0].rank), element, false)
        name = f"{self._rewriter.name(value)}.{'then' if scope.holds else 'else'}"
        result = self._rewriter.value(_BOOL, name)
        output = Output(type=_BOOL, indices=(), body=element)
        expr = TensorExpr(axes=(), inputs=tuple(types), outputs=(output,))
        self.operators.append(Operator(kind="Predicate", name=name, inputs=tuple(values), outputs=(result,), expr=expr))
        return result
