"""unpack_weights: weights of few bits become floats, except where a device streams them as they are.

    y = MatMulNBits(x, packed, scales)  ->  y = MatMul(x, w), w being the floats that the integers stand for

A product of one vector waits for its matrix to come from memory, and a quarter of the bytes come in a quarter of the
time: devices that stream matrices by rows (`tiling.gemv_rows`) multiply by the integers. Their scales are stored in 16
bits where that changes none, or where 16 bits is the precision that was asked for. Everywhere else floats are computed
once, and the product is one like any other. Weights that are no constants stay as they are.

Ordering restriction: after `fold_constants` and `merge_products`, when weights are constants and products as large as
they will be; before all other passes that know products by kind.
"""

from __future__ import annotations

import numpy as np

from rammer.ir.evaluate import converted, evaluate_tile
from rammer.ir.expr import Call, Output, TensorExpr, cast
from rammer.ir.graph import Array, Graph, Operator
from rammer.ir.region import Interval
from rammer.ir.types import DType, TensorType
from rammer.ir.vdevice import VDevice
from rammer.passes.helpers.constants import read_once
from rammer.passes.helpers.rewrite import Rewriter
from rammer.passes.round_products import ROUNDED
from rammer.tiling.gemv_rows import streams_rows

KIND = "MatMulNBits"
_WEIGHTS, _SCALES = 1, 2  # slots
_CHUNK_ELEMENTS = 1 << 24  # that are computed at a time


def run(graph: Graph, device: VDevice) -> Graph:
    """Unpack weights; see the module.

    Args:
        graph: products by kind, weights known.
        device: says which matrices it streams, and the precision.
    """
    if not any(operator.kind == KIND for operator in graph.operators):
        return graph
    once = read_once(graph)
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        slots = {slot for slot, value in enumerate(operator.inputs) if value in graph.constants}
        if operator.kind != KIND or operator.expr is None or len(slots) < len(operator.inputs) - 1:
            rewriter.insert(operator)
            continue
        read_alone = {slot for slot in slots if operator.inputs[slot] in once}
        if streams_rows(operator.expr, slots, device, read_alone) is not None:
            product = _with_narrow_scales(operator, rewriter, device)
        else:
            product = _of_floats(operator, operator.expr, rewriter)
        rewriter.replace(operator.outputs[0], product)
    return rewriter.finish()


def _with_narrow_scales(operator: Operator, rewriter: Rewriter, device: VDevice) -> int:
    """The product by integers, with scales of 16 bits where they may be rounded, or need not be."""
    inputs = list(operator.inputs)
    scales = rewriter.array(inputs[_SCALES])
    if scales is not None and scales.dtype == np.float32:
        with np.errstate(over="ignore"):
            changes_none = np.array_equal(scales.astype(np.float16), scales)
        dtype = DType.FLOAT16 if changes_none else ROUNDED.get(device.precision, DType.FLOAT32)
        if dtype.is_half:
            inputs[_SCALES] = rewriter.constant(converted(scales, dtype), rewriter.name(inputs[_SCALES]), dtype)
    return rewriter.add(KIND, inputs, operator.attributes, name=operator.name, sources=operator.sources)


def _of_floats(operator: Operator, expr: TensorExpr, rewriter: Rewriter) -> int:
    """The product by floats."""
    arrays = [rewriter.array(value) for value in operator.inputs[_WEIGHTS:]]
    matrix = _floats(expr, [array for array in arrays if array is not None])
    weights = rewriter.constant(matrix, rewriter.name(operator.inputs[_WEIGHTS]), expr.inputs[0].dtype)
    inputs = [operator.inputs[0], weights]
    return rewriter.add("MatMul", inputs, {}, name=operator.name, sources=operator.sources)


def _floats(expr: TensorExpr, weights: list[Array]) -> Array:
    """The matrix that a product by integers multiplies by, `[k, n]`, from its operands but for the first."""
    (product,), *_, rows = expr.reductions, *expr.axes
    assert isinstance(product.body, Call)  # a product
    (depth,), weight = product.axes, product.body.args[1]
    dtype = expr.inputs[0].dtype
    output = Output(
        type=TensorType(dtype, (depth.extent, rows.extent)), indices=(depth, rows), body=cast(dtype, weight)
    )
    own = TensorExpr(axes=(rows, depth), inputs=expr.inputs, outputs=(output,))
    matrix = np.empty(output.type.shape, dtype.numpy)
    operands = [np.empty(expr.inputs[0].shape, dtype.numpy), *weights]
    step = max(1, _CHUNK_ELEMENTS // depth.extent)
    for first in range(0, rows.extent, step):
        ranges = {rows: Interval(first, min(first + step, rows.extent))}
        ((index, values),) = evaluate_tile(own, operands, ranges)
        matrix[index] = values
    return matrix
