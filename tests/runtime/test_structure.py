"""Nested arguments and results, and their form as JSON data; no PyTorch is needed."""

from typing import Any

import numpy as np
import pytest

import rammer
from rammer.errors import ArgumentError
from rammer.ir.calling import CallForm, Counted, Fixed, Leaf, Nest, Number, assembled, leaves
from rammer.ir.schema import SchemaError
from rammer.ir.types import DType, TensorType
from rammer.runtime.signature import Port, Signature
from rammer.runtime.structure import arrays_of, form_from_json, form_to_json

FORM = CallForm(
    positional=(("x", Leaf("x")), ("flag", Fixed(True))),
    named=(
        ("rest", Nest(kind="dict", keys=("a", 1), parts=(Leaf("a"), Nest(kind="tuple", keys=(), parts=(Leaf("b"),))))),
    ),
    result=Nest(
        kind="list",
        keys=(),
        parts=(Leaf("y"), Fixed(None), Nest(kind="some.Class", keys=("k",), parts=(Leaf("z"),), context='["k"]')),
    ),
)
FLOAT = TensorType(DType.FLOAT32, (2,))
SIGNATURE = Signature(
    inputs=tuple(Port(name, FLOAT) for name in ("x", "a", "b")), outputs=tuple(Port(name, FLOAT) for name in ("y", "z"))
)


def test_arrays_are_found_in_order():
    rest = {"a": 2, 1: (3,)}
    assert arrays_of(FORM, (1, True), {"rest": rest}) == [1, 2, 3]
    assert arrays_of(FORM, (), {"rest": rest, "x": 1}) == [1, 2, 3]
    assert arrays_of(FORM, (1,), {"rest": {1: [3], "a": 2}}) == [1, 2, 3]
    assert list(leaves(FORM.result)) == ["y", "z"]


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((1,), {}, "'rest' is missing"),
        ((1, 1), {"rest": {}}, "'flag' is 1, the module was compiled with True"),
        ((1, False), {"rest": {}}, "compiled with True"),
        ((1, True), {"rest": {"a": 2}}, "'rest' is dict of ['a']"),
        ((1, True), {"rest": {"a": 2, 1: 3}}, "'rest.1' is int"),
        ((1, True), {"rest": {"a": 2, 1: (3, 4)}}, "'rest.1' is tuple of 2"),
        ((1, True, 2), {}, "3 arguments by position"),
        ((1, True), {"x": 1}, "'x' is given twice"),
        ((1, True), {"y": 1}, "'y' is none that the module was compiled with"),
    ],
)
def test_arguments_of_another_form(args, kwargs, reason):
    with pytest.raises(ArgumentError) as caught:
        arrays_of(FORM, args, kwargs)
    assert reason in str(caught.value)


def test_results_are_put_together():
    made = assembled(FORM.result, iter([5, 6]), lambda nest, parts: (nest.kind, nest.context, *parts))
    assert made == [5, None, ("some.Class", '["k"]', 6)]


def test_forms_survive_as_json():
    assert form_from_json(form_to_json(FORM), SIGNATURE) == FORM


def test_forms_with_sizes_survive_as_json():
    result = Nest(kind="tuple", keys=(), parts=(Counted("y", 0, "y.count"), Number("n")))
    form = CallForm(positional=(("x", Leaf("x")),), named=(), result=result)
    number = TensorType(DType.INT64, ())
    outputs = (Port("y", FLOAT), Port("y.count", number), Port("n", number))
    signature = Signature(inputs=(Port("x", FLOAT),), outputs=outputs)
    data: Any = form_to_json(form)
    assert form_from_json(data, signature) == form
    arrays = [np.arange(2), np.array(1), np.array(7)]
    assert assembled(result, iter(arrays), lambda *_: None) == (np.array([0]), 7)
    parts = data["result"]["parts"]
    forged = [
        {**data, "positional": [["x", {"number": "x"}]]},
        *({**data, "result": {**data["result"], "parts": [one, parts[1]]}} for one in forged_sizes(parts[0])),
    ]
    for each in forged:
        with pytest.raises(SchemaError):
            form_from_json(each, signature)
    with pytest.raises(SchemaError):
        form_from_json(data, Signature(inputs=signature.inputs, outputs=(outputs[0], outputs[0], outputs[2])))


def forged_sizes(part):
    return [{**part, "axis": axis} for axis in (1, -1, True, "0", None)] + [{**part, "count": "n"}, {"number": "y"}]


def deep(levels):
    structure: dict[str, Any] = {"array": "x"}
    for _ in range(levels):
        structure = {"kind": "list", "keys": [], "parts": [structure], "context": "null"}
    return structure


@pytest.mark.parametrize(
    "damage",
    [
        None,
        {},
        {"result": {"array": 3}},
        {"result": {"fixed": [1]}},
        {"result": {"array": "other"}},
        {"result": {"kind": "dict", "keys": [], "parts": [{"array": "y"}], "context": "null"}},
        {"result": {"kind": "list", "keys": [], "parts": 3, "context": "null"}},
        {"positional": [["x"]]},
        {"positional": [["x", deep(1000)]]},
        {"named": 4},
    ],
)
def test_damaged_forms_are_refused(damage):
    data: Any = form_to_json(FORM)
    broken = damage and {**data, **damage}
    with pytest.raises(SchemaError):
        form_from_json(broken, SIGNATURE)


def test_objects_that_are_no_models():
    with pytest.raises(rammer.errors.NotAModelError, match="ndarray"):
        rammer.compile(np.zeros(3))
