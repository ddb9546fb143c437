"""Sequences and optionals of ONNX during import: which tensors they hold is known, and these alone reach the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import onnx

from rammer.frontends.builder import Operand
from rammer.frontends.onnx.tensors import schema_type
from rammer.ir.types import DType
from rammer.printable import listing

TENSOR, SEQUENCE, OPTIONAL = "{}", "seq({})", "optional({})"
"""Forms of values: how ONNX spells the type of one, around that of its tensors. Optionals may hold sequences."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorSequence:
    """Tensors of one element type, in order; their shapes may differ."""

    dtype: DType
    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptionalValue:
    """What may be there: `element`, which is None where it is not, and the form and element type it then would have."""

    form: str
    dtype: DType
    element: Value | None


Value = Operand | TensorSequence | OptionalValue
"""What a name of a model stands for."""


def form_of(value: Value) -> str:
    """The form of a value."""
    match value:
        case TensorSequence():
            return SEQUENCE
        case OptionalValue():
            return OPTIONAL.format(value.form)
    return TENSOR


def kind_of(value: Value) -> str:
    """A value's type as ONNX's operator schemas spell it, `seq(tensor(float))`."""
    return form_of(value).format(schema_type(value.dtype))


def described(value: Value) -> str:
    """A value's type for messages, with those of all tensors: `seq(float32[2,3], float32[4])`."""
    tensors = [str(tensor.type) for _, tensor in tensors_of("", value)]
    form = form_of(value)
    return form.format(listing(tensors)) if tensors else f"an empty {form.format(value.dtype.value)}"


def optional_of(value: Value) -> OptionalValue:
    """An optional that holds a value."""
    return OptionalValue(form=form_of(value), dtype=value.dtype, element=value)


def taken_as(declared: onnx.TypeProto, value: Value) -> Value:
    """What a graph's input of a declared type is: an optional may be given what it holds, as by the trip before."""
    is_held = declared.WhichOneof("value") == "optional_type" and not isinstance(value, OptionalValue)
    return optional_of(value) if is_held else value


def is_there(value: Value | None) -> bool:
    """Whether there is a value: one that is left out is not, nor is an empty optional."""
    return value.element is not None if isinstance(value, OptionalValue) else value is not None


def tensors_of(name: str, value: Value) -> list[tuple[str, Operand]]:
    """The tensors of a value with their names: those of a sequence are `name[0]`, `name[1]` and so on."""
    match value:
        case TensorSequence():
            return [(f"{name}[{position}]", element) for position, element in enumerate(value.elements)]
        case OptionalValue():
            return [] if value.element is None else tensors_of(name, value.element)
    return [(name, value)]


def mapped(function: Callable[[Operand], Operand], value: Value) -> Value:
    """A value with what a function makes of its tensors, which keep their element type."""
    match value:
        case TensorSequence():
            return replace(value, elements=tuple(map(function, value.elements)))
        case OptionalValue():
            return replace(value, element=value.element and mapped(function, value.element))
    return function(value)


def combined(function: Callable[[Operand, Operand], Operand], a: Value, b: Value) -> Value | None:
    """A value with what a function makes of its tensors and those of another; None where the two are not alike."""
    if _outline(a) != _outline(b):
        return None
    others = iter(tensor for _, tensor in tensors_of("", b))
    return mapped(lambda tensor: function(tensor, next(others)), a)


def _outline(value: Value) -> tuple[str, list[str], bool]:
    """All of a value but its tensors."""
    return kind_of(value), [name for name, _ in tensors_of("", value)], is_there(value)


def innermost(type_: onnx.TypeProto) -> tuple[str, onnx.TypeProto.Tensor] | None:
    """The form that a type of ONNX declares and the type of its tensors; None for what is made of no tensors."""
    match type_.WhichOneof("value"):
        case "tensor_type":
            return TENSOR, type_.tensor_type
        case "sequence_type" if type_.sequence_type.elem_type.HasField("tensor_type"):
            return SEQUENCE, type_.sequence_type.elem_type.tensor_type
        case "optional_type" if (inside := innermost(type_.optional_type.elem_type)) is not None:
            form, tensor = inside
            return OPTIONAL.format(form), tensor
    return None
