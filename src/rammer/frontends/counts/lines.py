"""Sums and means along dimensions of which a number of elements counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import filled, number
from rammer.frontends.moves import converted
from rammer.frontends.node import ModelNode


def elements_counted(node: ModelNode, x: Operand, axes: Sequence[int]) -> Operand:
    """How many elements count along some dimensions, the counted one among them."""
    if x.count is None:
        return number(node, math.prod(x.shape[axis] for axis in axes))
    own = x.count.axis
    return node.add("Mul", x.count.value, number(node, math.prod(x.shape[axis] for axis in axes if axis != own)))


def mean(node: ModelNode, x: Operand, axes: Sequence[int], *, keepdims: bool) -> Operand:
    """The mean of what counts along some dimensions, the counted one among them; NaN where nothing does."""
    wide = converted(node, filled(node, x), x.dtype.compute)
    total = node.add("ReduceSum", wide, axes=tuple(axes), keepdims=keepdims)
    return converted(
        node, node.add("Div", total, converted(node, elements_counted(node, x, axes), wide.dtype)), x.dtype
    )
