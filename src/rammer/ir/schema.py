"""Schemas of JSON data. Files come from elsewhere: what they hold is checked where it is read.

A schema is `str`, `bool`, `int` for a number from 0 on, `float` for any; `OrNull(schema)`; `[schema]`, a list of any
length, `[]`, one of anything; `(schema, schema)`, a list of so many; `{"name": schema}`, an object with these entries
and perhaps others; `{str: schema}`, an object with any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OrNull:
    """Null, or what follows a schema."""

    schema: Schema


Schema = type[str] | type[bool] | type[int] | type[float] | OrNull | Sequence["Schema"] | Mapping[Any, "Schema"]

_END = 1 << 63  # of numbers
_NAMES = {
    str: "a text",
    bool: "true or false",
    int: "a number from 0 on, below 2**63",
    float: "a number, below 2**63",
    dict: "an object",
}


class SchemaError(ValueError):
    """What a file holds lacks something, breaks its schema or does not fit together."""


def read_json(data: bytes | memoryview, schema: Schema, place: str) -> Any:  # noqa: ANN401
    """JSON data that follows a schema.

    Raises:
        SchemaError: it is no JSON, or breaks the schema; the message says where, from `place` on.
    """
    try:
        found = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"{place} is not JSON: {error}") from error
    check_schema(found, schema, place)
    return found


def check_schema(data: object, schema: Schema, place: str) -> None:
    """See whether JSON data follows a schema.

    Raises:
        SchemaError: it does not; the message says where, from `place` on.
    """
    misfit = _misfit(data, schema)
    if misfit is not None:
        raise SchemaError(place + misfit)


def _misfit(data: Any, schema: Any) -> str | None:  # noqa: ANN401
    """Where data first departs from a schema, and how, or None. Manifests are large: about as quick as reading."""
    kind = type(schema)
    if kind is type:
        if schema is float:
            fits = type(data) in (int, float) and -_END < data < _END
        else:
            fits = type(data) is schema and (schema is not int or 0 <= data < _END)
        return None if fits else f" is not {_NAMES[schema]}"
    if kind is OrNull:
        return None if data is None else _misfit(data, schema.schema)
    if kind is dict:
        if type(data) is not dict:
            return f" is not {_NAMES[dict]}"
        for name, inner in (dict.fromkeys(data, schema[str]) if str in schema else schema).items():
            if name not in data:
                return f" has no '{name}'"
            if (misfit := _misfit(data[name], inner)) is not None:
                return f".{name}{misfit}"
        return None
    if type(data) is not list or (kind is tuple and len(data) != len(schema)):
        return " is not a list" + (f" of {len(schema)}" if kind is tuple else "")
    if data:
        for i, inner in enumerate(schema if kind is tuple else schema * len(data)):
            if (misfit := _misfit(data[i], inner)) is not None:
                return f"[{i}]{misfit}"
    return None
