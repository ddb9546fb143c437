"""Compiled models as users call them."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import rammer
from rammer.devices.registry import DEVICES
from rammer.errors import (
    CallError,
    DynamicShapeError,
    InputNameError,
    InputShapeError,
    InputTypeError,
    ModelNotFoundError,
    OptionError,
)
from rammer.options import CompileOptions
from rammer.pipelines.kinds import compile_with
from tests.support.small_models import (
    FLOAT,
    layer_model,
    layer_result,
    mlp_model,
    pair_model,
    scale_model,
    small_model,
    unary_model,
)

REFERENCE = CompileOptions(device="reference")
X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
A, B = np.arange(4, dtype=np.float32), np.ones(4, np.float32)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@pytest.fixture(scope="module")
def layer():
    return rammer.compile(layer_model(), "reference")


@pytest.fixture(scope="module")
def pair():
    return rammer.compile(pair_model(), "reference")


# --- What goes in and what comes out ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4,), (3, 64 << 10)], ids=["small", "large"])
def test_outputs_are_fresh_arrays_and_large_ones_begin_with_a_cache_line(shape):
    net = rammer.compile(scale_model(2.0, shape), "reference")
    results = [net(np.full(shape, i, np.float32)) for i in range(4)]
    for i, y in enumerate(results):
        np.testing.assert_array_equal(y, np.full(shape, 2 * i, np.float32))
        assert y.flags.c_contiguous
        assert y.flags.writeable
        assert y.nbytes < 1000 or y.ctypes.data % 64 == 0


def test_one_output_is_an_array(device):
    net = rammer.compile(layer_model(), device)
    y = net(X)
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, layer_result(X), rtol=1e-6)
    np.testing.assert_array_equal(net(x=X), y)
    assert list(net.run({"x": X})) == ["y"]
    np.testing.assert_array_equal(net.run({"x": X})["y"], y)


def test_several_outputs_are_a_dict_in_order(device):
    net = rammer.compile(pair_model(), device)
    for results in (net(A, B), net(A, b=B), net(b=B, a=A), net.run({"b": B, "a": A})):
        assert list(results) == ["total", "gap"]
        np.testing.assert_array_equal(results["total"], A + B)
        np.testing.assert_array_equal(results["gap"], A - B)


def test_a_model_from_bytes_and_from_a_path(tmp_path):
    content = layer_model().SerializeToString()
    (tmp_path / "layer.onnx").write_bytes(content)
    for model in (content, tmp_path / "layer.onnx", str(tmp_path / "layer.onnx")):
        np.testing.assert_allclose(rammer.compile(model, "reference")(X), layer_result(X), rtol=1e-6)


def test_signature_shows_names_types_and_shapes(pair):
    assert [port.name for port in pair.signature.inputs] == ["a", "b"]
    assert [port.type.shape for port in pair.signature.outputs] == [(4,), (4,)]
    assert str(pair.signature) == "(a: float32[4], b: float32[4]) -> (total: float32[4], gap: float32[4])"
    assert repr(pair) == f"<rammer.Executable pair on reference: {pair.signature}>"


def test_results_are_fresh_and_inputs_untouched(device):
    net, x = rammer.compile(layer_model(), device), X.copy()
    first = net(x)
    kept = first.copy()
    second = net(x * 2)
    np.testing.assert_array_equal(first, kept)
    first[:] = np.nan
    assert not np.isnan(second).any()
    np.testing.assert_array_equal(x, X)


def test_an_input_that_is_an_output_is_copied(device):
    net = rammer.compile(unary_model("Identity", FLOAT, (4,)), device)
    y = net(A)
    assert not np.shares_memory(y, A)
    np.testing.assert_array_equal(y, A)


def test_one_value_under_two_output_names(device):
    nodes = [
        helper.make_node("Neg", ["x"], ["y"], name="negate"),
        helper.make_node("Identity", ["y"], ["z"], name="again"),
    ]
    net = rammer.compile(small_model(nodes, {"x": (FLOAT, (4,))}, {"y": (FLOAT, (4,)), "z": (FLOAT, (4,))}), device)
    results = net(A)
    assert not np.shares_memory(results["y"], results["z"])
    np.testing.assert_array_equal(results["y"], -A)
    np.testing.assert_array_equal(results["z"], -A)


def test_a_model_without_inputs(device):
    constant = helper.make_node("Constant", [], ["y"], name="constant", value_floats=[1.0, 2.0])
    net = rammer.compile(small_model([constant], {}, {"y": (FLOAT, (2,))}), device)
    np.testing.assert_array_equal(net(), np.array([1, 2], np.float32))
    with pytest.raises(InputNameError):
        net(A)


def test_an_input_may_have_any_name():
    nodes = [helper.make_node("Add", ["self", "a b/c:0"], ["inputs"], name="add")]
    ports = {"self": (FLOAT, (4,)), "a b/c:0": (FLOAT, (4,))}
    net = rammer.compile(small_model(nodes, ports, {"inputs": (FLOAT, (4,))}), "reference")
    np.testing.assert_array_equal(net(**{"self": A, "a b/c:0": B}), A + B)


# --- Values -----------------------------------------------------------------------------------------------------------


def test_nan_and_infinity_pass(device):
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    np.testing.assert_array_equal(rammer.compile(scale_model(2.0), device)(x), x * 2)
    product = rammer.compile(layer_model(), device)(np.where(X == 0, np.nan, X))
    assert np.isnan(product[0]).all()
    np.testing.assert_allclose(product[1], layer_result(X)[1], rtol=1e-6)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_zero_elements(device, shape):
    x = np.zeros(shape, np.float32)
    y = rammer.compile(scale_model(2.0, shape), device)(x)
    assert (y.shape, y.dtype) == (shape, np.float32)


def test_sum_over_no_elements_is_zero(device):
    nodes = [helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum", keepdims=0)]
    axes = {"axes": np.array([1], np.int64)}
    net = rammer.compile(small_model(nodes, {"x": (FLOAT, (3, 0))}, {"y": (FLOAT, (3,))}, axes), device)
    np.testing.assert_array_equal(net(np.zeros((3, 0), np.float32)), np.zeros(3, np.float32))


def test_scalars(device):
    net = rammer.compile(scale_model(3.0, ()), device)
    for x in (np.float32(2), np.array(2, np.float32)):
        y = net(x)
        assert isinstance(y, np.ndarray)
        assert y.shape == ()
        assert y == 6


@pytest.mark.parametrize(
    ("op_type", "element_type", "x", "result"),
    [
        ("Neg", TensorProto.INT64, np.array([3, -(2**62), 0]), np.negative),
        ("Neg", TensorProto.INT32, np.array([1, -2, 3], np.int32), np.negative),
        ("Not", TensorProto.BOOL, np.array([True, False, True]), np.logical_not),
        ("Abs", TensorProto.FLOAT16, np.array([-1.5, 2.25, -np.inf], np.float16), np.abs),
        ("Abs", TensorProto.BFLOAT16, np.array([-1.5, 2.25, -np.inf], ml_dtypes.bfloat16), np.abs),
        ("Identity", TensorProto.UINT8, np.array([0, 7, 255], np.uint8), np.array),
    ],
)
def test_element_types(device, op_type, element_type, x, result):
    y = rammer.compile(unary_model(op_type, element_type, x.shape), device)(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, result(x))


# --- Arrays as they come ----------------------------------------------------------------------------------------------


def misaligned(x):
    """The values of `x` at an address that is no multiple of their size."""
    content = np.zeros(x.nbytes + 1, np.uint8)
    view = content[1:].view(x.dtype).reshape(x.shape) if x.flags.c_contiguous else content
    view[...] = x
    assert not view.flags.aligned
    return view


def read_only(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    "arrange",
    [
        np.asfortranarray,
        lambda x: np.ascontiguousarray(x[::-1])[::-1],
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: np.broadcast_to(x, (5, *x.shape))[3],
        misaligned,
        read_only,
        lambda x: x.view(np.matrix),
    ],
    ids=["fortran", "reversed", "strided", "broadcast", "misaligned", "read only", "subclass"],
)
def test_any_memory_layout(device, arrange):
    net = rammer.compile(layer_model(), device)
    np.testing.assert_array_equal(net(arrange(X)), net(X))


def test_a_list_is_read_as_numpy_reads_it():
    net = rammer.compile(unary_model("Neg", TensorProto.INT64, (3,)), "reference")
    np.testing.assert_array_equal(net([1, 2, 3]), [-1, -2, -3])


# --- Wrong calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda net: net(A), InputNameError, "input 'b' is missing"),
        (lambda net: net(), InputNameError, "inputs 'a', 'b' are missing"),
        (lambda net: net.run({}), InputNameError, "inputs 'a', 'b' are missing"),
        (lambda net: net(A, B, A), InputNameError, "3 positional inputs for a model with 2"),
        (lambda net: net(A, B, c=A), InputNameError, r"unknown input\(s\): c"),
        (lambda net: net.run({"a": A, "b": B, "z": A, "c": A}), InputNameError, r"unknown input\(s\): c, z"),
        (lambda net: net(A, a=A, b=B), InputNameError, "input 'a' is given twice"),
        (lambda net: net(A, A.astype(np.float64)), InputTypeError, "'b' has dtype float64, the model takes float32"),
        (lambda net: net(A, A.astype(np.int32)), InputTypeError, "'b' has dtype int32, the model takes float32"),
        (lambda net: net(A, A.astype(">f4")), InputTypeError, "'b' has dtype >f4, the model takes float32"),
        (lambda net: net(A, [1.0, 2.0, 3.0, 4.0]), InputTypeError, "'b' has dtype float64"),
        (lambda net: net(A, [[1.0], [2.0, 3.0]]), InputTypeError, "input 'b' is no array"),
        (lambda net: net(A, None), InputTypeError, "'b' has dtype object"),
        (lambda net: net(A, "text"), InputTypeError, "'b' has dtype <U4"),
        (lambda net: net(A, B[:3]), InputShapeError, r"'b' has shape \[3\], the model takes \[4\]"),
        (lambda net: net(A, B[None]), InputShapeError, r"'b' has shape \[1, 4\], the model takes \[4\]"),
        (lambda net: net(A, B[0]), InputShapeError, r"'b' has shape \[\], the model takes \[4\]"),
    ],
)
def test_wrong_calls_have_their_own_error(pair, call, error, message):
    with pytest.raises(error, match=message) as caught:
        call(pair)
    assert isinstance(caught.value, CallError)
    assert caught.value.hint
    assert str(caught.value).startswith(f"[{error.code}] ")
    np.testing.assert_array_equal(pair(A, B)["total"], A + B)


def test_codes_of_call_errors_are_stable():
    codes = {error.__name__: error.code for error in (InputNameError, InputTypeError, InputShapeError)}
    assert codes == {"InputNameError": "R300", "InputTypeError": "R301", "InputShapeError": "R302"}


def test_trace_checks_its_inputs_too(pair):
    with pytest.raises(InputShapeError):
        pair.trace({"a": A, "b": B[:1]})


# --- Many calls, threads and models -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["wavefront", "sequential"])
def test_repeated_calls_give_the_same_bits(policy):
    net = rammer.compile(mlp_model(), "cpu", policy=policy, veus=2)
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    first = net(x).tobytes()
    assert all(net(x).tobytes() == first for _ in range(200))


def test_compiling_again_gives_the_same_bits():
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    results = {rammer.compile(mlp_model(), "cpu", veus=2)(x).tobytes() for _ in range(2)}
    assert len(results) == 1


def test_calls_from_several_threads():
    net = rammer.compile(scale_model(2.0, (512,)), "cpu", veus=2)
    start = threading.Barrier(8)

    def work(number):
        x = np.full(512, number, np.float32)
        start.wait()
        return all(np.array_equal(net(x), x * 2) for _ in range(100))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_several_models_at_once():
    nets = {factor: rammer.compile(scale_model(factor), "cpu", veus=1 + factor % 3) for factor in range(1, 7)}
    for _ in range(20):
        for factor, net in nets.items():
            np.testing.assert_array_equal(net(A), A * factor)
    del nets[1], nets[4]
    gc.collect()
    for factor, net in nets.items():
        np.testing.assert_array_equal(net(A), A * factor)


def test_several_models_in_several_threads():
    nets = [rammer.compile(mlp_model(), "cpu", veus=veus) for veus in (1, 2, 3)]
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    expected = [net(x) for net in nets]

    def work(i):
        return all(np.array_equal(nets[i](x), expected[i]) for _ in range(50))

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(work, range(3)))


# --- Options ----------------------------------------------------------------------------------------------------------


def test_symbolic_dimensions_are_bound():
    model = scale_model(2.0, ("batch", 3))
    with pytest.raises(DynamicShapeError):
        rammer.compile(model, "reference")
    net = rammer.compile(model, "reference", input_shapes={"x": (5, 3)})
    assert net.signature.inputs[0].type.shape == (5, 3)
    x = np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(net(x), x * 2)


@pytest.mark.parametrize("veus", [1, 2, 3, 7])
def test_number_of_execution_units(device, veus):
    net = rammer.compile(mlp_model(), device, veus=veus)
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    np.testing.assert_allclose(net(x), rammer.compile(mlp_model(), "reference", veus=1)(x), rtol=1e-4, atol=1e-6)
    assert net.report["device"]["veus"] == veus


@pytest.mark.parametrize(
    "options",
    [{"policy": "none"}, {"device": "abacus"}, {"veus": 0}, {"precision": "fp8"}, {"input_shapes": {"q": (1,)}}],
)
def test_wrong_options(options):
    with pytest.raises(OptionError):
        rammer.compile(layer_model(), **options)


def test_a_missing_file():
    with pytest.raises(ModelNotFoundError):
        rammer.compile("no such.onnx")


def test_dumps_are_numbered_and_repeatable(tmp_path):
    for folder in ("first", "second"):
        rammer.compile(layer_model(), "reference", dump_dir=tmp_path / folder)
    first, second = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / folder).iterdir())}
        for folder in ("first", "second")
    )
    assert first == second
    names = list(first)
    assert names[0] == "00-import.txt"
    assert [name.partition("-")[2] for name in names[-2:]] == ["tasks.txt", "program.txt"]
    assert all(first.values())


def test_a_dump_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="for dumps"):
        rammer.compile(layer_model(), "reference", dump_dir=tmp_path / "file")


def test_public_names():
    functions = ["adapt", "compile", "compile_step", "explain", "kernel", "load", "operator"]
    classes = [
        "AdaptiveModel",
        "BoundCall",
        "CompileOptions",
        "CompiledEstimator",
        "CompiledModule",
        "CompiledStep",
        "Dim",
        "DynamicModel",
        "Executable",
        "KernelSource",
        "Port",
        "ProgramSet",
        "RammerError",
        "Signature",
        "State",
        "TracedRun",
    ]
    assert sorted(rammer.__all__) == sorted([*functions, *classes, "__version__", "errors", "expressions"])
    assert all(getattr(rammer, name).__doc__ for name in rammer.__all__)


# --- What compiling leaves behind -------------------------------------------------------------------------------------


@pytest.mark.parametrize("enabled", [True, False])
def test_compiling_leaves_the_collector_as_it_was(enabled):
    seen = []
    (gc.enable if enabled else gc.disable)()
    try:
        compile_with(layer_model(), REFERENCE, lambda *_: seen.append(gc.isenabled()))
        assert set(seen) == {False}
        assert gc.isenabled() is enabled
        with pytest.raises(OptionError):
            compile_with(layer_model(), replace(REFERENCE, policy="nonesuch"))
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
