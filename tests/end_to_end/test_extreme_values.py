"""Infinities, NaN and integers at the end of their range, compiled: where ONNX has them, and nowhere else.

A GPU's passes are tried, too: the graph that they leave is evaluated in NumPy.
"""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import rammer
from rammer.devices.registry import find_device
from rammer.frontends.onnx import load_graph
from rammer.ir.evaluate import evaluate_graph
from rammer.options import CompileOptions
from rammer.passes.pipeline import run_passes
from tests.support.model_maker import Array

INF, NAN = np.float32(np.inf), np.float32(np.nan)


def model(body: str, inputs: str, output: str = "float[] y", /, **constants: Array) -> onnx.ModelProto:
    """A model in ONNX's text form; constants are initialisers."""
    text = f'<ir_version: 10, opset_import: ["": 22]> g ({inputs}) => ({output}) {{ {body} }}'
    parsed = onnx.parser.parse_model(text)
    parsed.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return parsed


def on_device(name: str) -> Callable[[onnx.ModelProto, Mapping[str, Array]], Array]:
    def run(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
        y: Array
        (y,) = rammer.compile(proto, name, veus=2).run(dict(feeds)).values()
        return y

    return run


def after_passes_for_a_gpu(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
    graph = load_graph(proto)
    vdevice = find_device("cuda:sm_90").describe(CompileOptions(device="cuda:sm_90"))
    (y,) = evaluate_graph(
        run_passes(graph, vdevice, lambda *_: None), [feeds[graph.values[i].name] for i in graph.inputs]
    )
    return y


RUNNERS = {
    "cpu": on_device("cpu"),
    "reference": on_device("reference"),
    "cuda": after_passes_for_a_gpu,
}

by_runner = pytest.mark.parametrize("run", RUNNERS.values(), ids=RUNNERS)


def onnx_runtime(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
    """ONNX Runtime's output. Unoptimised: its blocked convolutions leave padding out, its plain ones do not."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, dict(feeds))
    return np.asarray(y)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_agree(found: Array, expected: Array) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@by_runner
def test_a_transposed_convolution_multiplies_nothing_beside_an_infinity(run):
    y = run(
        model("y = ConvTranspose <strides = [2]> (x, w)", "float[1, 1, 3] x", w=np.full((1, 1, 1), 2, np.float32)),
        {"x": np.array([[[1, INF, 3]]], np.float32)},
    )
    np.testing.assert_array_equal(y, [[[2, 0, INF, 0, 6]]])


CONVOLUTIONS = [
    ("Conv <pads = [1, 1, 1, 1]>", 1),
    ("Conv <pads = [1, 1, 1, 1], strides = [2, 2]>", 1),
    ("Conv <pads = [2, 0, 0, 2], group = 4>", 4),
    ("ConvTranspose <pads = [1, 1, 1, 1], strides = [2, 2]>", 1),
    ("ConvTranspose <strides = [2, 3], group = 2>", 2),
    ("ConvTranspose <strides = [2, 4], dilations = [2, 3]>", 1),
]


@by_runner
@pytest.mark.parametrize("known", [False, True], ids=["computed", "constant"])
@pytest.mark.parametrize("infinite", ["x", "w"])
@pytest.mark.parametrize(("operator", "group"), CONVOLUTIONS, ids=[operator for operator, _ in CONVOLUTIONS])
def test_infinities_in_a_convolution(run, operator, group, infinite, known):
    x, w = normal(1, 4, 9, 9), normal(4, 4 // group, 3, 3, seed=1)
    if "x" in infinite:
        x[0, 1, 3, 3] = INF
    if "w" in infinite:
        w[1, 0, 0, 0] = INF
    shape = list(w.shape)
    proto = model(f"y = {operator} (x, w)", f"float[1, 4, 9, 9] x, float{shape} w")
    feeds = {"x": x, "w": w}
    expected = onnx_runtime(proto, feeds)
    if known:
        proto, feeds = model(f"y = {operator} (x, w)", "float[1, 4, 9, 9] x", w=w), {"x": x}
    assert_agree(run(proto, feeds), expected)


@by_runner
def test_padding_by_an_operator_of_its_own_is_multiplied_too(run):
    x, w, pads = normal(1, 2, 6), normal(2, 2, 3, seed=1), np.array([0, 0, 1, 0, 0, 1])
    w[0, 1, 0] = INF
    proto = model("p = Pad (x, pads) y = Conv (p, w)", "float[1, 2, 6] x, float[2, 2, 3] w", pads=pads)
    assert_agree(run(proto, {"x": x, "w": w}), onnx_runtime(proto, {"x": x, "w": w}))


@by_runner
def test_a_normalisation_that_overflows_weights_is_not_folded(run):
    body = "c = Conv <pads = [1, 1]> (x, w) y = BatchNormalization (c, s, t, m, v)"
    ones, zeros = np.ones(1, np.float32), np.zeros(1, np.float32)
    constants = {"w": np.full((1, 1, 3), 1e20, np.float32), "s": ones * 1e20, "t": zeros, "m": zeros, "v": ones}
    feeds = {"x": np.array([[[1e-20, 2e-20, 4e-20]]], np.float32)}
    proto = model(body, "float[1, 1, 3] x", **constants)
    assert_agree(run(proto, feeds), onnx_runtime(proto, feeds))


@by_runner
def test_gemm_does_not_read_what_it_multiplies_by_zero(run):
    proto = model("y = Gemm <beta = 0.0> (a, b, c)", "float[2, 2] a, float[2, 2] b, float[2, 2] c")
    one = np.eye(2, dtype=np.float32)
    np.testing.assert_array_equal(run(proto, {"a": one, "b": one, "c": one * NAN}), one)


def test_gemm_before_a_normalisation_does_not_read_it_either():
    body = "p = Gemm <beta = 0.0> (x, w, c) y = BatchNormalization (p, s, s, s, s)"
    one = np.ones(2, np.float32)
    proto = model(body, "float[2, 2] x", w=np.eye(2, dtype=np.float32), c=one * NAN, s=one)
    feeds = {"x": normal(2, 2)}
    assert_agree(RUNNERS["cpu"](proto, feeds), onnx_runtime(proto, feeds))


@by_runner
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_powers_of_integers_are_exact_and_wrap_around(run, dtype):
    x = np.array([3037000499, 46341, -46341, 3, -5, 0], np.int64).astype(dtype)
    proto = model("y = Pow (x, e)", f"{dtype}[6] x", f"{dtype}[] y", e=np.array(2, dtype))
    np.testing.assert_array_equal(run(proto, {"x": x}), x * x)


EXTENTS = [
    ((1, 2, 1, 60, 4), "kernel_shape = [3, 2, 2], strides = [3, 3, 1], pads = [0, 0, 0, 0, 1, 0]"),
    ((1, 2, 2, 5), "kernel_shape = [4, 3], strides = [3, 2], pads = [1, 0, 0, 0]"),
]


@by_runner
@pytest.mark.parametrize("pool", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("shape", "geometry"), EXTENTS, ids=["three dimensions", "two dimensions"])
def test_windows_that_hang_over_on_both_sides(run, pool, shape, geometry):
    proto = model(f"y = {pool} <ceil_mode = 1, {geometry}> (x)", f"float{list(shape)} x")
    feeds = {"x": normal(*shape)}
    assert_agree(run(proto, feeds), onnx_runtime(proto, feeds))


@by_runner
def test_linear_interpolation_between_no_elements(run):
    body = 'y = Resize <mode = "linear"> (x, roi, scales)'
    constants = {"roi": np.zeros(0, np.float32), "scales": np.array([2, 2], np.float32)}
    proto = model(body, "float[0, 4] x", **constants)
    assert run(proto, {"x": np.zeros((0, 4), np.float32)}).shape == (0, 8)
