"""Loops of very many trips: programs that run again and again give what ONNX Runtime and unrolled loops do."""

import asyncio
import copy
import json
import pickle
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rammer
from rammer.devices.codegen.source import MANIFEST
from rammer.devices.registry import find_device
from rammer.errors import ArtifactCorruptError, OptionError, OutOfMemoryError, UnsupportedFeatureError
from rammer.frontends.onnx import load_graph
from rammer.frontends.onnx.converters import control
from rammer.options import CompileOptions
from rammer.passes import cut_loops, fuse_loops, long_layers
from rammer.pipelines.kinds import compile_with
from rammer.pipelines.planning import plan_graph
from rammer.pipelines.survey import survey
from tests.devices.cuda.conftest import gpu, libraries  # noqa: F401 - fixtures
from tests.support.agreement import run_onnx_runtime
from tests.support.artifacts import with_sections
from tests.support.loops import layer, loop, scan, stack
from tests.support.small_models import FLOAT, small_model

X = np.array([0.1, -0.2, 0.3], np.float32)
STEPS = 11


@pytest.fixture
def short(monkeypatch):
    """Everything of more than three trips is a loop, of four trips a run."""
    monkeypatch.setattr(long_layers, "MOST_STEPS", 3)
    monkeypatch.setattr(control, "_MOST_TRIPS", 3)
    monkeypatch.setattr(cut_loops, "_MOST_TRIPS", 4)


@pytest.fixture(params=["reference", "cuda on the host"])
def options(request):
    """How to compile for a device; GPUs need the first run to be short."""
    if request.param == "cuda on the host":
        return request.getfixturevalue("gpu").options()
    return CompileOptions(device=request.param, veus=2)


def check(net, model, inputs, runs=2):
    """Each run gives what ONNX Runtime does: nothing is left of the run before."""
    wanted = run_onnx_runtime(model, inputs)
    for _ in range(runs):
        for found, one in zip(net.run(inputs).values(), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(found), one, rtol=1e-5, atol=1e-5)


def runs_of(net):
    """How often each program runs."""
    return [link["runs"] for link in net.report["links"]]


# --- What the figures are about ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [3000, 200_000])
def test_a_long_layer_has_records_of_some_steps_alone(steps):
    model, inputs = layer("LSTM", steps, batch=1, width=4, hidden=4)
    net = rammer.compile(model, "cpu")
    check(net, model, inputs)
    tasks = sum(
        len(queue) for link in net.report["links"] for program in link["report"]["programs"] for queue in program
    )
    assert tasks < 1500
    assert len(net.to_bytes()) < 300_000


@pytest.mark.parametrize("trips", [5000, 5003])
def test_a_long_scan_and_a_long_loop(trips):
    model, inputs = scan(trips)
    check(rammer.compile(model, "cpu"), model, inputs)
    check(rammer.compile(loop(trips), "cpu"), loop(trips), {"x": X})


def test_a_long_layer_is_compiled_for_a_gpu():
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    net = rammer.compile(layer("LSTM", 3000, batch=1, width=4, hidden=4)[0], "cuda:sm_90")
    assert max(runs_of(net)) > 20


def test_short_loops_are_one_program():
    graph = load_graph(layer("LSTM", long_layers.MOST_STEPS)[0])
    assert long_layers.run(graph) is graph
    assert all(operator.repeat is None for operator in load_graph(loop(100)).operators)


# --- Right results ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "settings", [{}, {"initial": True, "lengths": (7, 0, 11), "batch": 3}], ids=["plain", "lengths"]
)
def test_layers(kind, direction, settings, short):
    model, inputs = layer(kind, STEPS, direction=direction, **settings)
    net = rammer.compile(model, "reference")
    assert 2 in runs_of(net)
    check(net, model, inputs)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "LSTM", "clip": 0.1, "input_forget": 1},
        {"kind": "GRU", "linear_before_reset": 1, "direction": "bidirectional"},
        {
            "kind": "RNN",
            "direction": "bidirectional",
            "activations": ["LeakyRelu", "Tanh"],
            "activation_alpha": [0.3],
        },
    ],
    ids=lambda settings: settings["kind"],
)
def test_attributes_of_layers(settings, short):
    model, inputs = layer(steps=STEPS, initial=True, **settings)
    check(rammer.compile(model, "reference"), model, inputs)


