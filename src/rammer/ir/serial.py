"""Immutable data as JSON and back: dataclasses of listed kinds over numbers, texts, enumerations and tuples.

Each distinct dataclass is a row of one table, [kind, field, ...] in the order of its fields; others refer to it by its
number, and come behind it. So what is shared stays shared, and nothing is walked by recursion, however deep an
expression is. What is read is checked against the fields' annotations.
"""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from rammer.ir.schema import SchemaError, read_json

T = TypeVar("T")
Decode = Callable[[Any, Sequence[Any]], Any]
"""A field from JSON data and the rows before its own; ValueError where it cannot be that."""

_END = 1 << 63  # of numbers


def dumped(value: object, kinds: Sequence[type]) -> bytes:
    """A dataclass, and all that it refers to, as UTF-8 JSON: equal data give equal bytes.

    Args:
        value: of one of the kinds.
        kinds: of dataclasses there may be, with different names.

    Raises:
        KeyError: there is one of another kind.
    """
    names = {kind: kind.__name__ for kind in kinds}
    rows: list[list[Any]] = []
    places: dict[object, int] = {}
    pending = [value]
    while pending:
        top = pending[-1]
        missing = [part for part in _parts(top) if part not in places]
        if missing:
            pending += reversed(missing)
            continue
        pending.pop()
        if top not in places:
            places[top] = len(rows)
            rows.append([names[type(top)], *(_plain(field, places) for field in _values(top))])
    return json.dumps(rows, separators=(",", ":")).encode()


def loaded(data: bytes | memoryview, kind: type[T], kinds: Sequence[type], place: str) -> T:
    """What `dumped` wrote of a dataclass of `kind`.

    Raises:
        SchemaError: it is something else; the message begins with `place`.
    """
    rows: list[Any] = []
    named = {kind.__name__: kind for kind in kinds}
    for number, row in enumerate(read_json(data, [[]], place)):
        where = f"{place}[{number}]"
        if not row or type(row[0]) is not str or row[0] not in named:
            raise SchemaError(f"{where} is of no known kind")
        made = named[row[0]]
        decoders = _decoders(made)
        if len(row) != 1 + len(decoders):
            raise SchemaError(f"{where} has {len(row) - 1} fields, a {made.__name__} {len(decoders)}")
        try:
            given = {name: decode(field, rows) for (name, decode), field in zip(decoders, row[1:], strict=True)}
            rows.append(made(**given))
        except (ValueError, TypeError, LookupError) as error:
            raise SchemaError(f"{where} is no {made.__name__}: {error}") from error
    if not rows or not isinstance(rows[-1], kind):
        raise SchemaError(f"{place} does not end with a {kind.__name__}")
    return rows[-1]


def _values(value: Any) -> list[Any]:  # noqa: ANN401
    """The fields that a dataclass is made with."""
    return [getattr(value, field.name) for field in fields(value) if field.init]


def _parts(value: Any) -> Iterator[Any]:  # noqa: ANN401
    """The dataclasses that a dataclass refers to."""
    for field in _values(value):
        yield from _dataclasses(field)


def _dataclasses(field: Any) -> Iterator[Any]:  # noqa: ANN401
    if is_dataclass(field):
        yield field
    elif isinstance(field, tuple):
        for item in field:
            yield from _dataclasses(item)


def _plain(field: Any, places: dict[object, int]) -> Any:  # noqa: ANN401
    """A field as JSON data."""
    if is_dataclass(field):
        return places[field]
    if isinstance(field, enum.Enum):
        return field.value
    if isinstance(field, tuple | frozenset):
        return [_plain(item, places) for item in (sorted(field) if isinstance(field, frozenset) else field)]
    return field


@cache
def _decoders(kind: type) -> tuple[tuple[str, Decode], ...]:
    """The fields that a kind is made with, each with what reads it."""
    hints = get_type_hints(kind)
    return tuple((field.name, _decoder(hints[field.name])) for field in fields(kind) if field.init)


def _decoder(hint: Any) -> Decode:  # noqa: ANN401
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is types.UnionType:
        return _of_union(arguments)
    if origin is frozenset:
        item = _decoder(arguments[0])
        return lambda data, rows: frozenset(item(each, rows) for each in _list(data))
    if origin is tuple and arguments[1:] == (...,):
        item = _decoder(arguments[0])
        return lambda data, rows: tuple(item(each, rows) for each in _list(data))
    if isinstance(hint, type) and issubclass(hint, tuple):  # a NamedTuple
        items = [_decoder(each) for each in get_type_hints(hint).values()]
        return lambda data, rows: hint(*(item(each, rows) for item, each in zip(items, _list(data), strict=True)))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return lambda data, rows: hint(data)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda data, rows: _row(data, rows, hint)
    return lambda data, rows: _scalar(data, (hint,))


def _of_union(arguments: Sequence[Any]) -> Decode:
    """Null or something else, or one of several scalars."""
    others = [argument for argument in arguments if argument is not types.NoneType]
    if len(others) > 1:
        return lambda data, rows: _scalar(data, others)
    other = _decoder(others[0])
    return lambda data, rows: None if data is None else other(data, rows)


def _list(data: Any) -> list[Any]:  # noqa: ANN401
    if type(data) is not list:
        raise ValueError("a list is missing")
    return data


def _row(data: Any, rows: Sequence[Any], kind: type) -> Any:  # noqa: ANN401
    """The row of a number, which must be of a kind."""
    if type(data) is not int or not 0 <= data < len(rows) or not isinstance(rows[data], kind):
        raise ValueError(f"{data!r} names no {kind.__name__} before it")
    return rows[data]


def _scalar(data: Any, kinds: Sequence[type]) -> Any:  # noqa: ANN401
    """A text or number of one of some kinds."""
    if type(data) not in kinds or (type(data) is int and not -_END <= data < _END):
        raise ValueError(f"{str(data)[:40]!r} is none of {', '.join(kind.__name__ for kind in kinds)}")
    return data
