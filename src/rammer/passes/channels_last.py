"""channels_last: the images between convolutions keep the channels of a pixel side by side.

    y = Conv(x, w)  ->  y = Conv(x, w), `Value.layout` of x and y with dimension 1 innermost

A convolution then reads its input and writes its output along the lanes of its micro-kernel, whatever the width of the
image, and nothing is laid out anew between operators. Values that operators join (by elementwise work, pooling,
concatenation) take the same layout. Inputs and outputs of the model stay as the caller has them, and what a reshape
regroups stays row-major, so that it is not copied.

Ordering restriction: after fusion, when it is known which values remain; before `layout`, which packs weights for it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import MappingProxyType

from rammer.ir.graph import Graph
from rammer.ir.types import Layout

_LEAST_RANK = 3


def run(graph: Graph) -> Graph:
    """Choose layouts of intermediate values; see the module."""
    return laid_out(graph, _images(graph))


def laid_out(graph: Graph, images: Collection[int]) -> Graph:
    """The graph with the channels of these values innermost; those of few dimensions have none."""
    values = {
        number: replace(value, layout=Layout.ordered(value.type.shape, _order(value.type.rank)))
        if number in images and value.type.rank >= _LEAST_RANK
        else value
        for number, value in graph.values.items()
    }
    return replace(graph, values=MappingProxyType(values)) if images else graph


def _order(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _images(graph: Graph) -> set[int]:
    """Values that are joined to a convolution and free to be laid out."""
    fixed = {*graph.inputs, *graph.outputs, *graph.constants}
    for operator in graph.operators:
        if operator.kind == "Reshape":
            fixed.update((*operator.inputs, *operator.outputs))
    links: dict[int, list[int]] = {}
    reached: list[int] = []
    for operator in graph.operators:
        ends = [
            value
            for value in (*operator.inputs, *operator.outputs)
            if value not in fixed and graph.values[value].type.rank >= _LEAST_RANK
        ]
        if operator.kind.startswith("Conv"):
            reached += ends
        for value in ends:
            rank = graph.values[value].type.rank
            links.setdefault(value, []).extend(end for end in ends if graph.values[end].type.rank == rank)
    images: set[int] = set()
    while reached:
        value = reached.pop()
        if value not in images:
            images.add(value)
            reached += links[value]
    return images