def test_a_layer_whose_batch_comes_first(short):
    """ONNX Runtime has no such layout: the same layer with time first says what is right."""
    model, inputs = layer("LSTM", STEPS, direction="bidirectional", initial=True)
    wanted = run_onnx_runtime(model, inputs)
    turned = copy.deepcopy(model)
    node = next(node for node in turned.graph.node if node.op_type == "LSTM")
    node.attribute.append(onnx.helper.make_attribute("layout", 1))
    for value in turned.graph.input:
        dims = value.type.tensor_type.shape.dim
        dims[0].dim_value, dims[1].dim_value = dims[1].dim_value, dims[0].dim_value
    net = rammer.compile(turned, "reference")
    found = net.run({name: np.ascontiguousarray(array.transpose(1, 0, 2)) for name, array in inputs.items()})
    for one, other, perm in zip(found.values(), wanted, [(1, 2, 0, 3), (1, 0, 2), (1, 0, 2)], strict=True):
        np.testing.assert_allclose(one.transpose(perm), other, rtol=1e-5, atol=1e-5)


def test_layers_on_top_of_each_other(options, short):
    for bidirectional, loops in ((False, 1), (True, 3)):
        model, inputs = stack(STEPS, 3, bidirectional=bidirectional)
        net = compile_with(model, options)
        assert runs_of(net).count(2) == loops
        check(net, model, inputs)


TWO = """
    y1, h1 = RNN<hidden_size = 2>(x, w, r) one = Constant<value_ints = [1]>() s1 = Squeeze(y1, one)
    BETWEEN
    y2, h2 = RNN<hidden_size = 2, direction = "DIRECTION">(s2, w, r, , , INITIAL) s3 = Squeeze(y2, one)
    both = Add(s1, s3)
"""
MOVED = "shape = Constant<value_ints = [0, 1, 4]>() a = Reshape(s1, shape) b = Reshape(a, last) s2 = Identity(b)"

OTHER_TRIPS = "flat = Constant<value_ints = [2, 12, 2]>() a = Reshape(s1, flat) s2 = Transpose<perm = [1, 0, 2]>(a)"


@pytest.mark.parametrize(
    ("between", "direction", "initial", "loops"),
    [
        (MOVED, "forward", "h0", 1),
        ("s2 = Identity(s1)", "forward", "h1", 2),
        ("s2 = Relu(s1)", "forward", "h0", 2),
        ("s2 = Identity(s1)", "reverse", "h0", 2),
        ("s2 = Identity(x)", "forward", "h0", 1),
        ("s2 = Identity(x)", "forward", "h1", 2),
        (OTHER_TRIPS, "forward", "h0", 2),
    ],
    ids=["moved", "from the last state", "computed", "backwards", "side by side", "behind", "other trips"],
)
def test_loops_are_one_where_trips_follow_trips(between, direction, initial, loops, short):
    body = TWO.replace("BETWEEN", between).replace("DIRECTION", direction).replace("INITIAL", initial)
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 17]>
        two (float[12, 2, 2] x, float[1, 2, 2] h0) => (float[12, 2, 2] both, float[1, 2, 2] h2)
        <int64[3] last = {{12, 2, 2}}, float[1, 2, 2] w = {{0.5, 0.25, -0.5, 1.0}},
         float[1, 2, 2] r = {{0.25, -1.0, 0.5, 0.5}}>
        {{ {body} }}
    """)
    rng = np.random.default_rng(0)
    inputs = {
        "x": np.asarray(rng.standard_normal((12, 2, 2)), np.float32),
        "h0": np.asarray(rng.standard_normal((1, 2, 2)), np.float32),
    }
    net = rammer.compile(model, "reference")
    assert runs_of(net).count(3) == loops
    check(net, model, inputs)


def test_both_directions_of_a_layer_are_one_loop(short, monkeypatch):
    model, inputs = layer("LSTM", 16, direction="bidirectional", initial=True)
    one = rammer.compile(model, "cpu")
    monkeypatch.setattr(fuse_loops, "run", lambda graph: graph)
    two = rammer.compile(model, "cpu")
    assert (runs_of(one).count(4), runs_of(two).count(4)) == (1, 2)
    check(one, model, inputs)
    for found, wanted in zip(one.run(inputs).values(), two.run(inputs).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("backward", [(False, False), (True, True), (True, False)])
def test_scans(axis, backward, short):
    model, inputs = scan(STEPS, axis=axis, backward=backward)
    check(rammer.compile(model, "reference"), model, inputs)


def test_scans_and_loops_on_every_device(options, short):
    model, inputs = scan(12, backward=(True, False))
    check(compile_with(model, options), model, inputs)
    check(compile_with(loop(STEPS), options), loop(STEPS), {"x": X})


INNER = """
    w = Loop (m, t, v) <
        body = inner (int64 j, bool on, float[3] a) => (bool more, float[3] b) {
            more = Identity(on) g = Cast<to = 1>(i) h = Add(x, g) k = Mul(a, half) b = Add(k, h)
        }
    >
