"""fuse: elementwise work joins the operators around it; `fusion` says what is legal, this pass what is done.

    y = Conv(x, w), z = Add(y, r), u = Relu(z)  ->  u = Conv+Add+Relu(x, w, r)        epilogues, along any DAG
    y = Sub(a, b), z = ReduceSumSquare(y)       ->  z = Sub+ReduceSumSquare(a, b)     prologues
    y = Relu(x), z = Sigmoid(x)                 ->  y, z = Relu+Sigmoid(x)            siblings

Results that others read, or that are outputs of the model, remain results of the fused operator.

Convexity. Fusing two operators must not close a cycle through a third. Groups of operators are kept in an order in
which each reads from earlier ones only. An operator that joins a producer takes that producer's place, so all its
other producers must come before: true for the last of its producers. It may instead draw a producer to its own place
if nobody else has read from that producer yet. Siblings are fused if their longest paths from the inputs are equally
long, which no path between them allows. All checks take constant time, so the pass is linear in the operators.

Operators with long paths of reductions before them come late in the order. The last producer is therefore the one
whose operands are ready last, and an operator that joins two branches does not make the long one wait for the short.

What is needed in different scopes stays apart: it could be skipped no more. So does a condition from the choices by it.

Ordering restriction: after `inline_views`, which brings consumers to the data; before `layout`. Views of kind
`Concat`, `Reshape` and `Slice` stay as they are for lowering.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from rammer.ir.graph import Graph, Operator
from rammer.ir.types import TensorType
from rammer.passes.helpers.fusion import side_by_side, with_epilogue, with_prologue
from rammer.passes.helpers.rewrite import PLACED_KINDS, Rewriter, in_topological_order
from rammer.passes.helpers.scopes import Scope, find_scopes
from rammer.passes.helpers.work import Work, lift, lower

_KINDS_SHOWN = 4


def run(graph: Graph) -> Graph:
    """Fuse operators; see the module."""
    fusion = _Fusion(graph)
    fusion.place_all()
    fusion.join_siblings()
    rewriter = Rewriter(graph)
    for operator in in_topological_order(fusion.operators()):
        rewriter.insert(operator)
    return rewriter.finish()


@dataclass(slots=True, kw_only=True, eq=False)
class _Group:
    """Operators that become one, by position. `order`: operators that reduce on the longest path here, a position."""

    order: tuple[int, int]
    members: list[int]
    reduces: bool
    was_read: bool = False
    changed: Work | None = None


class _Fusion:
    """Groups under construction: operators are placed one by one, each after those it reads from."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._outputs = frozenset(graph.outputs)
        self._scopes = find_scopes(graph)
        self._groups: dict[int, _Group] = {}  # by position of each member
        self._maker: dict[int, int] = {}  # position of the operator that makes a value
        self._readers: defaultdict[int, list[int]] = defaultdict(list)  # positions of those that read it
        for position, operator in enumerate(graph.operators):
            self._maker.update(dict.fromkeys(operator.outputs, position))
            for value in dict.fromkeys(operator.inputs):
                self._readers[value].append(position)

    def place_all(self) -> None:
        """Make every operator a group or let it join one."""
        for group in sorted(self._singles(), key=lambda group: group.order):
            if self._is_fusible(group):
                self._draw_producers(group)
                if self._join_producer(group):
                    continue
            self._enter(group)

    def join_siblings(self) -> None:
        """Fuse elementwise groups that read a common value, where no path leads from one to the other."""
        lengths: dict[int, int] = {}
        first: dict[tuple[int, Scope, tuple[int, ...], int], _Group] = {}
        for group in sorted(self._distinct(), key=lambda group: group.order):
            length = 1 + max((lengths[producer.members[0]] for producer in self._producers(group)), default=0)
            lengths.update(dict.fromkeys(group.members, length))
            if group.reduces or not self._is_fusible(group):
                continue
            work = self._work(group)
            scope = self._scope(group)
            keys = [(length, scope, work.extents, v) for v in work.reads if v not in self._graph.constants]
            for sibling in dict.fromkeys(first[key] for key in keys if key in first):
                joint = side_by_side(self._work(sibling), work)
                if joint is not None:
                    sibling.changed = joint
                    sibling.members += group.members
                    self._enter(sibling)
                    break
            else:
                sibling = group
            first.update((key, sibling) for key in keys)

    def operators(self) -> list[Operator]:
        """The operator of each group, in the order of their first members; without those whose results are dead."""
        return [self._operator(g) for g in self._distinct() if g.changed is None or g.changed.outputs]

    def _singles(self) -> Iterable[_Group]:
        depths: dict[int, int] = {}
        for position, operator in enumerate(self._graph.operators):
            reduces = operator.expr is not None and bool(operator.expr.reductions)
            depth = max((depths[i] for i in operator.inputs if i in depths), default=0) + reduces
            depths.update(dict.fromkeys(operator.outputs, depth))
            yield _Group(order=(depth, position), members=[position], reduces=reduces)

    def _draw_producers(self, group: _Group) -> None:
        """Take in producers that nobody else reads, as prologues."""
        for producer in self._producers(group):
            if producer.reduces or not self._may_join(producer, group) or not self._reads_alone(group, producer):
                continue
            work = with_prologue(self._work(producer), self._work(group), self._type)
            if work is not None:
                group.changed = work
                group.members = producer.members + group.members

    def _join_producer(self, group: _Group) -> bool:
        """Become the epilogue of a producer, if one can have it."""
        if group.reduces:
            return False
        for rank, producer in enumerate(self._producers(group)):
            is_last = rank == 0
            if not self._may_join(producer, group) or (producer.was_read and not is_last):
                continue
            work = with_epilogue(self._work(producer), self._work(group))
            if work is not None:
                producer.order = producer.order if is_last else group.order
                producer.members += group.members
                producer.changed = work
                self._enter(producer)
                return True
        return False

    def _enter(self, group: _Group) -> None:
        """Register a group, new or grown, and drop results that only its own members read."""
        self._groups.update(dict.fromkeys(group.members, group))
        if group.changed is not None:
            outputs = {v: output for v, output in group.changed.outputs.items() if self._is_result(v, group)}
            group.changed = replace(group.changed, outputs=outputs)
        for producer in self._producers(group):
            producer.was_read = True

    def _producers(self, group: _Group) -> list[_Group]:
        """The groups that make what a group reads, the last one first."""
        reads = self._operator_of(group).inputs if group.changed is None else group.changed.reads
        found = dict.fromkeys(self._groups[self._maker[value]] for value in reads if value in self._maker)
        found.pop(group, None)
        return sorted(found, key=lambda producer: producer.order, reverse=True)

    def _work(self, group: _Group) -> Work:
        """What a group does; the first call for an operator lifts it."""
        if group.changed is None:
            group.changed = lift(self._operator_of(group))
        return group.changed

    def _outputs_of(self, group: _Group) -> Collection[int]:
        """The values that a group makes."""
        return self._operator_of(group).outputs if group.changed is None else group.changed.outputs

    def _operator_of(self, group: _Group) -> Operator:
        """The operator of a group with one member."""
        return self._graph.operators[group.members[0]]

    def _is_fusible(self, group: _Group) -> bool:
        """Whether a group may be part of a larger one."""
        operator = self._operator_of(group)
        return operator.expr is not None and operator.kind not in PLACED_KINDS

    def _may_join(self, producer: _Group, group: _Group) -> bool:
        """Whether a producer may become one with a group that reads from it."""
        return (
            self._is_fusible(producer)
            and self._scope(producer) is self._scope(group)
            and self._scopes.conditions.isdisjoint(self._outputs_of(producer))
        )

    def _scope(self, group: _Group) -> Scope:
        """Where a group's results are needed."""
        return self._scopes.of(self._operator_of(group).outputs[0])

    def _reads_alone(self, group: _Group, producer: _Group) -> bool:
        """Whether nothing but `group` reads what `producer` makes."""
        return not any(
            value in self._outputs or any(reader not in group.members for reader in self._readers[value])
            for value in self._outputs_of(producer)
        )

    def _is_result(self, value: int, group: _Group) -> bool:
        """Whether a value that a group makes is read outside of it."""
        return value in self._outputs or any(self._groups.get(r) is not group for r in self._readers[value])

    def _distinct(self) -> list[_Group]:
        return list(dict.fromkeys(self._groups[position] for position in sorted(self._groups)))

    def _operator(self, group: _Group) -> Operator:
        members = [self._graph.operators[position] for position in group.members]
        if len(members) == 1:
            return members[0]
        work = self._work(group)
        expr, inputs = lower(work, self._type)
        return Operator(
            kind=_joined_kind([member.kind for member in members]),
            name=members[-1].name,
            inputs=inputs,
            outputs=tuple(work.outputs),
            expr=expr,
            sources=tuple(dict.fromkeys(source for member in members for source in member.sources)),
        )

    def _type(self, value: int) -> TensorType:
        return self._graph.values[value].type


def _joined_kind(kinds: list[str]) -> str:
    """The kinds of a fused operator as one, the last ones only counted where there are many."""
    more = len(kinds) - _KINDS_SHOWN
    return "+".join(kinds if more <= 1 else [*kinds[:_KINDS_SHOWN], f"{more} more"])
