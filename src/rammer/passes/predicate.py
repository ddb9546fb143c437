"""predicate: what only one outcome of a condition needs runs only there.

    p = MatMul(x, w), y = Where(c, p, q)  ->  p = MatMul(x, w) if c, y = Where(c, p, q)

A predicate is one bool that is there whatever comes out: a condition itself, or a small operator that joins it to those
around it. Its test costs an rTask hardly anything; what it guards starts no sooner than the condition is known.

Ordering restriction: the last pass, for no other has to keep predicates then. Passes that bring operators together
leave apart what `scopes` says is needed in different places.
"""

from __future__ import annotations

from collections.abc import Sequence
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
        if outer is None and scope.holds:
            return scope.value
        values = [scope.value] if outer is None else [outer, scope.value]
        result = self._rewriter.value(_BOOL, f"{self._rewriter.name(scope.value)}.{'then' if scope.holds else 'else'}")
        self.operators.append(
            Operator(
                kind="Predicate",
                name=self._rewriter.name(result),
                inputs=tuple(values),
                outputs=(result,),
                expr=_joined([self._rewriter.type(value) for value in values], holds=scope.holds),
            )
        )
        return result


def _joined(types: Sequence[TensorType], *, holds: bool) -> TensorExpr:
    """Whether the last of some bools is `holds`, and the one before it true. It looks at the last one only then."""
    element: Expr = load(len(types) - 1, types[-1], (0,) * types[-1].rank)
    false = const(False, DType.BOOL)
    if not holds:
        element = select(element, false, const(True, DType.BOOL))
    if len(types) > 1:
        element = select(load(0, types[0], (0,) * types[0].rank), element, false)
    return TensorExpr(axes=(), inputs=tuple(types), outputs=(Output(type=_BOOL, indices=(), body=element),))
