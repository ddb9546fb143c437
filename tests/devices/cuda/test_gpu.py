"""Programs on a GPU: correct, the same bits each time, bounded in time, traced. Run by `pytest -m gpu`."""

import json
import threading

import numpy as np
import onnx
import pytest
from onnx import helper
from typer.testing import CliRunner

import rammer
from benchmarks.networks import NETWORKS, SMALL
from benchmarks.networks.builder import random_inputs
from rammer.cli import app
from rammer.devices.cuda import launch, peaks
from rammer.devices.cuda.build import build_traced
from rammer.devices.cuda.driver import find_driver, read_gpu
from rammer.devices.cuda.handover import handover_plan
from rammer.devices.registry import find_device
from rammer.errors import DeviceUnavailableError, RunTimeoutError
from rammer.frontends.onnx import load_graph
from rammer.options import CompileOptions
from rammer.pipelines import measured
from rammer.pipelines.kinds import compile_with
from rammer.pipelines.planning import plan_graph
from rammer.profiler.whole import measure_plans
from rammer.schedule.policies import POLICIES
from tests.end_to_end.test_onnx_backend import INCLUDED, prepared, tolerances
from tests.support.agreement import compare, relative_difference, run_onnx_runtime, without_costs
from tests.support.cpu import chain, expected, run, without_first_signal
from tests.support.gpu import compiled
from tests.support.onnx_reference import compare as compare_case
from tests.support.onnx_reference import without_counts
from tests.support.random_graphs import random_model
from tests.support.small_models import FLOAT, small_model, vectors_model

pytestmark = pytest.mark.gpu
X = np.linspace(-3, 5, 64, dtype=np.float32)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def in_halves():
    """So many vEUs that two share each multiprocessor."""
    return 2 * read_gpu(find_driver()).multiprocessors


def bits(arrays):
    return [array.tobytes() for array in arrays]


def check_network(name, runs, tolerance, sizes=None, **options):
    """A small network agrees with ONNX Runtime, and every run gives the same bits."""
    model = NETWORKS[name](**{**SMALL[name], **(sizes or {})})
    inputs = random_inputs(model, seed=1)
    wanted = run_onnx_runtime(model, inputs)
    net = rammer.compile(model, "cuda", **options)
    results = [list(net.run(inputs).values()) for _ in range(runs)]
    assert max(map(relative_difference, results[0], wanted)) < tolerance
    assert all(bits(result) == bits(results[0]) for result in results)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name, policy, monkeypatch, cache):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(cache))
    check_network(name, 200, 1e-5, policy=policy)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        *(("lstm_tc", {"batch": batch, "hidden": 64}) for batch in (2, 3, 4)),
        ("lstm_tc", {"batch": 4, "hidden": 256, "steps": 20}),
        ("seq2seq", {"cells": True}),
        ("seq2seq", {"cells": True, "batch": 3}),
    ],
)
def test_recurrent_layers_that_stay(name, sizes, monkeypatch, cache):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(cache))
    check_network(name, 200, 1e-5, sizes)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 1e-2)])
@pytest.mark.parametrize("name", NETWORKS)
def test_network_on_halves_of_multiprocessors(name, precision, tolerance, monkeypatch, cache):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(cache))
    check_network(name, 200, tolerance, precision=precision, veus=in_halves())


@pytest.mark.parametrize("name", NETWORKS)
def test_network_where_warps_stand_still(name, cache):
    model = NETWORKS[name](**SMALL[name])
    net = compile_with(model, CompileOptions(device="cuda", cache_dir=cache, delays=True))
    given = [random_inputs(model, seed=seed) for seed in range(3)]
    wanted = [run_onnx_runtime(model, inputs) for inputs in given]
    results = [list(net.run(given[run % 3]).values()) for run in range(600)]
    assert max(max(map(relative_difference, results[run], wanted[run])) for run in range(3)) < 1e-5
    assert all(bits(result) == bits(results[run % 3]) for run, result in enumerate(results))


def test_lanes_that_have_padding(cache):
    model, inputs = vectors_model(), {"x": np.linspace(-1, 1, 512, dtype=np.float32).reshape(1, 512)}
    (wanted,) = run_onnx_runtime(model, inputs)
    for delays in (False, True):
        net = compile_with(model, CompileOptions(device="cuda", cache_dir=cache, delays=delays))
        results = [net(**inputs) for _ in range(200)]
        assert relative_difference(results[0], wanted) < 1e-5
        assert all(result.tobytes() == results[0].tobytes() for result in results)


@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 2e-3), ("fp16", 1e-2), ("bf16", 2e-2)])
@pytest.mark.parametrize("name", NETWORKS)
def test_network_on_tensor_cores(name, precision, tolerance, monkeypatch, cache):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(cache))
    check_network(name, 20, tolerance, precision=precision)


