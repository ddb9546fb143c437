"""byte_windows: convolutions of integers of 8 bits by groups are computed in float32, where that is exact.

    y = Cast(Conv(Centre(x, z), Centre(w), b))  ->  y = Conv(Cast(Centre(x, z)), w', b')

What a depthwise convolution sums are few products, below 2^24 in magnitude together, so that float32 holds every sum of
them; it has vectors of multiply-adds, and `depthwise` loads bytes where they have no zero point.

Ordering restriction: after `byte_products`, which takes those whose sums are long; before `fold_scales`.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from rammer.ir.graph import Graph, Operator
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import VDevice
from rammer.operators.attributes import integer
from rammer.operators.convolution import conv
from rammer.passes.helpers.quads import of_types
from rammer.passes.helpers.quantised import centred_weights, numbers_of
from rammer.passes.helpers.rewrite import Rewriter

_MOST_SUMMED = 2**24 // (255 * 255)
"""So many products of bytes less their zero points are certain to have a sum that float32 holds."""


def run(graph: Graph, device: VDevice) -> Graph:
    """Compute convolutions of groups in float32; see the module.

    Args:
        graph: whose operators are known by their kinds.
        device: nothing is done where it has no products of bytes.
    """
    if device.byte_products is None:
        return graph
    rewriter = Rewriter(graph)
    makers = graph.producers()
    for operator in graph.operators:
        rewriter.insert(operator)
        convolution = makers.get(operator.inputs[0]) if operator.kind == "Cast" else None
        if convolution is not None and operator.attributes["to"] is DType.FLOAT32:
            total = _windows(convolution, graph, makers, rewriter)
            if total is not None:
                rewriter.replace(operator.outputs[0], total)
    return rewriter.finish()


def _windows(operator: Operator, graph: Graph, makers: dict[int, Operator], rewriter: Rewriter) -> int | None:
    """The result of a convolution in float32; None where it is none of bytes by groups."""
    if operator.kind != "Conv" or integer(operator.attributes, "group") == 1:
        return None
    x, w = (numbers_of(value, makers) for value in operator.inputs[:2])
    weights = None if w is None or w.scale is not None else centred_weights(w, graph)
    if x is None or weights is None or x.scale is not None or math.prod(weights.shape[1:]) > _MOST_SUMMED:
        return None
    arrays = [weights, *(graph.constants.get(value) for value in operator.inputs[2:])]
    if any(array is None for array in arrays):
        return None
    floats = [array.astype(np.float32) for array in arrays if array is not None]
    operands = tuple(rewriter.constant(array, operator.name) for array in floats)
    attributes = MappingProxyType({**operator.attributes, "finite_weights": True})
    known = None if x.zero is None else graph.constants.get(x.zero)
    name, sources = operator.name, operator.sources
    if weights.shape[1] > 1 or (x.zero is not None and (known is None or known.any())):
        numbers = rewriter.add("Cast", (operator.inputs[0],), {"to": DType.FLOAT32}, name=name, sources=sources)
        return rewriter.add("Conv", (numbers, *operands), attributes, name=name, sources=sources)
    shapes = [graph.values[x.integers].type.shape, *(array.shape for array in floats)]
    expr = of_types(
        conv([TensorType(DType.FLOAT32, shape) for shape in shapes], attributes), graph.values[x.integers].type.dtype
    )
    return rewriter.add_expression(expr, (x.integers, *operands), kind="ConvOfBytes", name=name, sources=sources)
