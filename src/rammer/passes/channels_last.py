"""channels_last: the images between convolutions keep the channels of a pixel side by side.

    y = Conv(x, w)  ->  y = Conv(x, w), `Value.layout` of x and y with the dimension of their channels innermost

A convolution then reads its input and writes its output along the lanes of its micro-kernel, whatever the width of the
image, and nothing is laid out anew between operators. Which dimension has the channels follows from the expressions:
the one that a convolution's weights have in common with what it reads or writes, and from there on, through operators
that go along the same axis (elementwise work, pooling, concatenation, transposition, normalisation), the one with that
axis. Inputs and outputs of the model stay as the caller has them; what a reshape regroups stays row-major, so that it
is not copied, and so do operands and results of operators that are set apart.

Ordering restriction: after fusion, when it is known which values remain; before `layout`, which packs weights for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from types import MappingProxyType

from rammer.ir.expr import Axis, Expr, Load, nodes
from rammer.ir.graph import Graph, Operator
from rammer.ir.region import affine
from rammer.ir.types import Layout

_LEAST_RANK = 3


def run(graph: Graph) -> Graph:
    """Choose layouts of intermediate values; see the module."""
    return laid_out(graph, channel_dims(graph, {*graph.inputs, *graph.outputs}))


def laid_out(graph: Graph, dims: Mapping[int, int]) -> Graph:
    """The graph with one dimension of some values innermost."""
    moved = {value: dim for value, dim in dims.items() if dim != graph.values[value].type.rank - 1}
    values = {
        number: replace(value, layout=Layout.ordered(value.type.shape, _order(value.type.rank, moved[number])))
        if number in moved
        else value
        for number, value in graph.values.items()
    }
    return replace(graph, values=MappingProxyType(values)) if moved else graph


def _order(rank: int, innermost: int) -> tuple[int, ...]:
    return (*(dim for dim in range(rank) if dim != innermost), innermost)


def channel_dims(graph: Graph, fixed: Collection[int]) -> dict[int, int]:
    """The dimension with the channels of values joined to a convolution, constants and `fixed` ones excepted."""
    stays = {*fixed, *graph.constants}
    transforms = (operator for operator in graph.operators if operator.kind.startswith("ConvFilterTransform"))
    weights = {*graph.constants, *itertools.chain.from_iterable(operator.outputs for operator in transforms)}
    users: dict[int, list[Operator]] = {}
    reached: list[tuple[int, int]] = []
    for operator in graph.operators:
        if operator.kind == "Reshape" or operator.expr is None:
            stays.update((*operator.inputs, *operator.outputs))
        for value in dict.fromkeys((*operator.inputs, *operator.outputs)):
            users.setdefault(value, []).append(operator)
        if operator.kind.startswith("Conv"):
            reached += _of_convolution(operator, weights)
    dims: dict[int, int] = {}
    while reached:
        value, dim = reached.pop(0)
        if value not in dims and value not in stays and graph.values[value].type.rank >= _LEAST_RANK:
            dims[value] = dim
            reached += (end for operator in users[value] for end in _along(operator, value, dim))
    return dims


def _of_convolution(operator: Operator, known: Collection[int]) -> Iterator[tuple[int, int]]:
    """What a convolution reads and writes, with the dimension of the channels.

    Along it all axes are those of weights, too: one of the sums in what is read, and in what is written one that this
    has not; or, in a depthwise convolution, the one that both have.
    """
    for reduction in operator.expr.reductions if operator.expr is not None else ():
        loads = [node for node in nodes(reduction.body) if isinstance(node, Load)]
        weights = {axis for load in loads if operator.inputs[load.slot] in known for axis in _axes(load.indices)}
        images = [load for load in loads if operator.inputs[load.slot] not in known]
        for load in images:
            yield from _channels(operator.inputs[load.slot], load.indices, weights, {*reduction.axes})
        read = {axis for load in images for axis in _axes(load.indices)}
        for value, indices in _stores(operator):
            yield from _channels(value, indices, weights, weights - read)


def _channels(
    value: int, indices: Sequence[Expr], weights: AbstractSet[Axis], wanted: AbstractSet[Axis]
) -> Iterator[tuple[int, int]]:
    """The dimension of an access along which all axes are of weights, if possible one of the `wanted`."""
    axes = [_axes((index,)) for index in indices]
    dims = [dim for dim, found in enumerate(axes) if found and found <= weights]
    best = [dim for dim in dims if not axes[dim].isdisjoint(wanted)] or dims
    if best:
        yield value, best[0]


def _along(operator: Operator, value: int, dim: int) -> Iterator[tuple[int, int]]:
    """What an operator reads and writes along the same axis as a dimension of a value, with the dimension."""
    accesses = list(_stores(operator))
    if operator.expr is not None:
        accesses += [(operator.inputs[load.slot], load.indices) for load in operator.expr.loads]
    along = {axis for one, indices in accesses if one == value for axis in _unit_axes(indices[dim])}
    for other, indices in accesses:
        found = [place for place, index in enumerate(indices) if along & _unit_axes(index)]
        if len(found) == 1:
            yield other, found[0]


def _stores(operator: Operator) -> Iterator[tuple[int, Sequence[Expr]]]:
    if operator.expr is not None:
        for value, output in zip(operator.outputs, operator.expr.outputs, strict=True):
            yield value, output.indices


def _axes(indices: Sequence[Expr]) -> set[Axis]:
    return {node for node in nodes(*indices) if isinstance(node, Axis)}


def _unit_axes(index: Expr) -> set[Axis]:
    """The axes along which an index goes from one element to the next."""
    form = affine(index)
    return set() if form is None else {axis for axis, step in form.terms if step == 1 and isinstance(axis, Axis)}