@pytest.mark.parametrize("seed", range(60))
def test_random_model(seed, cache):
    model, inputs = random_model(seed, mixed=seed % 3 == 2)
    graph = load_graph(model)
    arrays = [inputs[graph.values[number].name] for number in graph.inputs]
    wanted = run_onnx_runtime(model, inputs)
    for policy in POLICIES:
        options = CompileOptions(device="cuda", policy=policy, veus=1 + seed % 7, cache_dir=cache, run_timeout_s=1.0)
        device = find_device("cuda")
        vdevice = device.describe(options)
        plan = plan_graph(graph, without_costs(vdevice) if seed % 2 else vdevice, options)
        source = device.emit(plan, vdevice)
        loaded = device.load(source, device.build(source, options), options)
        for _ in range(3):
            outputs = [np.full_like(array, 77) for array in wanted]
            loaded.run(arrays, outputs)
            list(compare(outputs, wanted, policy))  # asserts


@pytest.mark.parametrize("name", INCLUDED)
def test_operator(name, monkeypatch, cache):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(cache))
    model, inputs, wanted = prepared(name)
    net = rammer.compile(model, "cuda", veus=4)
    outputs = net.run({port.name: x for port, x in zip(net.signature.inputs, inputs, strict=True)})
    with np.errstate(all="ignore"):
        compare_case(without_counts(outputs, wanted), wanted, **tolerances(name, wanted))


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (9, 3, 2, 4), (40, 132, 8, 1), (40, 264, 8, 1), (64, 17, 5, 3)], ids=str
)
def test_every_run_gives_the_same_bits(cache, shape):
    length, veus, tiles, programs = shape
    plan = chain(length=length, veus=veus, tiles=tiles, programs=programs)
    model, y = compiled(plan, cache, veus=veus), np.zeros_like(X)
    reference = expected(plan, X).tobytes()
    for _ in range(10_000):
        y.fill(0)
        model.run([X], [y])
        assert y.tobytes() == reference


def test_blocks_that_are_not_resident_together_are_refused(cache):
    veus = 3 * in_halves()  # of 512 threads; no GPU has more than 2,048 on a multiprocessor
    with pytest.raises(DeviceUnavailableError, match=f"has {veus} vEUs, this GPU holds"):
        compiled(chain(length=1, veus=veus), cache)


def test_missing_signal_is_named(cache):
    model = compiled(without_first_signal(chain(length=3, veus=2)), cache, run_timeout_s=0.05)
    for _ in range(2):  # the second run finds the counters as the first one did
        with pytest.raises(RunTimeoutError) as caught:
            run(model, X)
        assert "vEU 1 is at step 0 of rProgram 0, a Wait for counter 0, which saw 0 of 1" in caught.value.message
        assert caught.value.where == "before rTask 0 of 'op1'"


def test_trace_has_a_span_for_each_step(cache):
    plan = chain(length=6, veus=2, tiles=3, programs=2)
    model, y = compiled(plan, cache), np.zeros_like(X)
    for _ in range(3):
        trace = model.trace([X], [y])
        np.testing.assert_array_equal(y, expected(plan, X))
        for program, spans in zip(plan.schedule.programs, trace.spans_ns, strict=True):
            assert [len(span) for span in spans] == [len(queue) for queue in program.steps]
            assert all(np.all(np.diff(span.reshape(-1)) >= 0) for span in spans)
        np.testing.assert_array_equal(run(model, X), expected(plan, X))


def test_a_binary_can_bring_the_code_that_writes_times(cache, monkeypatch):
    """Then nothing is compiled where it is traced; a run by itself is right, too."""
    plan = chain(length=3, veus=2, tiles=3)
    device, options = find_device("cuda"), CompileOptions(cache_dir=cache)
    source = device.emit(plan, device.describe(options))
    binary = build_traced(source, read_gpu(find_driver()).architecture, options)
    monkeypatch.setattr(launch, "compile_source", None)
    model, y = device.load(source, binary, options), np.zeros_like(X)
    np.testing.assert_array_equal(run(model, X), expected(plan, X))
    trace = model.trace([X], [y])
    np.testing.assert_array_equal(y, expected(plan, X))
    assert all(len(span) for span in trace.spans_ns[0])


def test_timeline_of_a_network(monkeypatch, cache, tmp_path):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(cache))
    onnx.save(NETWORKS["nasnet"](**SMALL["nasnet"]), tmp_path / "net.onnx")
    command = ["inspect", str(tmp_path / "net.onnx"), "--device", "cuda", "--timeline", str(tmp_path / "run.json")]
    assert CliRunner().invoke(app, command).exit_code == 0
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names[0] == "vEU 0"
    assert sum(event["ph"] == "X" and event["cat"] != "wait" for event in events) > 100


