"""How many instructions a thread takes for the values of an expression."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rammer.ir.expr import Call, Cast, Const, Expr, Load, Reduce, ScalarFn, TensorExpr

_FUNCTIONS: Mapping[ScalarFn, int] = {
    ScalarFn.DIV: 15,
    ScalarFn.SQRT: 15,
    ScalarFn.EXP: 14,
    ScalarFn.LOG: 26,
    ScalarFn.SIN: 36,
    ScalarFn.COS: 36,
    ScalarFn.TANH: 24,
    ScalarFn.ERF: 31,
    ScalarFn.SIGMOID: 24,
    ScalarFn.POW: 56,
    ScalarFn.FLOORDIV: 4,
    ScalarFn.MOD: 12,
}
"""Instructions of functions that are more than one, waits for their results among them."""


def instructions_of(node: Expr) -> int:
    """Those of one value whose operands are there; none for what is no arithmetic."""
    match node:
        case Call(ScalarFn.FLOORDIV | ScalarFn.MOD, (_, Const(value, _))) if int(value).bit_count() == 1:
            return 1  # a shift, a mask
        case Call(fn, _):
            return _FUNCTIONS.get(fn, 1)
        case Cast():
            return 1
    return 0


@lru_cache(maxsize=1024)
def epilogue_instructions(expr: TensorExpr) -> int:
    """Those of all that a point computes outside of reductions."""
    seen: set[Expr] = set()
    stack = list(expr.roots)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(() if isinstance(node, Load | Reduce) else node.children)
    return sum(map(instructions_of, seen))
