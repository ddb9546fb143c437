"""Immutable data as JSON and back: equal, shared where it was shared, and refused where it is something else."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rammer.ir.expr import Axis, Call, Const, Expr, Load, Output, Reduce, ReduceFn, ScalarFn, TensorExpr, const, load
from rammer.ir.schema import SchemaError
from rammer.ir.serial import dumped, loaded
from rammer.ir.types import DType, Layout, Panel, TensorType

KINDS = (TensorType, Panel, Layout, TensorExpr, Output, Const, Axis, Load, Call, Reduce)
TYPE = TensorType(DType.FLOAT32, (4, 8))
ROW, K = Axis("i", 4), Axis("k", 8)


@dataclass(frozen=True)
class Numbers:
    """Of each scalar kind one."""

    whole: int
    real: float
    text: str
    maybe: int | None
    any: bool | int | float
    several: frozenset[int]
    pair: tuple[int, ...] = ()


NUMBERS = Numbers(1, 0.5, "t", None, True, frozenset({3, 1}), (5, 6))


def sums() -> TensorExpr:
    """The sum of each row."""
    body = Reduce(ReduceFn.SUM, (K,), load(0, TYPE, (ROW, K)))
    output = Output(type=TensorType(DType.FLOAT32, (4,)), indices=(ROW,), body=body)
    return TensorExpr(axes=(ROW,), inputs=(TYPE,), outputs=(output,))


def chain(length: int) -> TensorExpr:
    """A sum of one element with itself, doubled again and again."""
    body: Expr = load(0, TYPE, (ROW, 0))
    for _ in range(length):
        body = Call(ScalarFn.ADD, (body, body))
    return replace(sums(), outputs=(replace(sums().outputs[0], body=body),))


@pytest.mark.parametrize(
    "value", [const(float("inf"), DType.FLOAT32), const(-0.0, DType.FLOAT32), const(True, DType.BOOL)]
)
def test_scalars_keep_kind_and_bits(value: Const) -> None:
    assert loaded(dumped(value, KINDS), Const, KINDS, "it") is value


def test_what_is_interned_is_the_same_object_again() -> None:
    assert loaded(dumped(sums(), KINDS), TensorExpr, KINDS, "it") is sums()


def test_what_is_interned_is_the_same_object_again_for_pickle_too() -> None:
    """Processes hand work to each other that way, and what compares by identity has to be found in it again."""
    assert pickle.loads(pickle.dumps(sums())) is sums()  # noqa: S301 - of our own


def test_layouts_with_and_without_panels() -> None:
    for layout in (Layout.row_major((2, 3)), Layout.panelled((16, 3), (0, 1), 0, 8)):
        assert loaded(dumped(layout, KINDS), Layout, KINDS, "it") == layout


def test_what_is_shared_is_written_once_however_deep_it_is() -> None:
    deep = chain(5000)
    written = dumped(deep, KINDS)
    assert len(json.loads(written)) < 5100
    assert loaded(written, TensorExpr, KINDS, "it") is deep


def test_scalars_of_all_kinds() -> None:
    assert loaded(dumped(NUMBERS, (Numbers,)), Numbers, (Numbers,), "it") == NUMBERS


def test_another_kind_is_not_written() -> None:
    with pytest.raises(KeyError):
        dumped(sums(), KINDS[:-1])


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("[", "it is not JSON"),
        ("{}", "it is not a list"),
        ("[]", "it does not end with a TensorType"),
        ("[[]]", r"it\[0\] is of no known kind"),
        ("[[99]]", r"it\[0\] is of no known kind"),
        ("[[true]]", r"it\[0\] is of no known kind"),
        ('[["TensorType","float32"]]', r"it\[0\] has 1 fields, a TensorType 2"),
        ('[["TensorType","float33",[4]]]', r"it\[0\] is no TensorType: 'float33'"),
        ('[["TensorType",[],[4]]]', r"it\[0\] is no TensorType"),
        ('[["TensorType","float32",4]]', r"it\[0\] is no TensorType: a list is missing"),
        ('[["TensorType","float32",[4.5]]]', r"it\[0\] is no TensorType: '4.5' is none of int"),
        ('[["TensorType","float32",[true]]]', r"it\[0\] is no TensorType: 'True' is none of int"),
        (f'[["TensorType","float32",[{1 << 63}]]]', r"it\[0\] is no TensorType: '9223372036854775808' is none of int"),
        ('[["Axis",7]]', r"it\[0\] has 1 fields, a Axis 2"),
        ('[["Axis","i",4]]', "it does not end with a TensorType"),
        ('[["TensorExpr",[0],[],[]]]', r"it\[0\] is no TensorExpr: 0 names no Axis before it"),
        (
            '[["Axis","i",4],["TensorType","float32",[]],["TensorExpr",[1],[],[]]]',
            r"it\[2\] is no TensorExpr: 1 names no Axis before it",
        ),
        ('[["Call","add",[]]]', r"it\[0\] is no Call: tuple index out of range"),
    ],
)
def test_something_else_is_refused(rows: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        loaded(rows.encode(), TensorType, KINDS, "it")


@pytest.mark.parametrize("another", [None, True, -1, 1.5, 10**30, "text", [], [1], {}])
def test_every_field_is_checked(another: Any) -> None:
    (row,) = json.loads(dumped(NUMBERS, (Numbers,)))
    for place in range(len(row)):
        changed = json.dumps([[*row[:place], another, *row[place + 1 :]]]).encode()
        try:
            found = loaded(changed, Numbers, (Numbers,), "it")
        except SchemaError:
            continue
        assert found == replace(NUMBERS, **found_field(place, another))


def found_field(place: int, value: Any) -> dict[str, Any]:
    """The field of a row's place, as it is read."""
    name = list(Numbers.__dataclass_fields__)[place - 1]
    return {name: frozenset(value) if name == "several" else tuple(value) if name == "pair" else value}
