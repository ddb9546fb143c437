"""select_parts: elementwise operators choose between parts of what they read, not reading a concatenation of them.

    t = concat(-x[n:], x[:n]), y[i] = f(x[i], t[i])  ->  y[p, i] = f(x[p, i], select(p == 0, -x[1, i], x[0, i]))

with i = n p + i. So rotary embeddings turn pairs of elements that lie half a head apart. The concatenation and the
operators on its parts would each be handed over to compute next to nothing.

Only where the parts are as long as each other, and computed from values that the operator reads anyway.

Ordering restriction: after `fuse`, for operators around the concatenation; `eliminate_dead` should follow.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from rammer.ir.expr import Axis, Expr, Load, ScalarFn, call, cast, nodes, rebuild, select, substitute
from rammer.ir.graph import Graph, Operator
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter
from rammer.passes.helpers.views import Joined, definition, joined
from rammer.passes.helpers.work import Work, lift, lower
from rammer.tiling.pattern import MAX_CHOSEN_POINTS

_DEEPEST = 4  # operators between a part and what it is computed from


def run(graph: Graph) -> Graph:
    """Choose between parts; see the module."""
    makers = graph.producers()
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        rewriter.insert(_selecting(operator, graph, makers) or operator)
    return rewriter.finish()


def _selecting(operator: Operator, graph: Graph, makers: Mapping[int, Operator]) -> Operator | None:
    """An elementwise operator that reads no concatenation any more, None where it reads none or still has to."""
    if operator.expr is None or operator.expr.reductions or operator.expr.guards or operator.kind in PLACED_KINDS:
        return None
    if all(value not in makers or joined(makers[value]) is None for value in operator.inputs):
        return None
    work = lift(operator)
    for load in work.loads:
        parts = joined(makers[load.slot]) if load.slot in makers else None
        found = None if parts is None else _without(work, load, parts, makers)
        if found is not None and {*found.reads} < {*work.reads}:
            expr, inputs = lower(found, lambda value: graph.values[value].type)
            return replace(operator, expr=expr, inputs=inputs, attributes={})
    return None


def _without(work: Work, load: Load, parts: Joined, makers: Mapping[int, Operator]) -> Work | None:
    """The work with one axis split into the number of the part and the place in it."""
    along = load.indices[parts.axis]
    extents = {place.extent for _, place in parts.parts}
    if load.fill is not None or not isinstance(along, Axis) or len(extents) > 1 or len(parts.parts) > MAX_CHOSEN_POINTS:
        return None
    part, inner = Axis(f"{along.name}_part", len(parts.parts)), Axis(f"{along.name}_inner", extents.pop())
    if along.extent != part.extent * inner.extent or along not in work.axes:
        return None
    mapping: dict[Axis, Expr] = {along: part * inner.extent + inner}
    elements: list[Expr] = []
    for value, _ in parts.parts:
        indices = (*load.indices[: parts.axis], inner, *load.indices[parts.axis + 1 :])
        element = _computed(Load(value, indices, load.type), makers, work.reads, _DEEPEST)
        if element is None or along in nodes(element):
            return None
        elements.append(cast(load.type.compute, element))
    chosen = elements[-1]
    for number, element in reversed(list(enumerate(elements[:-1]))):
        chosen = select(call(ScalarFn.EQ, part, number), element, chosen)
    chosen, outputs = cast(load.type, chosen), {}
    for value, output in work.outputs.items():
        (body,) = rebuild([output.body], lambda node: chosen if node is load else None)
        body, *places = substitute([body, *output.indices], mapping)
        outputs[value] = replace(output, body=body, indices=tuple(places))
    axes = tuple(axis for one in work.axes for axis in ((part, inner) if one is along else (one,)))
    return Work(axes=axes, outputs=outputs)


def _computed(load: Load, makers: Mapping[int, Operator], known: Collection[int], depth: int) -> Expr | None:
    """What is loaded, by what it is computed from one element each, back to `known` values; None where that is far."""
    maker = makers.get(load.slot)
    if load.slot in known or maker is None or maker.expr is None or maker.expr.reductions or maker.kind == "Concat":
        return load
    work = lift(maker)
    found = definition(work.axes, work.outputs[load.slot])
    if found is None or depth == 0:
        return None
    element = found.at(load.indices)
    if sum(isinstance(node, Load) for node in nodes(element)) != 1:
        return load

    def visit(node: Expr) -> Expr | None:
        return _computed(node, makers, known, depth - 1) if isinstance(node, Load) else None

    (computed,) = rebuild([element], visit)
    return computed
