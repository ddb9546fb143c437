"""Several models compiled into one program: each gives what it gives alone, by whatever names and on every device."""

import copy
from collections import Counter
from dataclasses import replace
from statistics import mean

import numpy as np
import onnx
import pytest
from onnx import helper

import rammer
from benchmarks.networks import NETWORKS, SMALL
from rammer.devices.registry import find_device
from rammer.errors import ArgumentError, DeviceUnavailableError, InputShapeError, NotAModelError, OptionError
from rammer.frontends.onnx import load_graph
from rammer.inspection.dump import Dump
from rammer.ir.task import ROperator
from rammer.options import CompileOptions
from rammer.pipelines import together
from rammer.pipelines.planning import lower_rewritten, plan_graph, rewrite_graph, schedule_tasks
from rammer.pipelines.together import Model, plan_together
from rammer.roller.model import ModelCosts
from rammer.schedule.partitions import Partition
from rammer.schedule.policies import POLICIES
from tests.support.agreement import pickers, without_costs
from tests.support.plans import run_orders, run_reference
from tests.support.random_graphs import random_model
from tests.support.small_models import FLOAT, layer_model, layer_result, mlp_model, pair_model, scale_model, small_model

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
A, B = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
TOGETHER = {"one after another": [range(3), range(3)], "side by side": [range(2), range(2, 3)]}


def fix_lanes(monkeypatch, spans):
    """Let models run on the given vEUs, whatever they would take."""
    partitions = tuple(Partition(models=(model,), veus=veus) for model, veus in enumerate(spans))
    monkeypatch.setattr(together, "find_partitions", lambda *_: partitions)


def running_sum():
    """total = x + kept, which becomes `kept`."""
    nodes = [helper.make_node("Add", ["x", "kept"], ["total"]), helper.make_node("Identity", ["total"], ["next"])]
    return small_model(
        nodes, {"x": (FLOAT, [3]), "kept": (FLOAT, [3])}, {"total": (FLOAT, [3]), "next": (FLOAT, [3])}, name="sums"
    )


def random_member(seed):
    model, feeds = random_model(seed, mixed=seed % 3 == 2)
    return load_graph(model), feeds


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 12))])
def test_random_models_together_give_the_bits_that_each_gives_alone(seed, policy, monkeypatch):
    """On the reference device, under random and unkind interleavings; every other pair on a very slow processor."""
    spans = list(TOGETHER.values())[seed // 2 % 2]
    fix_lanes(monkeypatch, spans)
    options = CompileOptions(policy=policy, veus=3)
    vdevice = find_device("cpu").describe(options)
    vdevice = without_costs(vdevice) if seed % 2 else vdevice
    members = [random_member(seed), random_member(seed + 100)]
    plan = plan_together([Model(name=f"m{i}", graph=graph) for i, (graph, _) in enumerate(members)], vdevice, options)
    inputs = [[feeds[graph.values[i].name] for i in graph.inputs] for graph, feeds in members]
    expected = []
    for (graph, _), own, span in zip(members, inputs, spans, strict=True):
        share = replace(vdevice, veus=tuple(vdevice.veus[veu] for veu in span))
        tasks = lower_rewritten(rewrite_graph(graph, vdevice, options, Dump(None)), share, options, Dump(None))
        alone = schedule_tasks(tasks, share, ModelCosts(share), options, Dump(None))
        expected += run_reference(alone, own, pickers(len(span), seed)[0])
    for found in run_orders(plan, [array for own in inputs for array in own], pickers(3, seed)):
        assert [array.tobytes() for array in found] == [array.tobytes() for array in expected]


@pytest.mark.parametrize("policy", ["wavefront", "critical-path"])
@pytest.mark.parametrize("seed", range(8))
def test_a_random_model_that_takes_over_gives_what_it_gives_alone(seed, policy, monkeypatch):
    """Up to the order of sums, and the same bits in every run: on the reference device, as above."""
    first = seed % 2
    partitions = (
        Partition(models=(first,), veus=range(2)),
        Partition(models=(1 - first,), veus=range(3), taken_over=2),
    )
    monkeypatch.setattr(together, "find_partitions", lambda *_: partitions)
    options = CompileOptions(policy=policy, veus=3)
    vdevice = find_device("cpu").describe(options)
    vdevice = without_costs(vdevice) if seed % 4 < 2 else vdevice
    members = [random_member(seed), random_member(seed + 100)]
    plan = plan_together([Model(name=f"m{i}", graph=graph) for i, (graph, _) in enumerate(members)], vdevice, options)
    inputs = [[feeds[graph.values[i].name] for i in graph.inputs] for graph, feeds in members]
    expected = []
    for (graph, _), own in zip(members, inputs, strict=True):
        alone = plan_graph(graph, vdevice, options)
        expected += run_reference(alone, own, pickers(3, seed)[0])
    runs = run_orders(plan, [array for own in inputs for array in own], pickers(3, seed))
    for found in runs:
        for array, again, wanted in zip(found, runs[0], expected, strict=True):
            assert array.tobytes() == again.tobytes()
            one, other = (np.asarray(values, np.float64) for values in (array, wanted))
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def products(name, rows, width, count, step=0):
    """A chain of products by matrices of ones, or of numbers that grow by so much from each to the next."""
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(count)]
    weights = {f"w{i}": np.full((width, width), 1 + i * step, np.float32) for i in range(count)}
    shape = (FLOAT, [rows, width])
    return small_model(nodes, {"x0": shape}, {f"x{count}": shape}, weights, name=name)


