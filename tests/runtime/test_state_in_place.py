"""Caches that are updated where they lie: a step writes its own rows and copies nothing."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import rammer
from rammer.errors import CallError, RunTimeoutError, StateError
from rammer.frontends.dispatch import Example, load_model
from rammer.options import CompileOptions, GivenInputs
from rammer.pipelines.compiler import find_target
from rammer.pipelines.kinds import compile_with
from rammer.pipelines.planning import plan_graph
from tests.devices.cuda.conftest import gpu, libraries  # noqa: F401 - fixtures
from tests.support.small_models import FLOAT, small_model
from tests.support.updates import elements_written

HEADS, LENGTH, WIDTH = 2, 24, 4
CACHE, ROW = (1, HEADS, LENGTH, WIDTH), (1, HEADS, 1, WIDTH)
STATE = {"past": "present"}
POSITIONS = [0, 1, 2, 23, 5, 5, -1, 24, 100, -30, 7]
"""Those outside of the cache write nothing."""


def cached(kind="Where", rows=1, reads_old=False):
    """y = x, as attention to a cache weighs it, with x at `position` of the cache by now."""
    constants: dict[str, Any] = {
        "numbers": np.arange(LENGTH, dtype=np.int64).reshape(LENGTH, 1),
        "places": np.arange(LENGTH, dtype=np.int64),
        "far": np.array(-1e9, np.float32),
        "line": np.array([1, HEADS, 1, WIDTH], np.int64),
        "one": np.ones(1, np.int64),
    }
    steps: list[Any] = []
    match kind:
        case "Where":
            steps = [("Equal", ["numbers", "position"], "hit"), ("Where", ["hit", "x", "past"], "present")]
        case "Where, turned":
            steps = [
                ("Equal", ["position", "numbers"], "hit"),
                ("Not", ["hit"], "kept"),
                ("Where", ["kept", "past", "x"], "present"),
            ]
        case "TensorScatter":
            steps = [("TensorScatter", ["past", "x", "position"], "present")]
        case "added":
            steps = [
                ("Equal", ["numbers", "position"], "hit"),
                ("Add", ["past", "x"], "more"),
                ("Where", ["hit", "more", "past"], "present"),
            ]
        case "scaled":
            steps = [
                ("Equal", ["numbers", "position"], "hit"),
                ("Where", ["hit", "x", "past"], "other"),
                ("Tanh", ["other"], "present"),
            ]
    steps += [
        ("Transpose", ["present"], "turned"),
        ("MatMul", ["x", "turned"], "scores"),
        ("LessOrEqual", ["places", "position"], "seen"),
        ("Where", ["seen", "scores", "far"], "masked"),
        ("Softmax", ["masked"], "weights"),
        ("MatMul", ["weights", "present"], "y"),
    ]
    if reads_old:
        steps.append(("Neg", ["past"], "old"))
    extra: dict[str, Any] = {"Transpose": {"perm": [0, 1, 3, 2]}, "Softmax": {"axis": -1}, "TensorScatter": {"axis": 2}}
    nodes = [helper.make_node(op, ins, [out], **extra.get(op, {})) for op, ins, out in steps]
    row = (1, HEADS, rows, WIDTH)
    outputs = {"y": (FLOAT, row), "present": (FLOAT, CACHE)}
    if reads_old:
        outputs["old"] = (FLOAT, CACHE)
    ports = {"x": (FLOAT, row), "position": (TensorProto.INT64, (1,)), "past": (FLOAT, CACHE)}
    model = small_model(nodes, ports, outputs, constants)
    model.opset_import[0].version, model.ir_version = 24, 11
    return model


def step(past, x, position):
    """What the model does to one row, in NumPy: (y, present)."""
    present = past.copy()
    for row in range(x.shape[2]):
        if 0 <= position + row < LENGTH:
            present[:, :, position + row] = x[:, :, row]
    scores = np.where(np.arange(LENGTH) <= position, x @ present.swapaxes(2, 3), np.float32(-1e9))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ present, present


@pytest.fixture(params=["reference", "cpu", "cuda on the host", pytest.param("cuda", marks=pytest.mark.gpu)])
def options(request):
    """How to compile for a device."""
    if request.param == "cuda on the host":
        return request.getfixturevalue("gpu").options(states=STATE)
    return CompileOptions(device=request.param, states=STATE)


@pytest.mark.parametrize(
    ("kind", "rows"), [("Where", 1), ("Where, turned", 1), ("TensorScatter", 1), ("TensorScatter", 3)]
)
def test_what_is_written_and_what_stays(options, kind, rows):
    net, rng = compile_with(cached(kind, rows), options), np.random.default_rng(0)
    assert str(net.signature).endswith("keeps (past: float32[1,2,24,4] in place)")
    past = rng.standard_normal(CACHE).astype(np.float32)
    net.state["past"] = past
    for position in POSITIONS:
        x = rng.standard_normal((1, HEADS, rows, WIDTH)).astype(np.float32)
        wanted, past = step(past, x, position)
        np.testing.assert_allclose(net(x, np.array([position])), wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(net.state["past"], past)


def test_what_is_added_in_place_is_added_once(options):
    net, x = compile_with(cached("added"), options), np.ones(ROW, np.float32)
    assert net.signature.in_place == (0,)
    for _ in range(3):
        net(x, np.array([4]))
    held = net.state["past"]
    assert (held[:, :, 4] == 3).all()
    assert held.sum() == 3 * HEADS * WIDTH


def test_a_state_that_changes_everywhere_keeps_two_arrays(options):
    net, rng = compile_with(cached("scaled"), options), np.random.default_rng(0)
    assert net.signature.in_place == ()
    x, past = rng.standard_normal(ROW).astype(np.float32), np.zeros(CACHE, np.float32)
    held: Any = None
    for position in (3, 5):
        net(x, np.array([position]))
        past[:, :, position] = x[:, :, 0]
        past = np.tanh(past)
        held = net.state["past"]
        np.testing.assert_allclose(held, past, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("policy", ["sequential", "wavefront", "critical-path"])
@pytest.mark.parametrize("veus", [1, 3])
def test_who_reads_the_old_state_reads_it_before(policy, veus):
    """Under hostile orders, in which an rTask's elements hold nothing of use while it is under way."""
    options = CompileOptions(device="reference", states=STATE, policy=policy, veus=veus)
    net, rng = compile_with(cached(reads_old=True), options), np.random.default_rng(0)
    assert net.signature.in_place == (0,)
    past = np.zeros(CACHE, np.float32)
    for position in POSITIONS:
        x = rng.standard_normal(ROW).astype(np.float32)
        got = net(x, np.array([position]))
        np.testing.assert_array_equal(got["old"], -past)
        wanted, past = step(past, x, position)
        np.testing.assert_allclose(got["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("kind", "rows"), [("Where", 1), ("TensorScatter", 3)])
def test_no_roperator_writes_more_of_the_state_than_the_new_rows(kind, rows):
    options = CompileOptions(device="reference", states=STATE)
    graph = load_model(cached(kind, rows), Example(), GivenInputs(states=STATE)).graph
    plan = plan_graph(graph, find_target(options)[1], options)
    assert elements_written(plan) == [HEADS * rows * WIDTH]
    (present,) = plan.graph.updated
    reads_anew = any(binding.tensor == present for operator in plan.graph.operators for binding in operator.reads)
    assert reads_anew is (rows > 1)  # attention to a row reads the old state and the new row


def test_a_saved_model_knows_what_is_in_place(tmp_path):
    net = rammer.compile(cached(), "cpu", state=STATE)
    net.save(tmp_path / "cached.rammer")
    for veus in (None, 2):
        loaded = rammer.load(tmp_path / "cached.rammer", veus=veus)
        assert loaded.signature == net.signature
        loaded(np.ones(ROW, np.float32), np.array([1]))
        assert loaded.state["past"].sum() == HEADS * WIDTH


def test_states_of_models_that_update_otherwise_are_refused():
    one, other = (rammer.compile(cached(kind), "cpu", state=STATE) for kind in ("Where", "scaled"))
    with pytest.raises(StateError, match="no state of this model"):
        one(np.ones(ROW, np.float32), np.array([1]), state=other.new_state())
    mine = one.new_state()
    mine.update(other.state)
    one(np.ones(ROW, np.float32), np.array([1]), state=mine)


def test_clones_traces_and_bound_calls(options):
    net = compile_with(cached(), options)
    x, position = np.ones(ROW, np.float32), np.array([2])
    bound = net.bind({"x": x, "position": position})
    bound()
    position[:] = 3
    net.trace({"x": x, "position": position})
    assert net.state["past"].sum() == HEADS * WIDTH
    twin = net.clone()
    twin(x, position)
    assert net.state["past"].sum() == HEADS * WIDTH
    assert twin.state["past"].sum() == 2 * HEADS * WIDTH
    bound()
    np.testing.assert_array_equal(net.state["past"], twin.state["past"])


def test_a_run_that_is_given_up_leaves_nothing_to_go_on_from(monkeypatch):
    net, x = rammer.compile(cached(), "cpu", state=STATE), np.ones(ROW, np.float32)
    net(x, np.array([0]))

    def fail(inputs, outputs):
        raise RunTimeoutError("stalled")

    with monkeypatch.context() as patched:
        patched.setattr(net._loaded, "run", fail)
        with pytest.raises(RunTimeoutError):
            net(x, np.array([1]))
    for call in (
        lambda: net(x, np.array([1])),
        lambda: net.state["past"],
        net.clone,
        lambda: net.trace(x, np.array([1])),
    ):
        with pytest.raises(StateError, match="may have written a part of it"):
            call()
    net.reset()
    net(x, np.array([1]))
    assert net.state["past"].sum() == HEADS * WIDTH
    with pytest.raises(CallError):
        net(x)
    assert net.state["past"].sum() == HEADS * WIDTH


def test_candidates_are_measured_by_what_they_store(tmp_path):
    options = CompileOptions(device="cpu", states=STATE, tune="measured", cache_dir=tmp_path)
    net, x = compile_with(cached(), options), np.ones(ROW, np.float32)
    net(x, np.array([3]))
    assert net.state["past"].sum() == x.sum()
