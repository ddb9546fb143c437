"""Typed reads of an operator's attributes.

They are set by the frontends and by composite operators, never by the user directly, so a missing or mistyped one is
a defect of Rammer and raises Python's own `KeyError` or `TypeError`.
"""

from __future__ import annotations

from typing import TypeVar

from rammer.ir.graph import Attributes

_T = TypeVar("_T", bool, int, float, str)


def flag(attributes: Attributes, name: str) -> bool:
    """A boolean attribute."""
    return _checked(attributes[name], bool, name)


def integer(attributes: Attributes, name: str) -> int:
    """An integer attribute."""
    return _checked(attributes[name], int, name)


def number(attributes: Attributes, name: str) -> float:
    """A floating-point attribute; an integer is taken as one."""
    value = attributes[name]
    return float(value) if isinstance(value, int) else _checked(value, float, name)


def text(attributes: Attributes, name: str) -> str:
    """A string attribute."""
    return _checked(attributes[name], str, name)


def integers(attributes: Attributes, name: str) -> tuple[int, ...]:
    """A tuple of integers."""
    return _checked_tuple(attributes[name], int, name)


def numbers(attributes: Attributes, name: str) -> tuple[float, ...]:
    """A tuple of floating-point numbers."""
    return _checked_tuple(attributes[name], float, name)


def texts(attributes: Attributes, name: str) -> tuple[str, ...]:
    """A tuple of strings."""
    return _checked_tuple(attributes[name], str, name)


def _checked(value: object, kind: type[_T], name: str) -> _T:
    if not isinstance(value, kind):
        raise TypeError(f"attribute {name} is {value!r}, not {kind.__name__}")
    return value


def _checked_tuple(value: object, kind: type[_T], name: str) -> tuple[_T, ...]:
    if not isinstance(value, tuple):
        raise TypeError(f"attribute {name} is {value!r}, not a tuple")
    return tuple(_checked(item, kind, name) for item in value)
