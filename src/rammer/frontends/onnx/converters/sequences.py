"""Sequences and optionals: how many tensors there are, and which one is meant, is known at compile time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, element, reshaped, split, stacked
from rammer.frontends.onnx.binding import declaration_of
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.sequences import (
    OptionalValue,
    TensorSequence,
    Value,
    declared_form,
    described,
    is_there,
    optional_of,
)
from rammer.frontends.onnx.tensors import dtype_of
from rammer.printable import counted, listing

_MOST_PARTS = 1 << 12
"""A tensor is split into so many parts at most, each of which is an operator."""


def _construct(node: Node) -> Sequence[Value]:
    return [_sequence(node, node.operands)]


def _sequence(node: Node, elements: Sequence[Operand]) -> TensorSequence:
    """A sequence of one tensor or more.

    Raises:
        InvalidModelError: they have several element types.
    """
    first = elements[0]
    if any(other.dtype is not first.dtype for other in elements):
        raise node.invalid(f"a sequence of {listing([str(each.type) for each in elements])}")
    return TensorSequence(dtype=first.dtype, elements=tuple(elements))


def _empty(node: Node) -> Sequence[Value]:
    element_type = node.integer("dtype") if node.has("dtype") else TensorProto.FLOAT
    return [TensorSequence(dtype=dtype_of(element_type, str(node.location)), elements=())]


def _at(node: Node) -> Sequence[Value]:
    """The tensor at a position; at one that the model computes, which is brought to the nearest end, a gather."""
    elements, position = _elements(node), node.operand(1)
    if position.array is not None:
        return [elements[_position(node, 1, len(elements), len(elements) - 1)]]
    if position.type.size != 1:
        raise node.invalid(f"its position {position.type} is not one element")
    if any(other.type != elements[0].type for other in elements):
        raise node.unsupported(
            f"a tensor of {described(node.sequence(0))} at a position that the model computes",
            "let all have one shape, or let the position follow from constants and from shapes",
        )
    return [node.add("Gather", stacked(node, elements, 0), reshaped(node, position, ()), axis=0)]


def _insert(node: Node) -> Sequence[Value]:
    """Before the tensor at a position, or behind all."""
    sequence, tensor = node.sequence(0), node.operand(1)
    if tensor.dtype is not sequence.dtype:
        raise node.invalid(f"a tensor {tensor.type} for {described(sequence)}")
    elements = sequence.elements
    position = len(elements) if node.optional(2) is None else _position(node, 2, len(elements), len(elements))
    return [replace(sequence, elements=(*elements[:position], tensor, *elements[position:]))]


def _erase(node: Node) -> Sequence[Value]:
    """Without the tensor at a position, or without the last."""
    elements = _elements(node)
    last = len(elements) - 1
    position = last if node.optional(1) is None else _position(node, 1, len(elements), last)
    return [replace(node.sequence(0), elements=elements[:position] + elements[position + 1 :])]


def _elements(node: Node) -> tuple[Operand, ...]:
    """The tensors of a sequence that has to hold some.

    Raises:
        InvalidModelError: it holds none.
    """
    elements = node.sequence(0).elements
    if not elements:
        raise node.invalid("its sequence is empty")
    return elements


def _position(node: Node, operand: int, count: int, last: int) -> int:
    """A position in a sequence of so many tensors, counted from the front.

    Raises:
        InvalidModelError: it lies before the first tensor, or behind the `last` position there is.
        UnsupportedFeatureError: it is not known before the model runs.
    """
    position = node.known_integer(operand)
    if not -count <= position <= last:
        raise node.invalid(f"position {position} in a sequence of {counted(count, 'tensor')}")
    return position + count if position < 0 else position


def _length(node: Node) -> Sequence[Value]:
    return [node.constant(np.array(len(node.sequence(0).elements), np.int64))]


def _split_to_sequence(node: Node) -> Sequence[Value]:
    """Into given sizes, or into parts of one size, 1 where none is given, of which the last may be smaller.

    Single elements lose the dimension without `keepdims`. ONNX means that only where no size is given; PyTorch's
    exporter writes a size of 1 beside it, and ONNX Runtime takes it at its word.
    """
    x = node.operand(0)
    axis = node.axis(node.integer("axis"), x.rank)
    sizes = (1,) if node.optional(1) is None else node.known_integers(1)
    if node.optional(1) is not None and node.operand(1).rank:
        return [_parts(node, x, axis, sizes)]
    (size,) = sizes
    if size < 1:
        raise node.invalid(f"parts of {size} elements")
    starts = range(0, x.shape[axis], size)
    sequence = _parts(node, x, axis, [min(size, x.shape[axis] - start) for start in starts[: _MOST_PARTS + 1]])
    if size > 1 or node.flag("keepdims"):
        return [sequence]
    return [replace(sequence, elements=tuple(element(node, one, axis, 0) for one in sequence.elements))]


def _parts(node: Node, x: Operand, axis: int, sizes: Sequence[int]) -> TensorSequence:
    """Parts of given sizes along a dimension.

    Raises:
        InvalidModelError: they are not all of the dimension.
        UnsupportedFeatureError: there are too many.
    """
    if len(sizes) > _MOST_PARTS:
        raise node.unsupported(f"a sequence of more than {_MOST_PARTS} parts", "split into fewer and larger ones")
    if sum(sizes) != x.shape[axis] or min(sizes, default=0) < 0:
        raise node.invalid(f"parts of {list(sizes)} elements of a dimension of {x.shape[axis]}")
    return TensorSequence(dtype=x.dtype, elements=tuple(split(node, x, axis, sizes)))


def _concat(node: Node) -> Sequence[Value]:
    """One after the other along a dimension, or along a new one."""
    elements, axis = _elements(node), node.integer("axis")
    first = elements[0]
    if not node.flag("new_axis"):
        return [concatenated(node, elements, node.axis(axis, first.rank))]
    if any(other.type != first.type for other in elements):
        raise node.invalid(f"tensors of {described(node.sequence(0))} along a new dimension, whose shapes differ")
    return [stacked(node, elements, node.axis(axis, first.rank + 1))]


def _map(node: Node) -> Sequence[Value]:
    """The body for each tensor, and the tensors beside it of further sequences; what is no sequence, it sees whole."""
    body, values = node.graph("body"), node.values_from(0)
    count = len(node.sequence(0).elements)
    if any(isinstance(value, TensorSequence) and len(value.elements) != count for value in values):
        raise node.invalid(f"sequences of different lengths: {', '.join(map(described, values))}")
    trips = []
    for trip in range(count):
        inputs = [value.elements[trip] if isinstance(value, TensorSequence) else value for value in values]
        trips.append(node.tensors(node.enter(body, inputs, str(trip))))
    if trips:
        return [_sequence(node, results) for results in zip(*trips, strict=True)]
    declared = [declaration_of(output, str(node.location)) for output in body.output]
    return [TensorSequence(dtype=each.dtype, elements=()) for each in declared]


def _optional(node: Node) -> Sequence[Value]:
    """What holds a value, or nothing of a type that the attribute says."""
    value = _given(node)
    if value is not None:
        return [optional_of(value)]
    declared = declared_form(node.type("type"))
    if declared is None:
        raise node.invalid("its attribute 'type' is made of other things than tensors")
    form, tensor = declared
    dtype = dtype_of(tensor.elem_type, str(node.location))
    return [OptionalValue(is_sequence=form.is_sequence, dtype=dtype, element=None)]


def _get_element(node: Node) -> Sequence[Value]:
    """What an optional holds; what is no optional is there."""
    value = node.value(0)
    held = value.element if isinstance(value, OptionalValue) else value
    if held is None:
        raise node.invalid(f"the element of {described(value)}")
    return [held]


def _has_element(node: Node) -> Sequence[Value]:
    return [node.constant(np.array(is_there(_given(node))))]


def _given(node: Node) -> Value | None:
    """The one operand, which may be left out."""
    return node.inputs[0] if node.inputs else None


CONVERTERS: Mapping[str, Converter] = {
    "ConcatFromSequence": _concat,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SequenceMap": _map,
    "SplitToSequence": _split_to_sequence,
}
