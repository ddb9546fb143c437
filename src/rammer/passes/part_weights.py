"""part_weights: weights that an operator multiplies by part by part, none as wide as vectors, become one for each.

    c[u] = f(sum[k](x[k] * w[u, k]), sum[k](x[k] * w[25 + u, k]), ...)
      ->  c[u] = f(sum[k](x[k] * w0[u, k]), sum[k](x[k] * w1[u, k]), ...) with w0 = w[:25], w1 = w[25:50], ...

So the gates of a recurrent cell of 25 units read their weights. Constants of their own begin where vectors do, and what
they lack of a whole vector is padding.

For devices that load vectors of weights from memory, and do not stage them. Ordering restriction: just before `layout`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rammer.ir.expr import Axis, Expr, Load, TensorExpr
from rammer.ir.graph import Graph, Operator
from rammer.ir.region import affine
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.slots import map_bodies
from rammer.tiling.packing import odd_parts


@dataclass(frozen=True, slots=True)
class _Part:
    """Elements of a slot from a place on along a dimension."""

    slot: int
    dim: int
    start: int
    extent: int


@dataclass(frozen=True, slots=True)
class _Parted:
    """An expression whose first slots are those that are left of another one's; then come parts."""

    expr: TensorExpr
    kept: tuple[int, ...]
    parts: tuple[_Part, ...]


def run(graph: Graph, device: VDevice) -> Graph:
    """Take weights apart; see the module.

    Args:
        graph: after fusion; every operator has an expression.
        device: whose vectors they are for.
    """
    rewriter = Rewriter(graph)
    known: dict[object, _Parted | None] = {}
    made: dict[tuple[int, _Part], int] = {}
    for operator in graph.operators:
        parted = _parted(operator, graph, device, known)
        if parted is None:
            rewriter.insert(operator)
            continue
        inputs = [operator.inputs[slot] for slot in parted.kept]
        for part in parted.parts:
            value = operator.inputs[part.slot]
            key = (value, replace(part, slot=0))
            if key not in made:
                rows = (*[slice(None)] * part.dim, slice(part.start, part.start + part.extent))
                made[key] = rewriter.constant(graph.constants[value][rows], f"{graph.values[value].name}[{part.start}]")
            inputs.append(made[key])
        rewriter.insert(replace(operator, expr=parted.expr, inputs=tuple(inputs), attributes={}))
    return rewriter.finish()


def _parted(operator: Operator, graph: Graph, device: VDevice, known: dict[object, _Parted | None]) -> _Parted | None:
    """What an operator becomes; None where it stays. Equal ones become equal."""
    constants = frozenset(slot for slot, value in enumerate(operator.inputs) if value in graph.constants)
    if operator.expr is None or not constants:
        return None
    layouts = tuple(graph.values[value].storage for value in operator.inputs)
    key = (operator.expr, constants, layouts)
    if key not in known:
        odd = odd_parts(operator.expr, constants, layouts, device)
        known[key] = _with_parts(operator.expr, odd) if odd else None
    return known[key]


def _with_parts(expr: TensorExpr, odd: Mapping[int, int]) -> _Parted:
    """An expression that reads parts of some slots, along a dimension of each, as slots of their own."""
    kept = tuple(slot for slot in range(len(expr.inputs)) if slot not in odd)
    places = {slot: place for place, slot in enumerate(kept)}
    lanes = {load: _lane(load, odd[load.slot]) for load in expr.loads if load.slot in odd}
    parts = list(
        dict.fromkeys(_Part(load.slot, odd[load.slot], start, axis.extent) for load, (axis, start) in lanes.items())
    )

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        if node not in lanes:
            return node.at(places[node.slot], node.indices)
        axis, start = lanes[node]
        dim = odd[node.slot]
        place = len(kept) + parts.index(_Part(node.slot, dim, start, axis.extent))
        return node.at(place, (*node.indices[:dim], axis, *node.indices[dim + 1 :]))

    types = [expr.inputs[slot] for slot in kept]
    for part in parts:
        whole = expr.inputs[part.slot]
        types.append(replace(whole, shape=(*whole.shape[: part.dim], part.extent, *whole.shape[part.dim + 1 :])))
    return _Parted(replace(map_bodies(expr, visit), inputs=tuple(types)), kept, tuple(parts))


def _lane(load: Load, dim: int) -> tuple[Axis, int]:
    """The axis along a dimension of a load, and where it starts."""
    form = affine(load.indices[dim])
    assert form is not None  # `odd_parts` said so
    ((axis, _),) = form.terms
    return axis, form.offset
