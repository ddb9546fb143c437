"""How a module is called: arguments and results that nest arrays in tuples, lists, dictionaries and objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from rammer.ir.graph import Array


Constant: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array. `name` is that of the model's input or output."""

    name: str


@dataclass(frozen=True, slots=True)
class Counted:
    """An array of a result, of which as many elements along an axis are given as another output, `count`, says."""

    name: str
    axis: int
    count: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a result, which is a model's output of one element."""

    name: str


@dataclass(frozen=True, slots=True)
class Fixed:
    """A value that is part of the program: a call has to give it again, or leave it out."""

    value: Constant


@dataclass(frozen=True, slots=True, kw_only=True)
class Nest:
    """A container. `kind` is "tuple", "list", "dict", or the full name of a class; `keys` are those of the parts.

    Tuples and lists have no keys. `context` is JSON text with which the library that knows the class makes objects.
    """

    kind: str
    keys: tuple[Constant, ...]
    parts: tuple[Structure, ...]
    context: str = "null"


Structure: TypeAlias = Leaf | Counted | Number | Fixed | Nest

Make: TypeAlias = Callable[[Nest, Sequence[object]], object]
"""Makes an object of the class that a container names from its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallForm:
    """The form of a call: arguments by position, each with its name, arguments by name alone, and the result."""

    positional: tuple[tuple[str, Structure], ...]
    named: tuple[tuple[str, Structure], ...]
    result: Structure

    @property
    def arguments(self) -> tuple[tuple[str, Structure], ...]:
        """All arguments, those by position first."""
        return (*self.positional, *self.named)


def leaves(structure: Structure) -> Iterator[str]:
    """The names of the arrays, in order."""
    match structure:
        case Leaf(name) | Number(name):
            yield name
        case Counted(name, _, count):
            yield from (name, count)
        case Nest(parts=parts):
            for part in parts:
                yield from leaves(part)


def has_sizes(structure: Structure) -> bool:
    """Whether sizes or numbers of a result are read when a call is over."""
    if isinstance(structure, Nest):
        return any(map(has_sizes, structure.parts))
    return isinstance(structure, Counted | Number)


def assembled(structure: Structure, arrays: Iterator[Any], make: Make) -> Any:  # noqa: ANN401 - any structure
    """The structure with arrays in place of its leaves, in order."""
    match structure:
        case Leaf():
            return next(arrays)
        case Counted(axis=axis):
            array, count = next(arrays), int(next(arrays))
            return array[(*(slice(None) for _ in range(axis)), slice(count))]
        case Number():
            return next(arrays).item()
        case Fixed():
            return structure.value
    parts = [assembled(part, arrays, make) for part in structure.parts]
    match structure.kind:
        case "tuple":
            return tuple(parts)
        case "list":
            return parts
        case "dict":
            return dict(zip(structure.keys, parts, strict=True))
    return make(structure, parts)


class StateOwner(Protocol):
    """The objects of another library that a model's states were taken from: a module and its optimiser."""

    def rates(self) -> Mapping[str, float]:
        """The learning rates as they are now, by the names of their states.

        Raises:
            CallError: the objects were changed in another way since the states were last read or written.
        """
        ...

    def read(self, names: Sequence[str]) -> Mapping[str, Array]:
        """The values of the states that the objects have, of those named."""
        ...

    def write(self, states: Mapping[str, Array]) -> None:
        """Put the states into the objects."""
        ...
