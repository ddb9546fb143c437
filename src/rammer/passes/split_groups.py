"""split_groups: a convolution of wide groups becomes one for each group.

    y = Conv(x, [w0; w1], b), group=2  ->  y = Concat(Conv(Slice(x), w0, b0), Conv(Slice(x), w1, b1))

Groups have nothing in common, but one operator is run as one: where it leaves the caches, so does everything between
it and its neighbours. As operators of their own, groups are branches, which `schedule.clusters` runs one after another,
each on a vEU that keeps what it makes. Neither slices nor the concatenation copy anything.

It is for vDevices whose vEUs have caches of their own, and for groups that fill vectors by themselves: narrower ones,
down to depthwise convolutions, share their vectors. Many groups stay one operator, for `hoist_pointwise` would leave
what follows them behind the concatenation.

Ordering restriction: after `fold_batch_norm`, which knows convolutions by their kind; before `winograd`, and before the
`hoist_pointwise` that leads activations to each group.
"""

from __future__ import annotations

from rammer.ir.graph import Attributes, Graph, Operator
from rammer.ir.recipe import taken
from rammer.ir.types import DType
from rammer.ir.vdevice import VDevice
from rammer.operators.attributes import integer
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.hoist_pointwise import LARGEST_PARTS


def run(graph: Graph, device: VDevice) -> Graph:
    """Split convolutions; see the module.

    Args:
        graph: convolutions by kind, weights known.
        device: says whether vEUs have caches of their own, and how wide a vector is.
    """
    if device.own_cache_bytes == 0:
        return graph
    lanes = device.vector_bytes // DType.FLOAT32.itemsize_bytes
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if _is_wide(operator, graph, lanes):
            _split(operator, rewriter)
        else:
            rewriter.insert(operator)
    return rewriter.finish()


def _is_wide(operator: Operator, graph: Graph, lanes: int) -> bool:
    """Whether an operator is a convolution of a few groups, each with vectors of channels and of features."""
    if operator.kind != "Conv" or any(value not in graph.constants for value in operator.inputs[1:]):
        return False
    group = integer(operator.attributes, "group")
    features, channels = graph.values[operator.inputs[1]].type.shape[:2]
    return 1 < group <= LARGEST_PARTS and min(channels, features // group) >= 2 * lanes


def _split(operator: Operator, rewriter: Rewriter) -> None:
    """Let a concatenation of convolutions stand for one with groups."""
    x, *constants = operator.inputs
    attributes: Attributes = {**operator.attributes, "group": 1}
    count = integer(operator.attributes, "group")
    type_ = rewriter.type(x)
    sizes = (type_.shape[0], type_.shape[1] // count, *type_.shape[2:])
    parts = []
    for number in range(count):
        name = f"{operator.name}.{number}"
        place: Attributes = {
            "starts": (0, number * sizes[1], *(0,) * (len(sizes) - 2)),
            "steps": (1,) * len(sizes),
            "sizes": sizes,
        }
        image = rewriter.add("Slice", [x], place, name=f"{name}.input", sources=operator.sources)
        own = [_part(rewriter, value, number, count) for value in constants]
        parts.append(rewriter.add("Conv", [image, *own], attributes, name=name, sources=operator.sources))
    whole = rewriter.add("Concat", parts, {"axis": 1}, name=operator.name, sources=operator.sources)
    rewriter.replace(operator.outputs[0], whole)


def _part(rewriter: Rewriter, value: int, number: int, count: int) -> int:
    """A group's share of a constant, whose first dimension are the features of all."""
    array, recipe = rewriter.array(value), rewriter.recipe(value)
    assert array is not None  # it is a constant
    features = len(array) // count
    rows = slice(number * features, (number + 1) * features)
    known = None if recipe is None else taken(recipe, rows)
    return rewriter.constant(array[rows], rewriter.name(value), recipe=known)
