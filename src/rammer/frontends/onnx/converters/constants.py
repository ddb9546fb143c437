"""Operators whose results follow from shapes and constants alone: they leave no trace in the graph, or an Expand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.tensors import dtype_of
from rammer.ir.graph import Array

_MOST_ELEMENTS = 1 << 28
"""A constant that an operator spells out may not be larger."""


def _constant(node: Node) -> Sequence[Operand]:
    """The value, in whichever of its forms it is given."""
    if len(node.proto.attribute) != 1:
        raise node.invalid(f"it has {len(node.proto.attribute)} values, not 1")
    form = node.proto.attribute[0].name
    array: Array
    match form:
        case "value":
            array = node.tensor(form)
        case "value_float":
            array = np.array(node.number(form), dtype=np.float32)
        case "value_floats":
            array = np.array(node.numbers(form), dtype=np.float32)
        case "value_int":
            array = np.array(node.integer(form), dtype=np.int64)
        case "value_ints":
            array = np.array(node.integers(form), dtype=np.int64)
        case _:
            raise node.unsupported(f"a constant given as '{form}'", "store it as a dense tensor of numbers")
    return [node.constant(array)]


def _constant_of_shape(node: Node) -> Sequence[Operand]:
    value = node.tensor("value") if node.has("value") else np.zeros(1, dtype=np.float32)
    if value.size != 1:
        raise node.invalid(f"its attribute 'value' has {value.size} elements, not 1")
    shape = node.known_integers(0)
    if any(extent < 0 for extent in shape):
        raise node.invalid(f"the shape {list(shape)} has a negative extent")
    return [node.add("Expand", node.constant(value.reshape(())), shape=shape)]


def _shape(node: Node) -> Sequence[Operand]:
    """The extents from `start` to `end`, both clamped to the rank (attributes since opset 15)."""
    shape = node.operand(0).shape
    start = node.integer("start") if node.has("start") else 0
    end = node.integer("end") if node.has("end") else len(shape)
    return [node.constant(np.array(shape[start:end], dtype=np.int64))]


def _size(node: Node) -> Sequence[Operand]:
    return [node.constant(np.array(node.operand(0).type.size, dtype=np.int64))]


def _range(node: Node) -> Sequence[Operand]:
    """`start + i * delta` for every i that stays before the limit; 16-bit floats are computed in float32."""
    start, limit, delta = (node.known(position).reshape(-1) for position in range(3))
    if not start.size == limit.size == delta.size == 1:
        raise node.invalid("start, limit and delta must be scalars")
    dtype = node.operand(0).dtype
    first, last, step = start.item(), limit.item(), delta.item()
    if step == 0 or not all(map(math.isfinite, (first, last, step))):
        raise node.invalid(f"the range from {first} to {last} by {step} has no end")
    count = max(0, -((first - last) // step))  # Python's integers do not overflow
    if not count <= _MOST_ELEMENTS:  # NaN and infinity included
        raise node.unsupported(f"a range of {count} elements; {_MOST_ELEMENTS} are possible")
    wide = dtype.compute.numpy
    with np.errstate(all="ignore"):
        steps = np.arange(int(count)).astype(wide) * delta.astype(wide)
        return [node.constant((start.astype(wide) + steps).astype(dtype.numpy))]


def _eye_like(node: Node) -> Sequence[Operand]:
    like = node.operand(0)
    if like.rank != 2:
        raise node.invalid(f"{like.type} is not a matrix")
    if like.type.size > _MOST_ELEMENTS:
        raise node.unsupported(f"a constant of {like.type.size} elements; {_MOST_ELEMENTS} are possible")
    dtype = dtype_of(node.integer("dtype"), str(node.location)) if node.has("dtype") else like.dtype
    rows, columns = like.shape
    diagonal = min(max(node.integer("k"), -rows), columns)
    return [node.constant(np.eye(rows, columns, diagonal, dtype=dtype.numpy))]


CONVERTERS: Mapping[str, Converter] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
}