def test_a_narrow_model_hands_its_units_on():
    """One product of a vector after another: what is larger has most of its rTasks where nobody is before it."""
    options = CompileOptions(device="cuda:sm_90")
    vdevice = find_device(options.device).describe(options)
    graphs = [load_graph(products("narrow", 1, 1024, 24)), load_graph(products("wide", 1024, 256, 12))]
    plan = plan_together([Model(name=graph.name, graph=graph) for graph in graphs], vdevice, options)
    (program,) = plan.schedule.programs
    counts = {name: Counter[int]() for name in ("narrow", "wide")}
    for veu, _, task in program.tasks():
        counts[plan.graph.operators[task.operator].name.partition(":")[0]][veu] += 1
    others = set(range(vdevice.veu_count)) - set(counts["narrow"])
    assert set(counts["narrow"]) < set(counts["wide"])
    assert mean(counts["wide"][veu] for veu in counts["narrow"]) < 0.8 * mean(counts["wide"][veu] for veu in others)


def test_constants_of_others_take_room_in_caches(monkeypatch):
    """Then those of a model come from memory, which takes longer, however its units are shared out."""
    options = CompileOptions(device="cuda:sm_90")
    vdevice = find_device(options.device).describe(options)
    model = Model(name="model", graph=load_graph(products("model", 64, 1024, 4, step=1)))
    times_us = []

    def find_partitions(veus, priorities, time_us, *_):
        times_us.append(time_us(0, veus // 2))
        return tuple(Partition(models=(number,), veus=range(66 * number, 66 * number + 66)) for number in range(2))

    monkeypatch.setattr(together, "find_partitions", find_partitions)
    for count in (1, 12):  # matrices of 4 MiB each: L2 has room for some seven, once in each half
        other = Model(name="other", graph=load_graph(products("other", 64, 1024, count, step=1)))
        plan_together([model, other], vdevice, options)
    beside_few_us, beside_many_us = times_us
    assert beside_many_us > beside_few_us


def test_rkernels_are_those_for_as_many_units_as_a_model_has(monkeypatch):
    spans = [range(100), range(100, 132)]
    fix_lanes(monkeypatch, spans)
    options = CompileOptions(device="cuda:sm_90")
    vdevice = find_device(options.device).describe(options)
    graph = load_graph(mlp_model())
    found = plan_together([Model(name=name, graph=graph) for name in "ab"], vdevice, options).graph.operators
    rewritten = rewrite_graph(graph, vdevice, options, Dump(None))
    wanted: list[ROperator] = []
    for_all = lower_rewritten(rewritten, vdevice, options, Dump(None)).operators
    for span in spans:
        share = replace(vdevice, veus=vdevice.veus[span.start : span.stop])
        wanted += lower_rewritten(rewritten, share, options, Dump(None)).operators
    assert [operator.kernels for operator in found] == [operator.kernels for operator in wanted]
    assert [operator.kernels for operator in found] != [operator.kernels for operator in (*for_all, *for_all)]


@pytest.mark.parametrize("spans", TOGETHER.values(), ids=TOGETHER)
def test_networks_together_agree_with_each_alone(spans, monkeypatch):
    """Bit for bit where each has all units, as it has alone."""
    fix_lanes(monkeypatch, spans)
    names = ("nasnet", "lstm_tc")
    models = [NETWORKS[name](seed=0, **SMALL[name]) for name in names]
    pair = rammer.compile(models, "cpu", veus=3)
    assert [argument for argument, _ in pair.form.arguments] == list(names)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(port.type.shape).astype(np.float32) for port in pair.signature.inputs]
    alone = [rammer.compile(model, "cpu", veus=3)(array) for model, array in zip(models, arrays, strict=True)]
    runs = [pair(*arrays) for _ in range(5)]
    for found in runs[1:]:
        for one, other in zip(found, runs[0], strict=True):
            np.testing.assert_array_equal(one, other)
    for found, wanted, span in zip(runs[0], alone, spans, strict=True):
        np.testing.assert_allclose(
            found, wanted, rtol=0 if len(span) == 3 else 1e-4, atol=0 if len(span) == 3 else 1e-6
        )


def test_a_call_takes_and_gives_what_each_model_does():
    net = rammer.compile([layer_model(), pair_model(), layer_model()], "reference", veus=2)
    assert [port.name for port in net.signature.inputs] == ["layer:x", "pair:a", "pair:b", "layer_2:x"]
    y, sums, again = net(X, {"a": A, "b": B}, X + 1)
    np.testing.assert_allclose(y, layer_result(X), rtol=1e-6)
    np.testing.assert_allclose(again, layer_result(X + 1), rtol=1e-6)
    assert list(sums) == ["total", "gap"]
    np.testing.assert_array_equal(sums["gap"], A - B)
    named = net(layer=X, layer_2=X + 1, pair={"b": B, "a": A})
    np.testing.assert_array_equal(named[2], again)
    flat = net.run({"layer:x": X, "pair:a": A, "pair:b": B, "layer_2:x": X})
    assert list(flat) == ["layer:y", "pair:total", "pair:gap", "layer_2:y"]
    with pytest.raises(ArgumentError, match="pair"):
        net(X, A, X)
    with pytest.raises(ArgumentError, match="layer_2"):
        net(X, {"a": A, "b": B})
    with pytest.raises(InputShapeError, match="layer_2:x"):
        net(X, {"a": A, "b": B}, A)


def test_a_file_of_several_models_loads_and_is_inspected_by_their_names(tmp_path):
    net = rammer.compile([mlp_model(), mlp_model()], "cpu", veus=2)
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    expected = net(x, x + 1)
    net.save(tmp_path / "pair.rammer")
    for other in (rammer.load(tmp_path / "pair.rammer"), copy.copy(net)):
        for found, wanted in zip(other(x, x + 1), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    names = [operator["name"] for operator in net.report["operators"]]
    assert {name.partition(":")[0] for name in names} == {"mlp", "mlp_2"}
    assert "mlp_2:" in net.trace(x, x).to_html()
    weights_bytes = 3 * 64 * 64 * 4
    assert weights_bytes <= net.report["memory"]["constant_bytes"] < 2 * weights_bytes
    bound = net.bind({"mlp:x": x, "mlp_2:x": x + 1})
    np.testing.assert_array_equal(bound()["mlp_2:y"], expected[1])


def test_models_keep_their_states_apart():
    sums = running_sum()
    net = rammer.compile(
        [sums, layer_model(), sums], "cpu", state={"sums:kept": "sums:next", "sums_2:kept": "sums_2:next"}
    )
    one = np.ones(3, np.float32)
    for call in range(1, 4):
        first, _, second = net(one, X, 2 * one)
        assert (first[0], second[0]) == (call, 2 * call)
    assert sorted(net.state) == ["sums:kept", "sums_2:kept"]
    net.state["sums:kept"] = 10 * one
    first, _, second = net(one, X, one)
    assert (first[0], second[0]) == (11, 7)
    net.reset()
    assert net(one, X, one)[2][0] == 1


def test_shapes_are_given_by_the_names_of_the_group():
    models = [scale_model(2.0, ("n",)), scale_model(3.0, ("n",))]
    net = rammer.compile(models, "reference", input_shapes={"scale:x": (2,), "scale_2:x": (5,)})
    assert [port.type.shape for port in net.signature.inputs] == [(2,), (5,)]


def test_constants_are_given_by_the_names_of_the_group():
    """Equal models with other constants are read apart."""
    header = '<ir_version: 8, opset_import: ["" : 17]> scale'
    model = onnx.parser.parse_model(f"{header} (float[2] x, float k) => (float[2] y) {{ y = Mul(x, k) }}")
    net = rammer.compile([model, model], "reference", constants={"scale:k": 2, "scale_2:k": 3})
    assert [port.name for port in net.signature.inputs] == ["scale:x", "scale_2:x"]
    x = np.array([1, 2], np.float32)
    for found, factor in zip(net(x, x), (2, 3), strict=True):
        np.testing.assert_array_equal(found, factor * x)


def test_files_are_named_after_their_files_and_alike_ones_are_numbered(tmp_path):
    paths = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / "my-layer.onnx")
        onnx.save(layer_model(), paths[-1])
    net = rammer.compile([paths[0], str(paths[1])], "reference")
    assert [name for name, _ in net.form.arguments] == ["my_layer", "my_layer_2"]
    assert net.name == "my_layer+my_layer_2"


def test_every_level_is_written_for_each_model_and_for_all(tmp_path):
    rammer.compile([layer_model(), pair_model()], "reference", dump_dir=tmp_path)
    assert (tmp_path / "layer" / "00-import.txt").exists()
    assert (tmp_path / "pair" / "00-import.txt").exists()
    assert "pair:" in (tmp_path / "00-tasks.txt").read_text()
    assert "policy wavefront" in (tmp_path / "01-program.txt").read_text()


@pytest.mark.parametrize(
    ("models", "options", "error", "message"),
    [
        ([], {}, OptionError, "a list without a model"),
        ([layer_model(), 7], {}, NotAModelError, "class int"),
        ([layer_model()], {"dynamic": {"layer:x": {0: (1, 2)}}}, OptionError, "dynamic="),
        ([layer_model()], {"args": [(X,), (X,)]}, OptionError, "args= for 1 models"),
        ([layer_model()], {"args": (X,)}, OptionError, "args= for 1 models"),
        ([layer_model()], {"kwargs": {"x": X}}, OptionError, "kwargs= for 1 models"),
        ([layer_model()], {"priorities": [1, 2]}, OptionError, "priorities="),
        ([layer_model()], {"priorities": [0]}, OptionError, "priorities="),
        (layer_model(), {"priorities": [1]}, OptionError, "priorities= for one model"),
        ([layer_model()], {"input_shapes": {"x": (2, 3)}}, OptionError, "input_shapes for 'x'"),
        ([layer_model()], {"state": {"layer:x": "other:y"}}, OptionError, "state 'other:y' for layer"),
        ([layer_model()], {"device": ["cpu", "cuda"]}, OptionError, "one program has one device"),
        ([layer_model()], {"precision": ["fp32", "fp16"]}, OptionError, "precision"),
    ],
)
def test_what_cannot_be_grouped_is_refused(models, options, error, message):
    with pytest.raises(error, match=message):
        rammer.compile(models, **options)


def test_estimators_are_compiled_by_themselves():
    linear_model = pytest.importorskip("sklearn.linear_model")
    estimator = linear_model.LinearRegression().fit(X, X[:, 0])
    with pytest.raises(OptionError, match="LinearRegression"):
        rammer.compile([layer_model(), estimator])


def test_priorities_reach_the_lanes(monkeypatch):
    seen = []

    def find(veus, priorities, *_):
        seen.append(priorities)
        return (Partition(models=(1, 0), veus=range(veus)),)

    monkeypatch.setattr(together, "find_partitions", find)
    rammer.compile([layer_model(), pair_model()], "reference", priorities=[1, 3], veus=2)
    assert seen == [[1.0, 3.0]]


@pytest.mark.gpu
@pytest.mark.parametrize("one_after_another", [False, True])
def test_networks_on_a_gpu_agree_with_each_alone(one_after_another, monkeypatch):
    """Bit for bit where each has all units, as it has alone."""
    try:
        veus = find_device("cuda").describe(CompileOptions(device="cuda")).veu_count
    except DeviceUnavailableError:
        pytest.skip("there is no GPU")
    names, half = ("nasnet", "lstm_tc"), veus // 2
    fix_lanes(monkeypatch, [range(veus), range(veus)] if one_after_another else [range(half), range(half, veus)])
    models = [NETWORKS[name](seed=0, **SMALL[name]) for name in names]
    net = rammer.compile(models, "cuda")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(port.type.shape).astype(np.float32) for port in net.signature.inputs]
    alone = [rammer.compile(model, "cuda")(array) for model, array in zip(models, arrays, strict=True)]
    tolerance = 0.0 if one_after_another else 1e-4
    for _ in range(20):
        for found, wanted in zip(net(*arrays), alone, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)
