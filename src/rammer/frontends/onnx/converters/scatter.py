"""Operators that write elements at positions, and TopK: lines, places and columns become dimensions of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, counted_from_front, reshaped, transposed
from rammer.frontends.onnx.converters.indexing import check_known, flat_positions
from rammer.frontends.onnx.node import Converter, Node
from rammer.ir.types import DType


def _scatter_elements(node: Node) -> Sequence[Operand]:
    """ScatterElements, and Scatter before it had that name: a line for each position of the other dimensions."""
    data, indices, updates = (node.operand(position) for position in range(3))
    axis = node.axis(node.integer("axis"), data.rank)
    fits = indices.rank == data.rank and all(
        dim == axis or extent <= data.shape[dim] for dim, extent in enumerate(indices.shape)
    )
    if not fits or updates.shape != indices.shape:
        raise node.invalid(f"indices {indices.type} and updates {updates.type} do not fit {data.type}")
    if not indices.type.size:
        return [data]
    check_known(node, indices, data.shape[axis])
    whole = node.constant(np.array(data.shape[axis], dtype=np.int64))
    positions = counted_from_front(node, indices, whole)
    missing = [data.shape[dim] - (0 if dim == axis else extent) for dim, extent in enumerate(indices.shape)]
    missing[axis] = 0
    if any(missing):  # lines that nothing is written to have positions outside
        positions = node.add("Pad", positions, mode="constant", pads=(*(0 for _ in missing), *missing), value=-1.0)
        updates = node.add("Pad", updates, mode="constant", pads=(*(0 for _ in missing), *missing), value=0.0)
    if indices.shape[axis] == 1 and _replaces(node):
        return [_with_one(node, data, axis, positions, updates)]
    order = [*(dim for dim in range(data.rank) if dim != axis), axis]
    lines = math.prod(data.shape[dim] for dim in order[:-1])

    def in_lines(x: Operand, *columns: int) -> Operand:
        return reshaped(node, transposed(node, x, order), (lines, x.shape[axis], *columns))

    result = _scattered(node, in_lines(data, 1), in_lines(positions), in_lines(updates, 1))
    back = sorted(range(data.rank), key=order.__getitem__)
    return [transposed(node, reshaped(node, result, [data.shape[dim] for dim in order]), back)]


def _scatter_nd(node: Node) -> Sequence[Operand]:
    return [scatter_nd(node, *(node.operand(position) for position in range(3)))]


def scatter_nd(node: Node, data: Operand, indices: Operand, updates: Operand, there: Operand | None = None) -> Operand:
    """One line of all places that index tuples name, each with what lies behind it as its columns.

    Args:
        node: says how updates are combined.
        data: what is written to.
        indices: tuples along the last dimension.
        updates: what is written.
        there: for which tuples updates are written, where not for all; it broadcasts with them.

    Raises:
        InvalidModelError: the operands do not fit.
    """
    depth = indices.shape[-1] if indices.rank else 0
    if not 0 < depth <= data.rank or updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        raise node.invalid(f"indices {indices.type} and updates {updates.type} do not fit {data.type}")
    if not updates.type.size:
        return data
    positions = flat_positions(node, indices, data.shape[:depth])
    if there is not None:
        positions = node.add("Where", there, positions, node.constant(np.array(-1, np.int64)))
    count, columns = positions.type.size, math.prod(data.shape[depth:])
    if depth == count == 1 and _replaces(node):
        row = reshaped(node, updates, (1, *data.shape[1:]))
        return _with_one(node, data, 0, reshaped(node, positions, (1,) * data.rank), row)
    result = _scattered(
        node,
        reshaped(node, data, (1, math.prod(data.shape[:depth]), columns)),
        reshaped(node, positions, (1, count)),
        reshaped(node, updates, (1, count, columns)),
    )
    return reshaped(node, result, data.shape)


def _replaces(node: Node) -> bool:
    return not node.has("reduction") or node.text("reduction") == "none"


def _with_one(node: Node, data: Operand, axis: int, positions: Operand, updates: Operand) -> Operand:
    """The data with one element of each line along an axis replaced: a choice, which states in place are made of."""
    extent = data.shape[axis]
    numbers = node.constant(np.arange(extent, dtype=np.int64).reshape(-1, *(1,) * (data.rank - axis - 1)))
    return node.add("Where", node.add("Equal", numbers, positions), updates, data)


def _scattered(node: Node, data: Operand, positions: Operand, updates: Operand) -> Operand:
    reduction = node.text("reduction") if node.has("reduction") else "none"
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise node.invalid(f"reduction '{reduction}' does not exist")
    if data.dtype is DType.BOOL and reduction != "none":
        raise node.unsupported(f"reduction '{reduction}' of booleans")
    return node.add("Scatter", data, positions, updates, reduction=reduction)


def _tensor_scatter(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    axis, mode = node.axis(node.integer("axis"), x.rank), node.text("mode")
    if mode not in ("linear", "circular"):
        raise node.invalid(f"mode '{mode}' does not exist")
    return [node.add("TensorScatter", *node.operands, axis=axis, circular=mode == "circular")]


def _top_k(node: Node) -> Sequence[Operand]:
    """The number of elements has to be known, being an extent of the result."""
    x, k = node.operand(0), node.known_integer(1)
    axis = node.axis(node.integer("axis"), x.rank)
    return node.add_all("TopK", x, axis=axis, k=k, largest=node.flag("largest"))


def _max_unpool(node: Node) -> Sequence[Operand]:
    """Elements go back to where they were the greatest; the extents follow from the kernel where they are not given."""
    x, indices = node.operand(0), node.operand(1)
    spatial = x.rank - 2
    kernel = node.integers("kernel_shape") or ()
    strides = node.integers("strides") or (1,) * spatial
    pads = node.integers("pads") or (0,) * (2 * spatial)
    if not len(kernel) == len(strides) == spatial or len(pads) != 2 * spatial or indices.shape != x.shape:
        raise node.invalid(f"its attributes and indices {indices.type} do not fit {x.type}")
    pooled = [
        (extent - 1) * stride - begin - end + taps
        for extent, stride, begin, end, taps in zip(
            x.shape[2:], strides, pads[:spatial], pads[spatial:], kernel, strict=True
        )
    ]
    flat = (*x.shape[:2], *pooled)
    shape = flat if node.optional(2) is None else node.known_integers(2)
    if len(shape) != x.rank or any(mine < least for mine, least in zip(shape, flat, strict=True)):
        raise node.invalid(f"a result of {list(shape)}, elements of which lie in {list(flat)}")
    count, size = x.type.size, math.prod(flat)
    zeros = node.add("Expand", node.constant(np.zeros((), x.dtype.numpy)), shape=(1, size, 1))
    positions = reshaped(node, converted(node, indices, DType.INT64), (1, count))
    result = node.add("Scatter", zeros, positions, reshaped(node, x, (1, count, 1)), reduction="none")
    missing = [mine - own for mine, own in zip(shape, flat, strict=True)]
    whole = reshaped(node, result, flat)
    if not any(missing):
        return [whole]
    return [node.add("Pad", whole, mode="constant", pads=(*(0 for _ in missing), *missing), value=0.0)]


CONVERTERS: Mapping[str, Converter] = {
    "MaxUnpool": _max_unpool,
    "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter,
    "TopK": _top_k,
}
