"""The table of operators. A family file registers its kinds; nothing else in the compiler lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from rammer.errors import InvalidModelError
from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Array, Attributes
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


_DEFINITIONS: dict[str, OperatorDef | CompositeDef] = {}


def register(definition: OperatorDef | CompositeDef) -> None:
    """Add a definition.

    Raises:
        ValueError: the kind is taken.
    """
    if definition.kind in _DEFINITIONS:
        raise ValueError(f"operator kind {definition.kind} is registered twice")
    _DEFINITIONS[definition.kind] = definition


def definition_of(kind: str) -> OperatorDef | CompositeDef:
    """The definition of a kind.

    Raises:
        KeyError: no such kind.
    """
    return _DEFINITIONS[kind]


def definitions() -> Mapping[str, OperatorDef | CompositeDef]:
    """All definitions by kind."""
    return dict(sorted(_DEFINITIONS.items()))


def require(condition: bool, message: str) -> None:
    """Check something about the user's operator.

    Raises:
        InvalidModelError: `condition` is false. The graph builder adds the place.
    """
    if not condition:
        raise InvalidModelError(message)
