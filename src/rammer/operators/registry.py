"""The table of operators. A family file registers its kinds; nothing else in the compiler lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from rammer.errors import InvalidModelError
from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Array, Attribute, Attributes
from rammer.ir.types import TensorType


class Builder(Protocol):
    """What a composite operator adds its operators to; `operators.builder.GraphBuilder` is one."""

    def type(self, value: int) -> TensorType:
        """The type of a value."""
        ...

    def constant(self, array: Array, name: str) -> int:
        """A new constant."""
        ...

    def add(
        self, kind: str, inputs: Sequence[int], attributes: Attributes = MappingProxyType({}), *, name: str
    ) -> tuple[int, ...]:
        """Add an operator of a registered kind and return its output values."""
        ...


BuildExpr = Callable[[Sequence[TensorType], Attributes], TensorExpr]
Expand = Callable[[Builder, Sequence[int], Attributes, str], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorDef:
    """An operator defined by its tensor expression; the expression's outputs are its shape inference.

    `build(input types, attributes)` returns the expression, or raises `InvalidModelError` when they do not fit.
    """

    kind: str
    build: BuildExpr


@dataclass(frozen=True, slots=True, kw_only=True)
class CompositeDef:
    """An operator made of others (a recurrent layer).

    `infer(input types, attributes)` gives the output types; `expand(builder, input values, attributes, name)` adds
    the operators it stands for and returns the output values, each of the inferred type.
    """

    kind: str
    infer: Callable[[Sequence[TensorType], Attributes], tuple[TensorType, ...]]
    expand: Expand


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomDef(OperatorDef):
    """An operator that a user defined; its kind is a name with a domain, "com.example.Swish".

    `operands` are the names of its operands; `defaults` has its attributes, None for one that has to be given.
    """

    operands: tuple[str, ...]
    defaults: Mapping[str, Attribute | None]


_DEFINITIONS: dict[str, OperatorDef | CompositeDef] = {}
_CUSTOM: dict[str, CustomDef] = {}


def register(definition: OperatorDef | CompositeDef) -> None:
    """Add a definition.

    Raises:
        ValueError: the kind is taken.
    """
    if definition.kind in _DEFINITIONS:
        raise ValueError(f"operator kind {definition.kind} is registered twice")
    _DEFINITIONS[definition.kind] = definition


def register_custom(definition: CustomDef) -> None:
    """Add a user's definition, or put it in the place of an earlier one of the kind."""
    _CUSTOM[definition.kind] = definition


def custom_definitions() -> Mapping[str, CustomDef]:
    """Users' definitions by kind."""
    return MappingProxyType(_CUSTOM)


def definition_of(kind: str) -> OperatorDef | CompositeDef:
    """The definition of a kind.

    Raises:
        KeyError: no such kind.
    """
    return _CUSTOM[kind] if kind in _CUSTOM else _DEFINITIONS[kind]


def definitions() -> Mapping[str, OperatorDef | CompositeDef]:
    """All of Rammer's definitions by kind."""
    return dict(sorted(_DEFINITIONS.items()))


def require(condition: bool, message: str) -> None:
    """Check something about the user's operator.

    Raises:
        InvalidModelError: `condition` is false. The graph builder adds the place.
    """
    if not condition:
        raise InvalidModelError(message)