def test_costs_of_handing_over_are_measured_and_kept(cache, monkeypatch):
    peaks._find_peaks.cache_clear()
    vdevice = find_device("cuda").describe(CompileOptions(cache_dir=cache))
    figures = [vdevice.handover_us, vdevice.tagged_handover_us, vdevice.task_overhead_us]
    for figure in figures:
        assert figure is not None
        assert 0 < figure.value < 100
        assert figure.provenance.startswith("measured 2")
    peaks._find_peaks.cache_clear()
    monkeypatch.setattr(peaks, "measure_handovers", None)
    again = find_device("cuda").describe(CompileOptions(cache_dir=cache))
    assert [again.handover_us, again.tagged_handover_us, again.task_overhead_us] == figures


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_plan_that_measures_computes_what_it_says(blocks, cache):
    veus = blocks * read_gpu(find_driver()).multiprocessors
    plan = handover_plan(find_device("cuda").describe(CompileOptions(cache_dir=cache, veus=veus)))
    outputs = [np.zeros(plan.graph.tensors[i].type.shape, np.float32) for i in plan.graph.outputs]
    x = np.arange(256, dtype=np.float32)
    compiled(plan, cache, veus=veus).trace([x], outputs)  # all vEUs take turns, so all are resident
    turns = plan.schedule.programs[1].counter_count
    for output, more in zip(outputs, (1, turns, turns), strict=True):
        np.testing.assert_array_equal(output, np.broadcast_to(x + more, output.shape))


def test_times_of_rkernels_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path))
    model = NETWORKS["resnext"](**SMALL["resnext"])
    inputs = random_inputs(model, seed=1)
    tuned = [rammer.compile(model, "cuda", tune="measured") for _ in range(2)]
    assert tuned[0].report["operators"] == tuned[1].report["operators"]
    np.testing.assert_allclose(tuned[0](**inputs), rammer.compile(model, "cuda")(**inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["nasnet", "alexnet", "lstm_tc", "bert"])
def test_auto_measures_programs_of_whole_and_half_multiprocessors(name, monkeypatch, tmp_path):
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(measured, "measure_plans", told := Told())
    check_network(name, 20, 1e-5, policy="auto", tune="programs")
    assert told.veus == {in_halves() // 2, in_halves()}
    assert all(0 < time_us < 1e4 for time_us in told.times_us)


class Told:
    """`measure_plans`, and what it was asked and said."""

    def __init__(self):
        self.veus, self.times_us = set(), []

    def __call__(self, plans, device, vdevices, options):
        found = measure_plans(plans, device, vdevices, options)
        self.veus |= {one.veu_count for one in vdevices}
        self.times_us += [one.value for one in found]
        return found


def test_calls_from_several_threads(cache):
    plans = [chain(length=3 + i, veus=1 + 60 * i, tiles=2) for i in range(3)]
    models = [compiled(plan, cache) for plan in plans]
    failures = []

    def user(seed):
        random = np.random.default_rng(seed)
        for _ in range(150):
            x = random.standard_normal(64, dtype=np.float32)
            if not np.array_equal(run(models[seed % 3], x), expected(plans[seed % 3], x)):
                failures.append(seed)

    threads = [threading.Thread(target=user, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_model_that_is_too_large(cache):
    plan = chain(length=1, veus=1)
    memory = plan.memory.__class__(offsets_bytes={}, arenas_bytes=(1 << 50,), alignment_bytes=128)
    with pytest.raises(DeviceUnavailableError, match="too little free memory"):
        compiled(plan.__class__(graph=plan.graph, schedule=plan.schedule, memory=memory), cache)
    np.testing.assert_array_equal(run(compiled(plan, cache), X), expected(plan, X))


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize(("precision", "tolerance"), [("tf32", 2e-3), ("fp16", 2e-3), ("bf16", 2e-2)])
def test_products_of_warpgroups(precision, tolerance, blocks, cache):
    """A layer's two products and what is between them, at the sizes of a transformer."""
    if read_gpu(find_driver()).capability != (9, 0):
        pytest.skip("only Hopper has them")
    rng = np.random.default_rng(5)
    wide, narrow = (
        (rng.standard_normal(size) / np.sqrt(size[0])).astype(np.float32) for size in ((768, 3072), (3072, 768))
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "wide"], ["h"]),
        helper.make_node("Erf", ["h"], ["e"]),
        helper.make_node("MatMul", ["e", "narrow"], ["p"]),
        helper.make_node("Add", ["p", "x"], ["y"]),
    ]
    shape = (FLOAT, (197, 768))
    model = small_model(nodes, {"x": shape}, {"y": shape}, {"wide": wide, "narrow": narrow})
    veus = in_halves() if blocks == 2 else None
    net = compile_with(model, CompileOptions(device="cuda", precision=precision, veus=veus, cache_dir=cache))
    chosen = [one["candidates"][one["chosen"]]["details"] for one in net.report["operators"]]
    assert sum("wgmma" in details for details in chosen) == 2
    inputs = {"x": rng.standard_normal((197, 768)).astype(np.float32)}
    first, second = net.run(inputs)["y"], net.run(inputs)["y"]
    assert first.tobytes() == second.tobytes()
    assert relative_difference(first, run_onnx_runtime(model, inputs)[0]) < tolerance
