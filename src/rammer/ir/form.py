"""The form that JSON data of a file should have. Files come from elsewhere: what they hold is checked where it is read.

A form is `str`, `bool`, `int` for a number from 0 on, `float` for any; `OrNull(form)`; `[form]`, a list of any length,
`[]`, one of anything; `(form, form)`, a list of so many; `{"name": form}`, an object with these entries and perhaps
others; `{str: form}`, an object with any.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class OrNull:
    """Null, or what has a form."""

    form: Form


Form = type[str] | type[bool] | type[int] | type[float] | OrNull | Sequence["Form"] | Mapping[Any, "Form"]

_END = 1 << 63  # of numbers
_NAMES = {
    str: "a text",
    bool: "true or false",
    int: "a number from 0 on, below 2**63",
    float: "a number, below 2**63",
    dict: "an object",
}


class FormError(ValueError):
    """What a file holds lacks something, has another form or does not fit together."""


def read_json(data: bytes | memoryview, form: Form, place: str) -> Any:  # noqa: ANN401
    """JSON data of the given form.

    Raises:
        FormError: it is no JSON, or has another form; the message says where, from `place` on.
    """
    try:
        found = json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise FormError(f"{place} is not JSON: {error}") from error
    check_form(found, form, place)
    return found


def check_form(data: object, form: Form, place: str) -> None:
    """See whether JSON data has a form.

    Raises:
        FormError: it has not; the message says where, from `place` on.
    """
    misfit = _misfit(data, form)
    if misfit is not None:
        raise FormError(place + misfit)


def _misfit(data: Any, form: Any) -> str | None:  # noqa: ANN401
    """Where data first departs from a form and how, or None. Manifests are large: this is about as quick as reading."""
    kind = type(form)
    if kind is type:
        if form is float:
            fits = type(data) in (int, float) and -_END < data < _END
        else:
            fits = type(data) is form and (form is not int or 0 <= data < _END)
        return None if fits else f" is not {_NAMES[form]}"
    if kind is OrNull:
        return None if data is None else _misfit(data, form.form)
    if kind is dict:
        if type(data) is not dict:
            return f" is not {_NAMES[dict]}"
        for name, inner in (dict.fromkeys(data, form[str]) if str in form else form).items():
            if name not in data:
                return f" has no '{name}'"
            if (misfit := _misfit(data[name], inner)) is not None:
                return f".{name}{misfit}"
        return None
    if type(data) is not list or (kind is tuple and len(data) != len(form)):
        return " is not a list" + (f" of {len(form)}" if kind is tuple else "")
    if data:
        for i, inner in enumerate(form if kind is tuple else form * len(data)):
            if (misfit := _misfit(data[i], inner)) is not None:
                return f"[{i}]{misfit}"
    return None
