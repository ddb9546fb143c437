"""Which states are updated in place and which are not: whatever is decided, runs give what the model says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import rammer
from rammer.frontends.dispatch import Example, load_model
from rammer.ir.expr import Axis, Load, Output, ScalarFn, TensorExpr, call, select
from rammer.ir.extern import ExternKernel
from rammer.ir.types import DType, TensorType
from rammer.options import CompileOptions, GivenInputs
from rammer.passes import update_in_place
from rammer.pipelines.compiler import find_target
from rammer.roller.tile import footprint_bytes
from tests.support.small_models import small_model

ROWS, WIDTH = 5, 3
FLOAT, HALF, I32, I64 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64
EQUAL = ("Equal", ["numbers", "position"], "hit")
TAKEN = ("Where", ["hit", "x", "past"], "present")
SCATTERED = ("TensorScatter", ["past", "x", "position"], "present")


def cached(*steps, dtype=FLOAT, positions=I64, rows=1, shape=(ROWS, WIDTH), **attributes):
    """past, x and position to present, and y that reads it."""
    constants: dict[str, Any] = {
        "numbers": np.arange(ROWS, dtype=np.int32 if positions == I32 else np.int64).reshape(ROWS, 1),
        "odd": (np.arange(ROWS) % 2 == 1).reshape(ROWS, 1),
        "zero": np.zeros(1, np.int64),
        "one": np.ones(1, np.int64),
        "many": np.full(1, 99, np.int64),
        "more": np.array([2], np.int64),
        "three": np.array([3], np.int64),
        "pair": np.array([1, 1], np.int64),
        "wide": np.array([1, WIDTH], np.int64),
    }
    given = [*steps, ("Neg", ["present"], "y")]
    nodes = [helper.make_node(op, ins, [out], **(attributes if op == steps[-1][0] else {})) for op, ins, out in given]
    cache = (dtype, shape)
    ports = {"past": cache, "x": (dtype, (*shape[:-2], rows, WIDTH)), "position": (positions, (1,))}
    model = small_model(nodes, ports, {"y": cache, "present": cache}, constants)
    model.opset_import[0].version, model.ir_version = 24, 11
    return model


IN_PLACE = {
    "one row": cached(EQUAL, TAKEN),
    "the operands turned": cached(("Equal", ["position", "numbers"], "hit"), TAKEN),
    "the choice turned": cached(EQUAL, ("Not", ["hit"], "kept"), ("Where", ["kept", "past", "x"], "present")),
    "where others ask, too": cached(
        EQUAL, ("And", ["hit", "odd"], "both"), ("Where", ["both", "x", "past"], "present")
    ),
    "sums": cached(EQUAL, ("Add", ["x", "past"], "sum"), ("Where", ["hit", "sum", "past"], "present")),
    "half precision": cached(EQUAL, TAKEN, dtype=HALF),
    "positions of 32 bits": cached(EQUAL, TAKEN, positions=I32),
    "rows from one on": cached(SCATTERED, rows=2, shape=(1, ROWS, WIDTH), axis=1),
    "as many rows as there are": cached(SCATTERED, rows=ROWS, shape=(1, ROWS, WIDTH), axis=1, mode="circular"),
    "in a circle": cached(SCATTERED, rows=2, shape=(1, ROWS, WIDTH), axis=1, mode="circular"),
    "an element of each line": cached(
        ("Reshape", ["position", "pair"], "line"),
        ("Expand", ["line", "wide"], "at"),
        ("ScatterElements", ["past", "at", "x"], "present"),
        axis=0,
    ),
    "a row by its number": cached(
        ("Reshape", ["position", "pair"], "line"), ("ScatterND", ["past", "line", "x"], "present")
    ),
    "rows that were turned": cached(
        ("Transpose", ["past"], "turned"),
        ("Reshape", ["position", "pair"], "line"),
        ("Transpose", ["x"], "row"),
        ("ScatterND", ["turned", "line", "row"], "scattered"),
        ("Transpose", ["scattered"], "present"),
        shape=(WIDTH, ROWS, WIDTH),
        perm=[1, 0, 2],
    ),
    "a part that is known": cached(
        ("Slice", ["past", "zero", "more"], "before"),
        ("Slice", ["past", "three", "many"], "after"),
        ("Concat", ["before", "x", "after"], "present"),
        axis=0,
    ),
}
ALTERNATING = {
    "several rows": cached(("Less", ["numbers", "position"], "hit"), TAKEN),
    "one row or another": cached(
        EQUAL,
        ("Add", ["position", "one"], "next"),
        ("Equal", ["numbers", "next"], "after"),
        ("Or", ["hit", "after"], "either"),
        ("Where", ["either", "x", "past"], "present"),
    ),
    "all other rows": cached(EQUAL, ("Where", ["hit", "past", "x"], "present")),
    "rows that are known": cached(("Where", ["odd", "x", "past"], "present")),
    "a row of its own": cached(
        EQUAL,
        ("Slice", ["past", "zero", "one"], "first"),
        ("Where", ["hit", "first", "past"], "present"),
    ),
    "a window that moves": cached(
        ("Slice", ["past", "one", "many"], "later"), ("Concat", ["later", "x"], "present"), axis=0
    ),
    "parts that change places": cached(
        ("Slice", ["past", "more", "many"], "later"),
        ("Slice", ["past", "zero", "more"], "sooner"),
        ("Concat", ["later", "sooner"], "present"),
        axis=0,
    ),
    "all of it": cached(EQUAL, (*TAKEN[:2], "written"), ("Tanh", ["written"], "present")),
}
POSITIONS = (0, 3, 4, 5, -1, 77, -77, 2)


@pytest.mark.parametrize(
    ("name", "in_place"), [*((name, (0,)) for name in IN_PLACE), *((name, ()) for name in ALTERNATING)]
)
@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_a_state_moves_as_the_model_says(name, in_place, device):
    model = (IN_PLACE | ALTERNATING)[name]
    net = rammer.compile(model, device, state={"past": "present"})
    plain = rammer.compile(model, "reference")
    assert net.signature.in_place == in_place
    ports = {port.name: port.type for port in plain.signature.inputs}
    rng = np.random.default_rng(0)
    past: Any = rng.standard_normal(ports["past"].shape).astype(ports["past"].dtype.numpy)
    net.state["past"] = past
    for number in POSITIONS:
        x = rng.standard_normal(ports["x"].shape).astype(ports["x"].dtype.numpy)
        position = np.array([number], ports["position"].dtype.numpy)
        wanted = plain.run({"past": past, "x": x, "position": position})
        np.testing.assert_allclose(net(x, position), wanted["y"], rtol=1e-6)
        past, held = wanted["present"], net.state["past"]
        assert in_place == () or held.tobytes() == past.tobytes()
        np.testing.assert_allclose(held, past, rtol=1e-6)


def test_who_reads_the_old_state_behind_the_new_one_keeps_both():
    """What is added to the old state is known when the new one is there."""
    steps = (
        EQUAL,
        TAKEN,
        ("ReduceSum", ["present"], "sum"),
        ("Softmax", ["sum"], "weight"),
        ("Mul", ["weight", "past"], "z"),
    )
    nodes = [helper.make_node(op, ins, [out]) for op, ins, out in steps]
    ports = {"past": (FLOAT, (ROWS, WIDTH)), "x": (FLOAT, (1, WIDTH)), "position": (I64, (1,))}
    outputs = {"z": (FLOAT, (ROWS, WIDTH)), "present": (FLOAT, (ROWS, WIDTH))}
    model = small_model(nodes, ports, outputs, {"numbers": np.arange(ROWS, dtype=np.int64).reshape(ROWS, 1)})
    net, plain = rammer.compile(model, "reference", state={"past": "present"}), rammer.compile(model, "reference")
    past: Any = np.zeros((ROWS, WIDTH), np.float32)
    for number in (1, 2, 1):
        x, position = np.full((1, WIDTH), number, np.float32), np.array([number])
        wanted = plain.run({"past": past, "x": x, "position": position})
        np.testing.assert_array_equal(net(x, position), wanted["z"])
        past = wanted["present"]
        np.testing.assert_array_equal(net.state["past"], past)


def test_what_a_users_kernel_makes_is_left_to_it():
    state = {"past": "present"}
    graph = load_model(IN_PLACE["one row"], Example(), GivenInputs(states=state)).graph
    _, device = find_target(CompileOptions(device="reference"))
    assert [each.in_place for each in update_in_place.run(graph, device).states] == [True]
    theirs = ExternKernel(kind="Where", name="mine", make=lambda *types: None)
    assert update_in_place.run(graph, replace(device, externs=(theirs,))) is graph


def test_models_of_one_program_keep_their_own_in_place():
    models = [ALTERNATING["all of it"], IN_PLACE["one row"]]
    net = rammer.compile(models, "cpu", state={"small:past": "small:present", "small_2:past": "small_2:present"})
    assert net.signature.in_place == (1,)


def test_what_an_update_moves_is_what_it_stores():
    """Not the whole axis that its place may be on."""
    cache, row, position = (TensorType(t, s) for t, s in [(DType.FLOAT32, (512, 64))] * 2 + [(DType.INT64, (1,))])
    column = Axis("s0", 64)
    number = Load(1, (column * 0,), DType.INT64)
    place = call(ScalarFn.MOD, number, 512)
    fresh = Load(0, (column * 0, column), DType.FLOAT32)
    body = select(call(ScalarFn.EQ, place, number), fresh, fresh)
    stored = Output(type=cache, indices=(place, column), body=body)
    expr = TensorExpr(axes=(column,), inputs=(row, position), outputs=(stored,))
    assert footprint_bytes(expr, (64,)) == 64 * 4 + 8 + 64 * 4
