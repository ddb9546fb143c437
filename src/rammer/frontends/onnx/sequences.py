"""Sequences and optionals of ONNX during import: which tensors they hold is known, and these alone reach the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import onnx

from rammer.frontends.builder import Operand
from rammer.frontends.onnx.tensors import schema_type
from rammer.ir.types import DType
from rammer.printable import listing


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorSequence:
    """Tensors of one element type, in order; their shapes may differ."""

    dtype: DType
    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptionalValue:
    """What may be there: a sequence or a tensor, of an element type; `element` is None where it is not there."""

    is_sequence: bool
    dtype: DType
    element: Operand | TensorSequence | None


Value = Operand | TensorSequence | OptionalValue
"""What a name of a model stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a value holds tensors: as a sequence of them, as an optional, as an optional sequence or as the one it is."""

    is_sequence: bool = False
    is_optional: bool = False

    def of(self, tensors: str) -> str:
        """The type of a value as ONNX spells it, around that of its tensors: `optional(seq(tensor(float)))`."""
        inside = f"seq({tensors})" if self.is_sequence else tensors
        return f"optional({inside})" if self.is_optional else inside


TENSOR = Form()


def form_of(value: Value) -> Form:
    """The form of a value."""
    match value:
        case TensorSequence():
            return Form(is_sequence=True)
        case OptionalValue():
            return Form(is_sequence=value.is_sequence, is_optional=True)
    return TENSOR


def declared_form(type_: onnx.TypeProto) -> tuple[Form, onnx.TypeProto.Tensor] | None:
    """The form that a type of ONNX has and the type of its tensors; None for what is made of no tensors."""
    form = Form(is_optional=type_.HasField("optional_type"))
    held = type_.optional_type.elem_type if form.is_optional else type_
    if held.HasField("sequence_type"):
        form, held = replace(form, is_sequence=True), held.sequence_type.elem_type
    return (form, held.tensor_type) if held.HasField("tensor_type") else None


def made_of(form: Form, tensors: Sequence[Operand]) -> Value:
    """A value of a form, made of tensors, of which there is at least one."""
    value = TensorSequence(dtype=tensors[0].dtype, elements=tuple(tensors)) if form.is_sequence else tensors[0]
    return optional_of(value) if form.is_optional else value


def optional_of(value: Value) -> OptionalValue:
    """An optional that holds a value; one that is an optional already is itself."""
    if isinstance(value, OptionalValue):
        return value
    return OptionalValue(is_sequence=isinstance(value, TensorSequence), dtype=value.dtype, element=value)


def is_there(value: Value | None) -> bool:
    """Whether there is a value: one that is left out is not, nor is an empty optional."""
    return value.element is not None if isinstance(value, OptionalValue) else value is not None


def kind_of(value: Value) -> str:
    """A value's type as ONNX's operator schemas spell it, `seq(tensor(float))`."""
    return form_of(value).of(schema_type(value.dtype))


def described(value: Value) -> str:
    """A value's type for messages, with those of all tensors: `seq(float32[2,3], float32[4])`."""
    tensors = [str(tensor.type) for _, tensor in tensors_of("", value)]
    return form_of(value).of(listing(tensors)) if tensors else f"an empty {form_of(value).of(value.dtype.value)}"


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
            return value if value.element is None else optional_of(mapped(function, value.element))
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
