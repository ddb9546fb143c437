"""fuse_attention: a weighted sum computes the softmax that it weights with, and the scores below that.

    s = f(sum[c](q * k)), p = softmax(s), y = sum[j](p[j] * v[j])
      ->  y = sum[j](exp(s[j] - max[m](s[m])) * v[j]) / sum[j](exp(s[j] - max[m](s[m])))        as one operator

The scores never go to memory. Addresses take the place of work: scales of queries and keys move out of the sums, heads
that several queries share are read where they lie instead of being repeated, and so are the old and the new part of a
cache that the caller has. Where heads of queries share one of keys, their axis becomes one of groups and one of
members. What is elementwise before the products, as a rotation by positions is, is computed where operands are read:
for new rows of a cache, too, where there is one.

Scores and probabilities that were rounded to 16 bits between operators no longer are. Rows of NaN, because all their
scores are minus infinity, stay what they were.

Only where a vDevice has the skeleton `attention`, and where Roller's model says that it is quicker.

Ordering restriction: after `fuse`, when scales and masks are part of the products; before `round_products`, which
rounds the operands of both products.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from rammer.ir.expr import (
    Axis,
    Call,
    Const,
    Expr,
    Load,
    Reduce,
    ReduceFn,
    ScalarFn,
    call,
    const,
    nodes,
    rebuild,
    select,
    substitute,
)
from rammer.ir.graph import Graph, Operator
from rammer.ir.kernel_form import Skeleton
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.inlining import Inlining
from rammer.passes.helpers.predicted import predicted_us
from rammer.passes.helpers.quotients import split_quotients
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.rounding import unrounded, unrounding
from rammer.passes.helpers.views import Definition, definition
from rammer.passes.helpers.work import Work, lift, lower
from rammer.passes.round_products import rounded
from rammer.tiling.attention import attention
from rammer.tiling.pattern import plain_load

KIND = "Attention"


def run(graph: Graph, device: VDevice) -> Graph:
    """Fuse attention; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: whose skeletons and figures decide.
    """
    if Skeleton.ATTENTION not in device.skeletons:
        return graph
    rewriter = Rewriter(graph)
    fusion = _Fusion(graph, device)
    for operator in graph.operators:
        rewriter.insert(fusion.fused(operator) or operator)
    return rewriter.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Softmax:
    """A weight that is a softmax along `keys`: `score` is what it is of, over loads that name values.

    Attributes:
        maker: the operator that makes it.
        masks_nan: whether weights that are NaN count as 0.
        cleared: a condition, the same for all keys, under which weights are 0.
    """

    maker: Operator
    keys: Axis
    score: Expr
    masks_nan: bool = False
    cleared: Expr | None = None


class _Fusion:
    def __init__(self, graph: Graph, device: VDevice) -> None:
        self._graph = graph
        self._device = device
        self._makers = graph.producers()
        self._readers = Counter(value for operator in graph.operators for value in set(operator.inputs))
        self._readers.update(graph.outputs)

    def fused(self, operator: Operator) -> Operator | None:
        """The operator with its softmax and scores, or None where it has none or where that does not pay."""
        if operator.expr is None or len(operator.outputs) != 1 or len(operator.expr.reductions) != 1:
            return None
        if not any(map(self._may_be_softmax, operator.inputs)):
            return None
        work = lift(operator)
        (weighted,) = (node for node in work.nodes if isinstance(node, Reduce))
        for weight, value in _factors(weighted):
            softmax = self._softmax(weight, weighted.axes)
            scored = None if softmax is None else self._scored(softmax.score)
            if softmax is None or scored is None:
                continue
            maker, score = scored
            replaced = (maker, softmax.maker, operator)
            lean, (value_there, scale) = self._lean(score), self._where_it_lies(value)
            inlining = Inlining(self._makers)
            taken, value_taken = self._taken_in(lean, inlining), inlining.element(value_there)
            # The wave of what makes queries and keys is another hand-over.
            made_us = max(map(self._us, inlining.taken), default=0.0) + self._device.handover_us.value
            for scores, read, spared_us in (
                (taken, (value_taken, scale), made_us),
                (lean, (value_there, scale), 0.0),
                (score, (value, 1.0), 0.0),
            ):
                whole = _composed(work, weighted, replace(softmax, score=scores), read)
                found = self._operator(split_quotients(whole), replaced, spared_us)
                if found is not None:
                    return found
        return None

    def _operator(self, whole: Work, replaced: Sequence[Operator], spared_us: float) -> Operator | None:
        """A work as an operator in place of others, if it is attention and takes less time than they do.

        With it, so much time of others is spared.
        """
        expr, inputs = lower(whole, lambda value: self._graph.values[value].type)
        found = attention(expr)
        if found is None or not found.has_affine_loads:
            return None
        sources = tuple(dict.fromkeys(source for operator in replaced for source in operator.sources))
        operator = replace(replaced[-1], kind=KIND, expr=expr, inputs=inputs, attributes={}, sources=sources)
        return operator if self._us(operator) <= sum(map(self._us, replaced)) + spared_us else None

    def _us(self, operator: Operator) -> float:
        assert operator.expr is not None  # it was looked into
        layouts = tuple(self._graph.values[value].storage for value in (*operator.inputs, *operator.outputs))
        constants = [slot for slot, value in enumerate(operator.inputs) if value in self._graph.constants]
        expr = rounded(operator.expr, self._device)
        return predicted_us(expr, layouts, constants, self._device, self._device.veu_count)

    def _may_be_softmax(self, value: int) -> bool:
        """Whether what makes a value reduces twice, as a softmax does."""
        maker = self._makers.get(value)
        return maker is not None and maker.expr is not None and len(maker.expr.reductions) == 2

    def _softmax(self, weight: Expr, axes: Sequence[Axis]) -> _Softmax | None:
        """A weight as a softmax along the axis that is summed over, if nothing else reads that."""
        load = plain_load(weight)
        if load is None or len(axes) != 1 or not self._may_be_softmax(load.slot):
            return None
        found = self._element(load, alone=True)
        if found is None:
            return None
        maker, element = found
        masks_nan, cleared = False, None
        match element:
            case Call(ScalarFn.SELECT, (Call(ScalarFn.ISNAN, (same,)), Const(0.0), inner)) if same is inner:
                element, masks_nan = inner, True
            case Call(ScalarFn.SELECT, (condition, Const(0.0), inner)) if axes[0] not in nodes(condition):
                element, cleared = inner, condition
            case Call(ScalarFn.SELECT, (condition, inner, Const(0.0))) if axes[0] not in nodes(condition):
                element, cleared = inner, call(ScalarFn.NOT, condition)
        score = _scores(element, axes[0])
        if score is None:
            return None
        return _Softmax(maker=maker, keys=axes[0], score=score, masks_nan=masks_nan, cleared=cleared)

    def _scored(self, score: Expr) -> tuple[Operator, Expr] | None:
        """The operator that makes the product below a score, and the score with that product in it."""
        for load in (node for node in nodes(score) if isinstance(node, Load)):
            found = self._element(load, alone=True)
            if found is not None and sum(isinstance(node, Reduce) for node in nodes(found[1])) == 1:
                maker, element = found
                (whole,) = rebuild([score], _replacing(load, element))
                (exact,) = rebuild([whole], unrounding)
                return maker, exact
        return None

    def _lean(self, score: Expr) -> Expr:
        """The score with factors of its product read where they lie; what scales them scales the sum."""
        (product,) = (node for node in nodes(score) if isinstance(node, Reduce))
        for left, right in _factors(product)[:1]:
            (query, a), (key, b) = self._where_it_lies(left), self._where_it_lies(right)
            lean: Expr = Reduce(product.fn, product.axes, call(ScalarFn.MUL, query, key))
            (scaled,) = rebuild([score], _replacing(product, lean if a * b == 1.0 else lean * (a * b)))
            return scaled
        return score

    def _taken_in(self, score: Expr, inlining: Inlining) -> Expr:
        """The score with elementwise work on queries and keys computed in its product."""
        (product,) = (node for node in nodes(score) if isinstance(node, Reduce))
        inner = inlining.product(product)
        scale = 1.0
        for left, right in _factors(inner)[:1]:
            (query, a), (key, b) = _unscaled(left), _unscaled(right)
            inner, scale = Reduce(inner.fn, inner.axes, call(ScalarFn.MUL, query, key)), a * b
        (whole,) = rebuild([score], _replacing(product, inner if scale == 1.0 else inner * scale))
        return whole

    def _where_it_lies(self, operand: Expr) -> tuple[Expr, float]:
        """A factor of a product led through views and scales to the data, and what that is to be multiplied with."""
        scale = 1.0
        while True:
            operand, factor = _unscaled(operand)
            scale *= factor
            load = plain_load(operand)
            found = None if load is None else self._element(load, alone=False)
            if found is None:
                return operand, scale
            maker, element = found
            inner, factor = _unscaled(element)
            if plain_load(inner) is None and not self._is_cache(maker, inner):
                return operand, scale
            operand, scale = inner, scale * factor

    def _is_cache(self, maker: Operator, element: Expr) -> bool:
        """Whether an element is that of a concatenation with a part that would have to be copied."""
        return (
            maker.kind == "Concat"
            and any(value in self._graph.inputs for value in maker.inputs)
            and not _reduces(element)
        )

    def _element(self, load: Load, *, alone: bool) -> tuple[Operator, Expr] | None:
        """The operator that makes what is loaded, and the element in float32; with `alone`, if nobody else reads it."""
        maker = self._makers.get(load.slot)
        if maker is None or maker.expr is None or len(maker.outputs) != 1 or load.fill is not None:
            return None
        if alone and self._readers[load.slot] != 1:
            return None
        work = lift(maker)
        found = definition(work.axes, work.outputs[load.slot])
        if found is None:
            return None
        return maker, unrounded(_renamed(found).at(load.indices))


def _renamed(found: Definition) -> Definition:
    """A definition whose reductions of products have axes that are named apart."""
    products = [node for node in nodes(found.body) if isinstance(node, Reduce) and _factors(node)]
    axes = dict.fromkeys(axis for product in products for axis in product.axes)
    (body,) = substitute([found.body], {axis: Axis(f"depth{i}", axis.extent) for i, axis in enumerate(axes)})
    return replace(found, body=body)


def _composed(work: Work, weighted: Reduce, softmax: _Softmax, value: tuple[Expr, float]) -> Work:
    """The work with the weights of its sum computed in it."""
    keys, (read, scale) = softmax.keys, value
    other = Axis("other", keys.extent)
    greatest = Reduce(ReduceFn.MAX, (other,), *substitute([softmax.score], {keys: other}))
    weight = call(ScalarFn.EXP, softmax.score - greatest)
    total = Reduce(ReduceFn.SUM, (keys,), weight)
    mean = Reduce(ReduceFn.SUM, (keys,), weight * read) / total
    if softmax.masks_nan:
        mean = select(call(ScalarFn.ISNAN, total), const(0.0, mean.dtype), mean)
    if softmax.cleared is not None:
        mean = select(softmax.cleared, const(0.0, mean.dtype), mean)
    return work.rewritten(_replacing(weighted, mean if scale == 1.0 else mean * scale))


def _scores(element: Expr, keys: Axis) -> Expr | None:
    """What an element is the softmax of along `keys`."""
    match element:
        case Call(ScalarFn.DIV, (Call(ScalarFn.EXP, (Call(ScalarFn.SUB, (score, greatest)),)) as exponential, total)):
            if _along(total, ReduceFn.SUM, keys, exponential) and _along(greatest, ReduceFn.MAX, keys, score):
                return None if _reduces(score) else score
    return None


def _along(node: Expr, fn: ReduceFn, keys: Axis, body: Expr) -> bool:
    """Whether a node reduces the body, at its own axis in place of `keys`."""
    match node:
        case Reduce(found, (other,), inner) if found is fn and other.extent == keys.extent:
            return substitute([body], {keys: other}) == (inner,)
    return False


def _factors(reduction: Reduce) -> tuple[tuple[Expr, Expr], ...]:
    """The factors of a sum of products, in either order; nothing for any other reduction."""
    match reduction:
        case Reduce(ReduceFn.SUM, _, Call(ScalarFn.MUL, (left, right))):
            return ((left, right), (right, left))
    return ()


def _unscaled(operand: Expr) -> tuple[Expr, float]:
    """An operand without a constant factor, and the factor."""
    match operand:
        case Call(ScalarFn.MUL, (inner, Const(float(factor)))) | Call(ScalarFn.MUL, (Const(float(factor)), inner)):
            return inner, factor
        case Call(ScalarFn.DIV, (inner, Const(float(divisor)))) if divisor:
            return inner, 1.0 / divisor
    return operand, 1.0


def _reduces(element: Expr) -> bool:
    return any(isinstance(node, Reduce) for node in nodes(element))


def _replacing(old: Expr, new: Expr) -> Callable[[Expr], Expr | None]:
    """A visitor that puts one node in another's place."""
    return lambda node: new if node is old else None
