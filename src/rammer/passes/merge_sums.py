"""merge_sums: equal sums over parts that lie at even distances in one value become one.

    q0 = f(x[:, 0:64]), q1 = f(x[:, 64:128])  ->  q = F(x), q0 = q[0:1], q1 = q[1:2]

Branches whose first convolutions were merged read such parts. What each of them sums up beside its products, as the
sampled pixels of a filtered convolution, is a single short rTask. Sixteen of them, beside a wave that all but fills
the units, take turns on the few that are left, or hold up what others wait for. As one operator they are as many rTasks
as there is room for.

Only sums without constants, for products read weights of their own, and only where vEUs have no caches of their own:
there each branch stays with the vEU that computes it (`schedule.clusters`).

Ordering restriction: after `layout`, for whatever an operator is made or cut by is settled then.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

from rammer.ir.expr import Axis, Expr, Load, Output, TensorExpr, const
from rammer.ir.graph import Attributes, Graph, Operator
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import VDevice
from rammer.operators.attributes import integers
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.helpers.slots import map_bodies


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """An operator that reads what lies from `start` on along dimension `dim` of `whole`."""

    operator: Operator
    whole: int
    dim: int
    start: int


def run(graph: Graph, device: VDevice) -> Graph:
    """Merge sums; see the module.

    Args:
        graph: after `layout`; every operator has an expression.
        device: says whether vEUs have caches of their own.
    """
    if device.own_cache_bytes:
        return graph
    groups = _groups(graph)
    members = {member.operator.outputs for group in groups.values() for member in group}
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if operator.outputs in groups:
            _merge(groups[operator.outputs], rewriter)
        elif operator.outputs not in members:
            rewriter.insert(operator)
    return rewriter.finish()


def _groups(graph: Graph) -> dict[tuple[int, ...], list[_Member]]:
    """Members to merge, by where their parts begin; each group by the outputs of its first operator."""
    makers = graph.producers()
    found: dict[Hashable, list[_Member]] = {}
    for operator in graph.operators:
        member = _member(operator, makers, graph)
        if member is not None:
            found.setdefault((operator.expr, member.whole, member.dim), []).append(member)
    firsts = {members[0].operator.outputs: sorted(members, key=lambda one: one.start) for members in found.values()}
    return {outputs: members for outputs, members in firsts.items() if _are_even(members)}


def _member(operator: Operator, makers: Mapping[int, Operator], graph: Graph) -> _Member | None:
    """An operator that makes one value, row by row, by sums over one part of another; None for any other."""
    expr = operator.expr
    if expr is None or not expr.reductions or len(operator.needs) != 1 or len(operator.outputs) != 1:
        return None
    (part,), (output,) = operator.inputs, operator.outputs
    maker = makers.get(part)
    if maker is None or maker.kind != "Slice" or set(integers(maker.attributes, "steps")) != {1}:
        return None
    whole, sizes = graph.values[maker.inputs[0]].type.shape, graph.values[part].type.shape
    dims = [dim for dim, (size, extent) in enumerate(zip(sizes, whole, strict=True)) if size != extent]
    is_plain = graph.values[output].layout is None and expr.outputs[0].type.rank > 0 and output not in graph.outputs
    if len(dims) != 1 or not is_plain or any(load.fill is not None for load in expr.loads):
        return None
    (dim,) = dims
    return _Member(operator=operator, whole=maker.inputs[0], dim=dim, start=integers(maker.attributes, "starts")[dim])


def _are_even(members: Sequence[_Member]) -> bool:
    """Whether there are several, each as far behind the one before."""
    steps = {after.start - before.start for before, after in pairwise(members)}
    return len(steps) == 1 and 0 not in steps


def _merge(members: Sequence[_Member], rewriter: Rewriter) -> None:
    """Add the operator that computes all members, and let a slice of it stand for each."""
    first, last = members[0].operator, members[-1].operator
    assert first.expr is not None  # a member
    whole = members[0].whole
    expr = _expression(first.expr, members, rewriter.type(whole))
    sources = dict.fromkeys(source for member in members for source in member.operator.sources)
    name = f"{first.name}+{last.name}"
    result = rewriter.add_expression(expr, [whole], kind=first.kind, name=name, sources=tuple(sources))
    shape = first.expr.outputs[0].type.shape
    for number, member in enumerate(members):
        operator = member.operator
        place: Attributes = {
            "starts": (number * shape[0], *(0,) * (len(shape) - 1)),
            "steps": (1,) * len(shape),
            "sizes": shape,
        }
        part = rewriter.add("Slice", [result], place, name=operator.name, sources=operator.sources)
        rewriter.replace(operator.outputs[0], part)


def _expression(expr: TensorExpr, members: Sequence[_Member], whole: TensorType) -> TensorExpr:
    """What all members compute, one behind the other along the first dimension."""
    taken = {axis.name for axis in (*expr.axes, *expr.reduce_axes)}
    b = Axis(next(name for name in map("b{}".format, count()) if name not in taken), len(members))
    dim, start, step = members[0].dim, members[0].start, members[1].start - members[0].start
    (part,) = expr.inputs

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        place = b * step + (_position(node.indices[dim], part.shape[dim]) + start)
        return node.at(node.slot, (*node.indices[:dim], place, *node.indices[dim + 1 :]))

    (output,) = map_bodies(expr, visit).outputs
    rows, *others = output.type.shape
    made = Output(
        type=TensorType(output.type.dtype, (rows * len(members), *others)),
        indices=(b * rows + _position(output.indices[0], rows), *output.indices[1:]),
        body=output.body,
    )
    return TensorExpr(axes=(b, *expr.axes), inputs=(whole,), outputs=(made,))


def _position(index: Expr, extent: int) -> Expr:
    """A position along a dimension, where it may be the only one."""
    return const(0, DType.INT64) if extent == 1 else index
