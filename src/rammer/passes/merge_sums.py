"""merge_sums: equal sums over parts that lie at even distances in one value become one.

    q0 = f(x[:, 0:64]), q1 = f(x[:, 64:128])  ->  q = F(x), q0 = q[0:1], q1 = q[1:2]
    o0 = g(q[0:1], v0), o1 = g(q[1:2], v1)    ->  v = Concat(v0, v1), o = G(q, v), o0 = o[0:1], o1 = o[1:2]

Branches whose first convolutions were merged read such parts. What each of them computes beside its products, as the
search for outliers of a filtered convolution, is a single short rTask. Sixteen of them, beside a wave that all but
fills the units, take turns on the few that are left, or hold up what others wait for. As one operator they are as many
rTasks as there is room for. What else they read is written side by side, which costs nothing.

Only sums without constants, for products read weights of their own, and only where vEUs have no caches of their own:
there each branch stays with the vEU that computes it (`schedule.clusters`).

Ordering restriction: after `layout`, for whatever an operator is made or cut by is settled then.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rammer.ir.expr import Axis, Expr, Load, Output, TensorExpr, const
from rammer.ir.graph import Attributes, Graph, Operator
from rammer.ir.types import DType, Layout, TensorType
from rammer.ir.vdevice import VDevice
from rammer.operators.attributes import integers
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter, behind_others
from rammer.passes.helpers.slots import map_bodies
from rammer.passes.helpers.views import view_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What an operator reads of `value`: what lies from `start` on along `dim`; all of it, if that is its own."""

    value: int
    dim: int
    start: int
    is_own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """An operator that may be merged, and what each of its slots reads."""

    operator: Operator
    parts: tuple[_Part, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """Where its parts of values begin that others read, too."""
        return tuple(part.start for part in self.parts if not part.is_own)


def run(graph: Graph, device: VDevice) -> Graph:
    """Merge sums; see the module.

    Args:
        graph: after `layout`; every operator has an expression.
        device: says whether vEUs have caches of their own.
    """
    if device.own_cache_bytes:
        return graph
    while (merged := _merged(graph)) is not graph:  # what is merged makes parts of one value
        graph = merged
    return graph


def _merged(graph: Graph) -> Graph:
    """The graph with all groups merged that there are now; itself where there are none."""
    groups = _groups(graph)
    if not groups:
        return graph
    rewriter = Rewriter(graph)
    for unit in _in_order(graph, groups):
        if isinstance(unit, Operator):
            rewriter.insert(unit)
        else:
            _merge(unit, rewriter)
    return rewriter.finish()


def _in_order(graph: Graph, groups: Sequence[Sequence[_Member]]) -> Iterator[Operator | Sequence[_Member]]:
    """Operators and groups, each behind what it reads. Members are as far from the inputs as each other."""
    number_of = {member.operator.outputs: number for number, group in enumerate(groups) for member in group}
    units: dict[Hashable, list[Operator]] = {}
    for operator in graph.operators:
        units.setdefault(number_of.get(operator.outputs, operator.outputs), []).append(operator)
    keys, parts = list(units), list(units.values())
    makers = {value: place for place, part in enumerate(parts) for one in part for value in one.outputs}
    before = [{makers[value] for one in part for value in one.needs if value in makers} for part in parts]
    for place in behind_others(before):
        number = keys[place]
        yield groups[number] if isinstance(number, int) else parts[place][0]


def _groups(graph: Graph) -> list[list[_Member]]:
    """Members to merge, those of each group by where their parts begin."""
    makers, depths = graph.producers(), _depths(graph)
    placed = {*graph.outputs, *(value for one in graph.operators if one.kind == "Concat" for value in one.inputs)}
    found: dict[Hashable, list[_Member]] = {}
    for operator in graph.operators:
        if not _is_sum(operator, graph):
            continue
        parts = [_part(value, makers.get(value), graph, placed) for value in operator.inputs]
        known = tuple(part for part in parts if part is not None)
        if len(known) == len(parts) and not all(part.is_own for part in known):
            reads = tuple(None if part.is_own else (part.value, part.dim) for part in known)
            layouts = tuple(graph.values[value].layout for value in operator.inputs)
            key = (operator.expr, depths[operator.outputs[0]], reads, layouts)
            found.setdefault(key, []).append(_Member(operator=operator, parts=known))
    for members in found.values():
        members.sort(key=lambda member: member.starts)
    return [members for members in found.values() if _are_even(members)]


def _is_sum(operator: Operator, graph: Graph) -> bool:
    """Whether an operator makes one value by sums, row by row, and reads no padding."""
    expr = operator.expr
    if expr is None or not expr.reductions or operator.predicate is not None or len(operator.outputs) != 1:
        return False
    (output,) = operator.outputs
    is_plain = graph.values[output].layout is None and expr.outputs[0].type.rank > 0
    return is_plain and output not in graph.outputs and all(load.fill is None for load in expr.loads)


def _part(value: int, maker: Operator | None, graph: Graph, placed: Collection[int]) -> _Part | None:
    """What reading `value` is: a part of another value, or all of one that can be written beside others."""
    if maker is None:
        return None
    type_, layout = graph.values[value].type, graph.values[value].storage
    if maker.kind == "Slice" and set(integers(maker.attributes, "steps")) == {1}:
        (whole,) = maker.inputs
        starts, shape = integers(maker.attributes, "starts"), graph.values[whole].type.shape
        dims = [dim for dim, (size, extent) in enumerate(zip(type_.shape, shape, strict=True)) if size != extent]
        return _Part(value=whole, dim=dims[0], start=starts[dims[0]], is_own=False) if len(dims) == 1 else None
    if maker.kind in PLACED_KINDS or view_of(maker) is not None or value in placed or not type_.rank:
        return None
    lies_behind = layout.panel is None and layout.strides[0] * type_.shape[0] == layout.span == type_.size
    return _Part(value=value, dim=0, start=0, is_own=True) if lies_behind else None


def _depths(graph: Graph) -> dict[int, int]:
    """How far each value is from the inputs, in operators."""
    depths: dict[int, int] = {}
    for operator in graph.operators:
        depth = 1 + max((depths.get(value, 0) for value in operator.needs), default=0)
        depths.update(dict.fromkeys(operator.outputs, depth))
    return depths


def _are_even(members: Sequence[_Member]) -> bool:
    """Whether there are several, their parts as far from each other, and what is their own is no other's."""
    if len(members) < 2:
        return False
    steps = {_steps(before, after) for before, after in pairwise(members)}
    own = [part.value for member in members for part in member.parts if part.is_own]
    return len(steps) == 1 and 0 not in min(steps) and len(set(own)) == len(own)


def _steps(before: _Member, after: _Member) -> tuple[int, ...]:
    """How much further each part of a member begins than that of the one before."""
    return tuple(other - one for one, other in zip(before.starts, after.starts, strict=True))


def _merge(members: Sequence[_Member], rewriter: Rewriter) -> None:
    """Add the operator that computes all members, and let a slice of it stand for each."""
    first, last = members[0].operator, members[-1].operator
    assert first.expr is not None  # a member
    slots = zip(*(member.parts for member in members), strict=True)
    wholes = [_whole(parts, rewriter) for parts in slots]
    expr = _expression(first.expr, members, [rewriter.type(value) for value in wholes])
    sources = dict.fromkeys(source for member in members for source in member.operator.sources)
    name = f"{first.name}+{last.name}"
    result = rewriter.add_expression(expr, wholes, kind=first.kind, name=name, sources=tuple(sources))
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


def _whole(parts: Sequence[_Part], rewriter: Rewriter) -> int:
    """The value that all members read of; what is their own is put side by side."""
    if not parts[0].is_own:
        return parts[0].value
    values = [part.value for part in parts]
    return rewriter.add("Concat", values, {"axis": 0}, name=rewriter.name(values[0]), layout=_behind(values, rewriter))


def _behind(values: Sequence[int], rewriter: Rewriter) -> Layout:
    """The layout of values that lie one behind the other, as each of them lies."""
    one = rewriter.layout(values[0])
    return Layout(strides=one.strides, span=one.span * len(values))


def _expression(expr: TensorExpr, members: Sequence[_Member], inputs: Sequence[TensorType]) -> TensorExpr:
    """What all members compute, one behind the other along the first dimension."""
    b = Axis("b", len(members))
    parts, later = members[0].parts, members[1].parts

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load):
            return None
        part, shape = parts[node.slot], expr.inputs[node.slot].shape
        step = shape[0] if part.is_own else later[node.slot].start - part.start
        place = b * step + (_position(node.indices[part.dim], shape[part.dim]) + part.start)
        return node.at(node.slot, (*node.indices[: part.dim], place, *node.indices[part.dim + 1 :]))

    (output,) = map_bodies(expr, visit).outputs
    rows, *others = output.type.shape
    made = Output(
        type=TensorType(output.type.dtype, (rows * len(members), *others)),
        indices=(b * rows + _position(output.indices[0], rows), *output.indices[1:]),
        body=output.body,
    )
    return TensorExpr(axes=(b, *expr.axes), inputs=tuple(inputs), outputs=(made,))


def _position(index: Expr, extent: int) -> Expr:
    """A position along a dimension, where it may be the only one."""
    return const(0, DType.INT64) if extent == 1 else index
