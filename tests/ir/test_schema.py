"""Schemas of JSON data: what fits passes, what does not is named with its place."""

from __future__ import annotations

from typing import Any

import pytest

from rammer.ir.schema import OrNull, Schema, SchemaError, check_schema, read_json

SCHEMA: Schema = {"name": str, "on": bool, "rows": [(str, int)], "sizes": {str: int}}
FITTING = {"name": "", "on": False, "rows": [["a", 0], ["b", (1 << 63) - 1]], "sizes": {"c": 1}, "more": None}


def test_what_fits() -> None:
    check_schema(FITTING, SCHEMA, "it")
    check_schema({**FITTING, "rows": [], "sizes": {}}, SCHEMA, "it")
    assert read_json(memoryview(b'{"a": [1, 2]}'), {"a": [int]}, "it") == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 1}, "it.name is not a text"),
        ({"on": 1}, "it.on is not true or false"),
        ({"rows": {}}, "it.rows is not a list"),
        ({"rows": [["a", 0], ["b"]]}, "it.rows[1] is not a list of 2"),
        ({"rows": [["a", 0], ["b", True]]}, "it.rows[1][1] is not a number from 0 on, below 2**63"),
        ({"rows": [["a", -1]]}, "it.rows[0][1] is not a number from 0 on, below 2**63"),
        ({"rows": [["a", 1 << 63]]}, "it.rows[0][1] is not a number from 0 on, below 2**63"),
        ({"rows": [["a", 1.0]]}, "it.rows[0][1] is not a number from 0 on, below 2**63"),
        ({"sizes": []}, "it.sizes is not an object"),
        ({"sizes": {"c": "1"}}, "it.sizes.c is not a number from 0 on, below 2**63"),
    ],
)
def test_what_does_not(change: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        check_schema({**FITTING, **change}, SCHEMA, "it")
    assert str(caught.value) == message


@pytest.mark.parametrize("data", [0, -1, 1.5, -(1 << 62)])
def test_any_number(data: float) -> None:
    check_schema(data, float, "it")


@pytest.mark.parametrize("data", [None, True, "1", float("nan"), float("inf"), 10**400, -(1 << 63)])
def test_what_is_not_any_number(data: Any) -> None:
    with pytest.raises(SchemaError, match=r"it is not a number, below 2\*\*63"):
        check_schema(data, float, "it")


def test_what_may_be_null() -> None:
    check_schema([None, 1], [OrNull(int)], "it")
    with pytest.raises(SchemaError, match=r"it\[0\] is not a number from 0 on"):
        check_schema([-1], [OrNull(int)], "it")


def test_a_list_of_anything() -> None:
    check_schema([None, 1, [2]], [], "it")
    with pytest.raises(SchemaError, match="it is not a list"):
        check_schema({}, [], "it")


def test_what_is_missing() -> None:
    with pytest.raises(SchemaError, match="it has no 'on'"):
        check_schema({"name": ""}, SCHEMA, "it")


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 10_000])
def test_what_is_no_json(data: bytes) -> None:
    with pytest.raises(SchemaError, match="it is not JSON: "):
        read_json(data, {}, "it")