"""


@pytest.mark.parametrize("trips", [(2, STEPS), (STEPS, 2)], ids=["long in short", "short in long"])
def test_a_loop_in_a_loop_reads_what_lies_around_both(trips, short):
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        nested (float[3] x) => (float[3] y, float[{trips[0]}, 3] rows) {{
            n = Constant<value_int = {trips[0]}>() m = Constant<value_int = {trips[1]}>()
            t = Constant<value = bool {{1}}>() half = Constant<value_float = 0.5>()
            y, rows = Loop (n, t, x) <
                body = outer (int64 i, bool go, float[3] v) => (bool again, float[3] w, float[3] row) {{
                    again = Identity(go) {INNER} row = Sin(w)
                }}
            >
        }}
    """)
    net = rammer.compile(model, "reference")
    assert max(runs_of(net)) == 2
    check(net, model, {"x": X})


@pytest.mark.parametrize("positive", [1, -1])
def test_a_loop_in_a_branch(positive, short):
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 21]>
        branched (float[3] x) => (float[3] y) {{
            n = Constant<value_int = {STEPS}>() t = Constant<value = bool {{1}}>()
            s = ReduceSum<keepdims = 0>(x) zero = Constant<value_float = 0.0>() c = Greater(s, zero)
            y = If (c) <
                then_branch = looped () => (float[3] a) {{
                    a = Loop (n, t, x) <body = trip (int64 i, bool go, float[3] v) => (bool again, float[3] w) {{
                        again = Identity(go) p = Add(v, x) w = Sin(p)
                    }}>
                }},
                else_branch = plain () => (float[3] b) {{ b = Neg(x) }}
            >
        }}
    """)
    check(rammer.compile(model, "reference"), model, {"x": positive * np.abs(X)})


def test_constants_are_carried_scanned_and_given(short):
    """What no input decides has to be an array between programs, and is kept once where several read it."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["": 17]>
        fixed (float[1, 1, 2] x) => (float[5, 1, 1, 2] y, float[1, 1, 2] last, float[5, 1, 2] twice, float[1, 1, 2] z)
        <float[5, 1, 2] s = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, float[1, 2, 2] w = {0.5, 0.25, -0.5, 1.0},
         float[1, 1, 2] h = {0.5, -0.5}> {
            v = Neg(w) twice = Add(s, s) y, last = RNN<hidden_size = 2>(twice, v, w, , , h) z = Add(x, h)
        }
    """)
    check(rammer.compile(model, "reference"), model, {"x": np.ones((1, 1, 2), np.float32)})


@pytest.mark.parametrize("limit", [-9.0, 0.7, 2.5, 9.0])
def test_a_loop_that_the_model_ends(limit, short):
    again = f"limit = Constant<value_float = {limit}>() m = ReduceMax<keepdims = 0>(w) again = Less(m, limit)"
    model = loop(STEPS, again=again, row=False)
    check(rammer.compile(model, "reference"), model, {"x": X})


@given(steps=st.integers(4, 40), chunk=st.integers(1, 12), backward=st.tuples(st.booleans(), st.booleans()))
@settings(max_examples=15)
def test_any_number_of_trips_in_runs_of_any_length(steps, chunk, backward):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "_MOST_TRIPS", 3)
        patch.setattr(cut_loops, "_MOST_TRIPS", chunk)
        model, inputs = scan(steps, backward=backward)
        check(rammer.compile(model, "reference", veus=1), model, inputs, runs=1)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_bits_are_those_of_the_unrolled_layer(kind, monkeypatch):
    model, inputs = layer(kind, 60, direction="bidirectional", initial=True)
    whole = rammer.compile(model, "cpu").run(inputs)
    monkeypatch.setattr(long_layers, "MOST_STEPS", 3)
    monkeypatch.setattr(cut_loops, "_MOST_TRIPS", 16)
    for found, one in zip(rammer.compile(model, "cpu").run(inputs).values(), whole.values(), strict=True):
        np.testing.assert_array_equal(found, one)


# --- What works with every model --------------------------------------------------------------------------------------


@pytest.fixture
def net(short):
    model, inputs = layer("LSTM", STEPS, initial=True)
    return rammer.compile(model, "cpu"), inputs


def same(found, wanted):
    return all(np.array_equal(found[name], wanted[name]) for name in wanted)


def test_saved_models(net, tmp_path):
    compiled, inputs = net
    wanted = compiled.run(inputs)
    compiled.save(tmp_path / "net.rammer")
    loaded = rammer.load(tmp_path / "net.rammer")
    assert same(loaded.run(inputs), wanted)
    assert loaded.to_bytes() == compiled.to_bytes()
    assert runs_of(loaded) == runs_of(compiled)
    assert same(pickle.loads(pickle.dumps(loaded)).run(inputs), wanted)  # noqa: S301 - of our own
    with pytest.raises(OptionError, match="programs of their own, which keeps its number"):
        rammer.load(tmp_path / "net.rammer", veus=5)


def without_a_link(chain):
    chain["links"].pop()


def beside_a_buffer(chain):
    chain["links"][-1]["inputs"][0][1] += 8


def for_other_arrays(chain):
    chain["input_bytes"][0] += 4


def in_three_turns(chain):
    chain["links"][0]["inputs"][0][4].append(0)


@pytest.mark.parametrize("change", [without_a_link, beside_a_buffer, for_other_arrays, in_three_turns])
def test_saved_chains_that_do_not_fit(change, net, tmp_path):
    def changed(sections):
        chain = json.loads(sections["source/chain.json"])
        change(chain)
        sections["source/chain.json"] = json.dumps(chain).encode()

    net[0].save(tmp_path / "net.rammer")
    with pytest.raises(ArtifactCorruptError, match="its chain"):
        rammer.load(with_sections(tmp_path / "net.rammer", changed))


def test_a_saved_chain_that_lacks_a_file(net, tmp_path):
    def changed(sections):
        names = json.loads(sections["source/files.json"])
        names[0].pop(MANIFEST)
        sections["source/files.json"] = json.dumps(names).encode()

    net[0].save(tmp_path / "net.rammer")
    with pytest.raises(ArtifactCorruptError, match="has no file 'program"):
        rammer.load(with_sections(tmp_path / "net.rammer", changed))


def test_two_compilations_are_equal(short):
    first, second = (rammer.compile(layer("GRU", STEPS)[0], "cpu").to_bytes() for _ in range(2))
    assert first == second


def test_weights_are_stored_once(short):
    model, _ = layer("LSTM", STEPS, width=64, hidden=64)
    weights = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    assert len(rammer.compile(model, "cpu").to_bytes()) < 2.5 * weights


@pytest.mark.parametrize("veus", [1, 2])
def test_calls_of_all_kinds_and_threads(veus, short):
    model, inputs = layer("LSTM", STEPS, initial=True)
    compiled = rammer.compile(model, "cpu", veus=veus)
    wanted = compiled.run(inputs)
    assert same(compiled(*inputs.values()), wanted)
    assert same(compiled(**inputs), wanted)
    assert same(compiled.clone().run(inputs), wanted)
    assert same(asyncio.run(compiled.async_run(**inputs)), wanted)
    bound = compiled.bind(inputs)
    assert same(bound(), wanted)
    np.negative(inputs["x"], out=inputs["x"])
    assert same(bound(), compiled.run(inputs))
    others = [{**inputs, "x": inputs["x"] * factor} for factor in range(4)]
    expected = [compiled.run(other) for other in others]
    found: list[tuple[int, dict[str, Any]]] = []

    def call(number):
        found.extend((number, compiled.run(others[number])) for _ in range(10))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(others))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    assert all(same(one, expected[number]) for number, one in found)


def test_a_model_that_keeps_state(short, request):
    nodes = [
        onnx.helper.make_node("Add", ["x", "past"], ["sum"]),
        onnx.helper.make_node("RNN", ["sum", "w", "r"], ["y", "last"], hidden_size=1),
        onnx.helper.make_node("Identity", ["sum"], ["present"]),
    ]
    ports = {"x": (FLOAT, [5, 1, 1]), "past": (FLOAT, [5, 1, 1])}
    given = {"last": (FLOAT, [1, 1, 1]), "present": (FLOAT, [5, 1, 1])}
    one = np.ones((1, 1, 1), np.float32)
    model = small_model(nodes, ports, given, {"w": one, "r": one / 2})
    options = CompileOptions(device="reference", states={"past": "present"})
    compiled = compile_with(model, options)
    x, past = np.full((5, 1, 1), 0.1, np.float32), np.zeros((5, 1, 1), np.float32)
    for _ in range(3):
        wanted, past = run_onnx_runtime(model, {"x": x, "past": past})
        np.testing.assert_allclose(compiled(x), wanted, rtol=1e-5)
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    with pytest.raises(OptionError, match="state and a loop"):
        compile_with(model, replace(options, device="cuda:sm_90"))


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_other_precisions(precision, short):
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    net = rammer.compile(layer("LSTM", STEPS)[0], "cuda:sm_90", precision=precision)
    assert 2 in runs_of(net)


def test_reports_and_surveys(net, tmp_path, call):
    compiled, _ = net
    path = tmp_path / "net.rammer"
    compiled.save(path)
    code, out, _ = call("inspect", path)
    assert code == 0
    assert "all runs" in out
    assert call("inspect", path, "--kernels", "--json")[0] == 0
    assert call("bench", path, "--repeat", "2")[0] == 0
    for option in ("--html", "--timeline"):
        code, _, err = call("inspect", path, option, "page.html")
        assert (code, "programs of their own" in err) == (2, True)
    onnx.save(loop(STEPS), tmp_path / "loop.onnx")
    assert call("compile", tmp_path / "loop.onnx", "-o", "loop.rammer")[0] == 0
    counts = {each.kind: each.count for each in survey(tmp_path / "loop.onnx", CompileOptions()).demands}
    assert counts["Sin"] == 2 * STEPS


# --- What does not ----------------------------------------------------------------------------------------------------


def test_a_chain_is_not_traced(net):
    compiled, inputs = net
    with pytest.raises(OptionError, match="a trace of a model whose loops are programs"):
        compiled.trace(inputs)


def test_what_has_to_be_one_program(short):
    with pytest.raises(UnsupportedFeatureError, match="11 steps of Loop in a model that has to be one program"):
        rammer.compile([loop(STEPS), loop(STEPS)], "reference")
    with pytest.raises(UnsupportedFeatureError, match="one program"):
        rammer.adapt(loop(STEPS), "reference")
    options = CompileOptions(device="reference")
    with pytest.raises(UnsupportedFeatureError, match="one program"):
        plan_graph(load_graph(loop(STEPS)), find_device("reference").describe(options), options)
    with pytest.raises(UnsupportedFeatureError, match="9000 steps of LSTM in a model that has to be one program"):
        rammer.adapt(layer("LSTM", 9000)[0], "reference")


def test_more_than_fits_in_memory():
    model, _ = layer("LSTM", 600)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 36
    with pytest.raises(OutOfMemoryError, match="values between programs"):
        rammer.compile(model, "cpu")


def test_directions_that_no_gpu_takes(short):
    pytest.importorskip("cuda.core", reason="needs the cuda extra")
    with pytest.raises(OptionError, match="some arrays from the front and others from the end"):
        rammer.compile(scan(STEPS, backward=(True, False))[0], "cuda:sm_90")
