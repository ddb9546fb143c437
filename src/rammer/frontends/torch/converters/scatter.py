"""Tensors with elements replaced at positions that other tensors hold.

Written as reads: each element of the result looks for the last position that names it. Where one position stands for
a whole dimension, as in a cache, that is a comparison and a choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.counts.count import broadcast_count, counted, filled
from rammer.frontends.moves import converted, counted_from_front, expanded, reshaped, transposed
from rammer.frontends.torch.converters.indexing import as_positions, flattened, indexed_dimensions, of_lines
from rammer.frontends.torch.converters.movement import strided_places
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.graph import Array
from rammer.ir.types import DType, TensorType


def _index_put(node: Node) -> Result:
    """`self` with `values` at the positions of an advanced index, or added there."""
    x = node.operand("self")
    masks = [index for index in node.optional_operands("indices") if index is not None]
    if len(masks) == 1 and masks[0].dtype is DType.BOOL:
        return _masked_put(node, x, masks[0])
    indexed = indexed_dimensions(node)
    dims = sorted(indexed)
    order = list(range(x.rank))
    if dims != list(range(dims[0], dims[0] + len(dims))):  # as `flattened` orders them
        order = [*dims, *(dim for dim in order if dim not in indexed)]
    merged, axis, positions = flattened(node, x, indexed)
    count = broadcast_count(node, list(indexed.values()))
    if count is not None:  # of positions outside nothing is written
        positions = filled(node, counted(node, positions, count.axis, count.value), merged.shape[axis])
    values = converted(node, node.operand("values"), x.dtype)
    values = expanded(node, values, (*merged.shape[:axis], *positions.shape, *merged.shape[axis + 1 :]))
    flat = reshaped(node, positions, (positions.type.size,))
    rows = reshaped(node, values, (*merged.shape[:axis], flat.shape[0], *merged.shape[axis + 1 :]))
    put = added_rows if node.flag("accumulate") else replaced_rows
    result = reshaped(node, put(node, merged, axis, flat, rows), [x.shape[dim] for dim in order])
    return transposed(node, result, sorted(range(x.rank), key=order.__getitem__))


def _masked_put(node: Node, x: Operand, mask: Operand) -> Operand:
    """`self` with one value, or a row that broadcasts, wherever a mask says so; or with rows, one for each such place.

    The mask is one of the first dimensions.
    """
    values = node.typed("values")
    rest = x.shape[mask.rank :]
    if node.arguments["indices"][0] is None:  # type: ignore[index]
        raise node.unsupported("a mask of other dimensions than the first", "use torch.where or masked_fill")
    if values.rank > len(rest) and values.shape[0] == 1:
        values = reshaped(node, values, values.shape[1:])
    elif values.rank > len(rest):
        rows = node.add("Gather", values, _numbers(node, mask), axis=0)
        values = reshaped(node, rows, (*mask.shape, *values.shape[1:]))
    if node.flag("accumulate"):
        values = node.add("Add", x, values)
    return node.add("Where", reshaped(node, mask, (*mask.shape, *(1 for _ in rest))), values, x)


def _numbers(node: Node, mask: Operand) -> Operand:
    """How often a mask holds before each of its places, row by row."""
    flat = reshaped(node, converted(node, mask, DType.INT64), (mask.type.size,))
    return node.add("CumSum", flat, axis=0, exclusive=True, reverse=False)


def _put(node: Node) -> Result:
    """`self` with elements replaced, or added to, by their numbers row by row."""
    x, source = node.operand("self"), node.typed("source")
    index = as_positions(node, node.operand("index"))
    flat, positions, given = (reshaped(node, each, (each.type.size,)) for each in (x, index, source))
    how = "add" if node.flag("accumulate") else "none"
    return reshaped(node, _written(node, flat, positions, given, 0, how), x.shape)


def _index_copy(node: Node) -> Result:
    """`self` with whole rows of a dimension replaced by those of `source`."""
    x = node.operand("self")
    axis = node.dimension("dim", x.rank)
    index = as_positions(node, node.operand("index"))
    positions = reshaped(node, index, (index.type.size,))
    source = reshaped(node, node.typed("source"), (*x.shape[:axis], positions.shape[0], *x.shape[axis + 1 :]))
    return replaced_rows(node, x, axis, positions, source)


def _index_add(node: Node) -> Result:
    x = node.operand("self")
    axis = node.dimension("dim", x.rank)
    index = as_positions(node, node.operand("index"))
    source, alpha = node.typed("source"), node.number("alpha")
    if alpha != 1:
        source = node.add("Mul", source, node.scalar(alpha, x.dtype))
    return added_rows(node, x, axis, reshaped(node, index, (index.type.size,)), source)


def _index_fill(node: Node) -> Result:
    x = node.operand("self")
    axis = node.dimension("dim", x.rank)
    index = as_positions(node, node.operand("index"))
    hits = _hits(node, x, axis, reshaped(node, index, (index.type.size,)))
    named = node.add("ReduceMax", hits, axes=(1,), keepdims=False)
    column = reshaped(node, named, (x.shape[axis], *(1 for _ in x.shape[axis + 1 :])))
    return node.add("Where", column, node.typed("value"), x)


def replaced_rows(node: Node, x: Operand, axis: int, positions: Operand, rows: Operand) -> Operand:
    """`x` with the row at each of `positions [m]` along an axis replaced; of several for one place the last counts."""
    after = (1,) * (x.rank - axis - 1)
    hits = _hits(node, x, axis, positions)
    if positions.shape == (1,):
        return node.add("Where", reshaped(node, hits, (x.shape[axis], *after)), rows, x)
    number = node.constant(np.arange(1, positions.shape[0] + 1, dtype=np.int64))
    numbered = node.add("Where", hits, number, node.scalar(0, DType.INT64))
    latest = node.add("ReduceMax", numbered, axes=(1,), keepdims=False)  # 1 + the last that names each row, or 0
    found = node.add("Sub", latest, node.scalar(1, DType.INT64))
    chosen = node.add("Gather", rows, node.add("Max", found, node.scalar(0, DType.INT64)), axis=axis)
    named = node.add("Less", node.scalar(0, DType.INT64), latest)
    return node.add("Where", reshaped(node, named, (x.shape[axis], *after)), chosen, x)


def added_rows(node: Node, x: Operand, axis: int, positions: Operand, rows: Operand) -> Operand:
    """`x` with rows added at `positions [m]` along an axis: the places of one line, whose columns are all else."""
    places = counted_from_front(node, positions, node.constant(np.array(x.shape[axis], dtype=np.int64)))
    order = [axis, *(dim for dim in range(x.rank) if dim != axis)]
    return _in_lines(node, x, places, rows, axis, order, "add")


def _hits(node: Node, x: Operand, axis: int, positions: Operand) -> Operand:
    """Whether each row `[extent, m]` of an axis is what each of the positions names."""
    places = counted_from_front(node, positions, node.constant(np.array(x.shape[axis], dtype=np.int64)))
    numbers = node.constant(np.arange(x.shape[axis], dtype=np.int64).reshape(-1, 1))
    return node.add("Equal", numbers, reshaped(node, places, (1, positions.shape[0])))


def _scatter(node: Node) -> Result:
    """`self` with an element replaced at each position; of several for one place the last counts."""
    x, index = node.operand("self"), as_positions(node, node.operand("index"))
    axis = node.dimension("dim", x.rank)
    source = node.typed("src" if node.has("src") else "value")
    one = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if not node.has("reduce") and index.shape == one and source.shape in ((), one):
        places = counted_from_front(node, index, node.constant(np.array(x.shape[axis], dtype=np.int64)))
        rows = np.arange(x.shape[axis], dtype=np.int64).reshape(-1, *(1,) * (x.rank - axis - 1))
        return node.add("Where", node.add("Equal", node.constant(rows), places), source, x)
    how = {"add": "add", "multiply": "mul"}[node.text("reduce")] if node.has("reduce") else "none"
    return _written(node, x, index, source if source.rank else expanded(node, source, index.shape), axis, how)


def _scatter_add(node: Node) -> Result:
    """`self` plus all elements of `src` whose positions name a place."""
    x, index = node.operand("self"), as_positions(node, node.operand("index"))
    return _written(node, x, index, node.typed("src"), node.dimension("dim", x.rank), "add")


_REDUCTIONS: Mapping[str, tuple[str, float]] = {
    "amax": ("max", -math.inf),
    "amin": ("min", math.inf),
    "mean": ("add", 0),
    "prod": ("mul", 1),
    "sum": ("add", 0),
}
"""How elements for one place are combined, and what changes nothing."""


def _scatter_reduce(node: Node) -> Result:
    """`self` combined with all elements of `src` whose positions name a place; without it, where there are some."""
    x, index, source = node.operand("self"), as_positions(node, node.operand("index")), node.typed("src")
    return _combined(node, x, index, source, node.dimension("dim", x.rank))


def _index_reduce(node: Node) -> Result:
    """The same with rows."""
    x, source = node.operand("self"), node.typed("source")
    axis = node.dimension("dim", x.rank)
    index = as_positions(node, node.operand("index"))
    column = reshaped(node, index, tuple(index.type.size if dim == axis else 1 for dim in range(x.rank)))
    return _combined(node, x, expanded(node, column, source.shape), source, axis)


def _combined(node: Node, x: Operand, index: Operand, source: Operand, axis: int) -> Operand:
    how, nothing = _REDUCTIONS[node.text("reduce")]
    own = node.flag("include_self")
    first = x if own else _where_named(node, x, index, axis, _limit(node, nothing, x.dtype))
    total = _written(node, first, index, source, axis, how)
    if node.text("reduce") != "mean":
        return total
    ones = expanded(node, node.scalar(1, DType.INT64), source.shape)
    none = expanded(node, node.scalar(int(own), DType.INT64), x.shape)
    count = node.add("Max", _written(node, none, index, ones, axis, "add"), node.scalar(1, DType.INT64))
    count = converted(node, count, x.dtype)
    if x.dtype.is_float:
        return node.add("Div", total, count)
    return node.add("Div", node.add("Sub", total, node.add("Mod", total, count, fmod=False)), count)


def _limit(node: Node, nothing: float, dtype: DType) -> Operand:
    """A number as an element type has it, the least or greatest one for an infinity that it lacks."""
    if dtype is DType.BOOL:
        return node.scalar(nothing > 0, dtype)
    if math.isinf(nothing) and not dtype.is_float:
        bounds = np.iinfo(dtype.value)
        return node.scalar(bounds.max if nothing > 0 else bounds.min, dtype)
    return node.scalar(nothing, dtype)


def _where_named(node: Node, x: Operand, index: Operand, axis: int, value: Operand) -> Operand:
    """`x` with a value at all places that are named."""
    ones = expanded(node, node.scalar(1, DType.INT64), index.shape)
    zeros = expanded(node, node.scalar(0, DType.INT64), x.shape)
    named = node.add("Less", zeros, _written(node, zeros, index, ones, axis, "add"))
    return node.add("Where", named, value, x)


def _written(node: Node, x: Operand, index: Operand, source: Operand, axis: int, how: str) -> Operand:
    """`x` with each element of `source` written to its position along an axis, or combined with what is there.

    `index` may be shorter than `x` along any dimension: the lines beyond are written to nowhere.
    """
    if source.shape != index.shape:
        source = node.add("Slice", source, starts=(0,) * source.rank, steps=(1,) * source.rank, sizes=index.shape)
    positions = counted_from_front(node, index, node.constant(np.array(x.shape[axis], dtype=np.int64)))
    missing = [0 if dim == axis else x.shape[dim] - extent for dim, extent in enumerate(index.shape)]
    if any(missing):
        pads = (*(0 for _ in missing), *missing)
        positions = node.add("Pad", positions, mode="constant", pads=pads, value=-1.0)
        source = node.add("Pad", source, mode="constant", pads=pads, value=0.0)
    order = [*(dim for dim in range(x.rank) if dim != axis), axis]
    return _in_lines(node, x, transposed(node, positions, order), source, axis, order, how)


def _in_lines(
    node: Node, x: Operand, positions: Operand, source: Operand, axis: int, order: Sequence[int], how: str
) -> Operand:
    """`x` with `source` written to positions along an axis, or combined with what is there.

    In an order of the dimensions: those before the axis are lines, with positions of their own; all behind it go along.
    """
    at = order.index(axis)
    lines, columns = (math.prod(x.shape[dim] for dim in dims) for dims in (order[:at], order[at + 1 :]))

    def in_lines(each: Operand) -> Operand:
        return reshaped(node, transposed(node, each, order), (lines, each.shape[axis], columns))

    places = reshaped(node, positions, (lines, source.shape[axis]))
    result = node.add("Scatter", in_lines(x), places, in_lines(source), reduction=how)
    back = sorted(range(x.rank), key=order.__getitem__)
    return transposed(node, reshaped(node, result, [x.shape[dim] for dim in order]), back)


def _masked_scatter(node: Node) -> Result:
    """`self` with the elements of `source`, in order, at the places of a mask."""
    x, source = expanded(node, node.operand("self"), node.shape), node.operand("source")
    mask = expanded(node, node.operand("mask"), x.shape)
    taken = node.add("Gather", reshaped(node, source, (source.type.size,)), _numbers(node, mask), axis=0)
    return node.add("Where", mask, reshaped(node, taken, x.shape), x)


def _strided_scatter(node: Node) -> Result:
    """`self` with `src` at the places that a view of it would have."""
    x, source = node.operand("self"), node.typed("src")
    if node.operator == "diagonal_scatter":
        numbers = np.arange(x.type.size).reshape(x.shape)
        places: Array = np.diagonal(numbers, node.integer("offset"), node.integer("dim1"), node.integer("dim2"))
    else:
        places = strided_places(node, x)
    found = np.full(x.type.size, -1, np.int64)
    found[places.reshape(-1)] = np.arange(places.size)
    taken = node.add("Gather", reshaped(node, source, (source.type.size,)), node.constant(np.maximum(found, 0)), axis=0)
    is_there = node.constant((found >= 0).reshape(x.shape))
    return node.add("Where", is_there, reshaped(node, taken, x.shape), x) if places.size else x


def _of_numbers(convert: Converter) -> Converter:
    """The converter of a sum, given truth values as numbers: whether one of those summed is true."""

    def with_numbers(node: Node) -> Result:
        if node.dtype is not DType.BOOL:
            return convert(node)
        given = {name: node.operand(name) for name in ("self", "src", "source", "values") if name in node.arguments}
        arguments = {**node.arguments, **{name: converted(node, x, DType.INT64) for name, x in given.items()}}
        if "alpha" in arguments:
            arguments["alpha"] = int(node.number("alpha") != 0)
        result = convert(replace(node, arguments=arguments, results=(TensorType(DType.INT64, node.shape),)))
        assert isinstance(result, Operand)
        return converted(node, result, DType.BOOL)

    return with_numbers


CONVERTERS: Mapping[str, Converter] = {
    "as_strided_scatter": _strided_scatter,
    "diagonal_scatter": _strided_scatter,
    "index_add": of_lines(_of_numbers(_index_add)),
    "index_copy": of_lines(_index_copy),
    "index_fill": of_lines(_index_fill),
    "index_put": _of_numbers(_index_put),
    "index_reduce": of_lines(_index_reduce),
    "masked_scatter": _masked_scatter,
    "put": _of_numbers(_put),
    "scatter": of_lines(_scatter),
    "scatter_add": of_lines(_of_numbers(_scatter_add)),
    "scatter_reduce": of_lines(_scatter_reduce),
}
