"""What attention looks like: sums of values, weighted with the softmax of scores.

    s[j] = f(sum[c](q[c] * k[j, c]))
    y[d] = sum[j](exp(s[j] - max[m](s[m])) * v[j, d]) / sum[j](exp(s[j] - max[m](s[m])))

`f` is any elementwise work on the product, on positions and on further operands: a scale, a mask, a bias, a soft cap.
A skeleton for it needs no more than one pass over the keys: what it has summed is rescaled whenever a greater score
comes (Milakov and Gimelshein 2018; Dao et al. 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from rammer.ir.expr import (
    Axis,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceFn,
    ScalarFn,
    TensorExpr,
    nodes,
    substitute,
)
from rammer.ir.region import Affine, affine
from rammer.ir.types import DType
from rammer.tiling.pattern import free_axes


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """An expression seen as attention.

    Attributes:
        weighted: the sum of the weighted values; over the one axis `keys`.
        total: the sum of the weights.
        greatest: the greatest score.
        product: the sum of products that a score is made of; over the axes `depth`.
        score: what the weights are exponentials of, at a key; it contains `product`.
        weight: a value's weight at a key: an exponential, perhaps rounded.
        query: the factor of `product` that does not depend on the key.
        key: the factor that does.
        value: what is weighted at a key.
        rows: axes of the domain that queries have, but neither keys nor values.
        columns: axes of the domain that values alone have.
    """

    weighted: Reduce
    total: Reduce
    greatest: Reduce
    product: Reduce
    score: Expr
    weight: Expr
    query: Expr
    key: Expr
    value: Expr
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]

    @property
    def keys(self) -> Axis:
        """The axis that is summed over."""
        return self.weighted.axes[0]

    @property
    def depth(self) -> tuple[Axis, ...]:
        """The axes over which queries and keys are multiplied."""
        return self.product.axes

    @property
    def exponential(self) -> Expr:
        """A weight before it is rounded."""
        return unrounded(self.weight)

    @property
    def last_key(self) -> Affine | None:
        """The last key whose weight is not certain to be 0, by the positions of other axes; None: there is none."""
        stack = [self.score]
        while stack:
            match stack.pop():
                case Call(ScalarFn.ADD, operands):
                    stack.extend(operands)
                case Call(ScalarFn.SELECT, (Call(ScalarFn.LE, (index, last)), _, Const(least))) if least == -math.inf:
                    form = affine(last)
                    if index is self.keys and form is not None and form.coefficient(self.keys) == 0:
                        return form
        return None

    @property
    def has_affine_loads(self) -> bool:
        """Whether queries, keys and values are read at places that axes give by steps."""
        loads = [node for node in nodes(self.query, self.key, self.value) if isinstance(node, Load)]
        return all(affine(index) is not None for load in loads for index in load.indices)


@lru_cache(maxsize=1024)
def attention(expr: TensorExpr) -> Attention | None:
    """The expression as attention; None where it is none, or something other than its own sums is reduced."""
    if len(expr.outputs) != 1 or len(expr.reductions) < 4:
        return None
    weighted = [
        r for r in expr.reductions if r.fn is ReduceFn.SUM and any(isinstance(n, Reduce) for n in nodes(r.body))
    ]
    for candidate in weighted:
        found = _attention(expr, candidate)
        if found is not None:
            return found
    return None


def _attention(expr: TensorExpr, weighted: Reduce) -> Attention | None:
    """The expression as attention with `weighted` as its weighted sum."""
    free = free_axes(*expr.roots)
    for weight, value in _factors(weighted):
        exponential = unrounded(weight)
        match exponential:
            case Call(ScalarFn.EXP, (Call(ScalarFn.SUB, (score, Reduce(ReduceFn.MAX, (other,)) as greatest)),)):
                pass
            case _:
                continue
        products = [node for node in nodes(score) if isinstance(node, Reduce)]
        if len(weighted.axes) != 1 or len(products) != 1 or weighted.dtype is not DType.FLOAT32:
            continue
        (keys,), (product,) = weighted.axes, products
        total = Reduce(ReduceFn.SUM, (keys,), exponential)
        (elsewhere,) = substitute([score], {keys: other})
        own = {weighted, total, greatest, product, *(n for n in nodes(elsewhere) if isinstance(n, Reduce))}
        if greatest.body is not elsewhere or set(expr.reductions) != own or product.fn is not ReduceFn.SUM:
            continue
        for query, key in _factors(product):
            rows = tuple(a for a in expr.axes if a in free[query] and a not in free[key] | free[value])
            columns = tuple(a for a in expr.axes if a in free[value] and a not in free[query] | free[key] | free[score])
            if keys in free[query] or keys not in free[key] or keys not in free[value] or free[value] & {*product.axes}:
                continue
            if not columns or any(a not in free[query] for a in expr.axes if a.extent > 1 and a not in columns):
                continue
            return Attention(
                weighted=weighted,
                total=total,
                greatest=greatest,
                product=product,
                score=score,
                weight=weight,
                query=query,
                key=key,
                value=value,
                rows=rows,
                columns=columns,
            )
    return None


def _factors(reduction: Reduce) -> tuple[tuple[Expr, Expr], ...]:
    """The two factors of a sum of products, in either order; nothing for any other sum."""
    match reduction.body:
        case Call(ScalarFn.MUL, (left, right)):
            return ((left, right), (right, left))
    return ()


def unrounded(weight: Expr) -> Expr:
    """A weight as it is before it is rounded to a narrower type and widened again."""
    match weight:
        case Cast(wide, Cast(_, inner)) if inner.dtype is wide:
            return inner
    return weight
