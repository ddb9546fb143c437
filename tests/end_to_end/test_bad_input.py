"""What users get wrong, from file to answer: each mistake has an error of its own that says what, where and what to do.

Wrong calls are in `test_executable`, artifacts that cannot be used in `test_artifact`.
"""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import rammer
from rammer.devices.cache import CacheWarning
from rammer.devices.registry import DEVICES
from rammer.errors import (
    CacheError,
    CompilerFailedError,
    CompilerNotFoundError,
    DynamicShapeError,
    ExternalDataError,
    InvalidModelError,
    ModelNotFoundError,
    NotAModelError,
    OptionError,
    RammerError,
    ShapeDisagreementError,
    UnsupportedFeatureError,
    UnsupportedOperatorsError,
)
from tests.support.model_maker import Array
from tests.support.small_models import FLOAT, WEIGHT, layer_model, layer_result, scale_model, small_model

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2

by_device = pytest.mark.parametrize("device", DEVICES)


# --- Models that cannot be compiled -----------------------------------------------------------------------------------


def changed(change: Callable[[onnx.GraphProto], object]) -> onnx.ModelProto:
    """The layer's model (MatMul 'product' then Relu 'relu'), with a change to its graph."""
    model = layer_model()
    change(model.graph)
    return model


def cycle(graph: onnx.GraphProto) -> None:
    graph.node[0].input[0] = "y"


def dangling(graph: onnx.GraphProto) -> None:
    graph.node[1].input[0] = "nowhere"


def wrong_type(graph: onnx.GraphProto) -> None:
    graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(WEIGHT.astype(np.int64), "w"))


def wrong_shape(graph: onnx.GraphProto) -> None:
    graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(WEIGHT.T.copy(), "w"))


def unsupported(graph: onnx.GraphProto) -> None:
    for name in ("first", "second"):
        graph.node.append(helper.make_node("ImageDecoder", ["product"], [f"unique_{name}"], name=name))
    graph.node.append(helper.make_node("StringNormalizer", ["product"], ["places"], name="third"))


def other_output(graph: onnx.GraphProto) -> None:
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.DOUBLE, (2, 4)))


def narrow_statistics(graph: onnx.GraphProto) -> None:
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(1, np.float32), "scale"))
    stash = TensorProto.FLOAT16
    graph.node.append(helper.make_node("LayerNormalization", ["product", "scale"], ["n"], "norm", stash_type=stash))


def external(location: str) -> onnx.ModelProto:
    def change(graph: onnx.GraphProto) -> None:
        tensor = graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)

    return changed(change)


# The file's content, the error, and what its text has to say beside the file's name.
Case = tuple[bytes | onnx.ModelProto, type[RammerError], str, Sequence[str]]
CASES: dict[str, Case] = {
    "not ONNX": (b"<html>404 not found</html>", NotAModelError, "R201", ["no ONNX model"]),
    "empty": (b"", NotAModelError, "R201", ["empty"]),
    "truncated": (layer_model().SerializeToString()[:-40], NotAModelError, "R201", ["cut short"]),
    "cycle": (changed(cycle), InvalidModelError, "R202", ["cycle", "'product'", "'relu'"]),
    "dangling name": (changed(dangling), InvalidModelError, "R202", ["'relu'", "'nowhere'"]),
    "wrong types": (changed(wrong_type), InvalidModelError, "R202", ["'product'", "float32", "int64"]),
    "shapes that do not fit": (changed(wrong_shape), InvalidModelError, "R202", ["'product'", "[2,3]", "[4,3]"]),
    "unsupported operators": (
        changed(unsupported),
        UnsupportedOperatorsError,
        "R203",
        ["2 unsupported operator(s)", "ImageDecoder (first, second)", "StringNormalizer (third)"],
    ),
    "a form that is lacking": (changed(narrow_statistics), UnsupportedFeatureError, "R204", ["'norm'", "stash_type"]),
    "open dimensions": (
        scale_model(2.0, ("batch", 3)),
        DynamicShapeError,
        "R205",
        ["'x'", "batch", "input_shapes", "--shape"],
    ),
    "external data that are missing": (external("w.bin"), ExternalDataError, "R206", ["'w'", "w.bin"]),
    "external data outside": (external("../w.bin"), ExternalDataError, "R206", ["'w'", "../w.bin", "outside"]),
    "external data cut short": (external("short.bin"), ExternalDataError, "R206", ["'w'", "short.bin", "byte 48"]),
    "another type declared": (
        changed(other_output),
        ShapeDisagreementError,
        "R207",
        ["'y'", "float64", "float32[2,4]"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_model_that_cannot_be_compiled(case: Case, tmp_path: Path) -> None:
    content, error, code, needles = case
    path = tmp_path / "mistaken.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    (tmp_path / "short.bin").write_bytes(WEIGHT.tobytes()[:-8])
    (tmp_path.parent / "w.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(error) as caught:
        rammer.compile(path, "reference")
    check_text(caught.value, code, ["mistaken.onnx", *needles])


def test_model_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        rammer.compile(tmp_path / "missing.onnx", "reference")
    check_text(caught.value, "R200", ["missing.onnx", "no such file"])


def test_shape_for_an_input_that_is_not_there() -> None:
    with pytest.raises(OptionError) as caught:
        rammer.compile(scale_model(2.0, ("batch", 3)), "reference", input_shapes={"z": (1, 3)})
    check_text(caught.value, "R100", ["'z'", "inputs are x"])


def check_text(error: RammerError, code: str, needles: Sequence[str]) -> None:
    """The text begins with the code, says all that it should, and ends with what to do."""
    text = str(error)
    assert type(error).code == error.code == code
    assert text.startswith(f"[{code}] ")
    assert "\n  to do: " in text
    assert [needle for needle in needles if needle not in text] == [], text


# --- Machines that cannot compile -------------------------------------------------------------------------------------


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, so that the compiler is called."""
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def compiler_that(folder: Path, script: str) -> str:
    """A compiler that tells its version and then runs a script."""
    path = folder / "cc"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo cc 1.0 && exit\n{script}\n')
    path.chmod(0o755)
    return str(path)


def test_no_compiler(nothing_compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ziglang" else find_spec(name))
    monkeypatch.setenv("PATH", str(nothing_compiled))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CompilerNotFoundError) as caught:
        rammer.compile(layer_model(), "cpu")
    check_text(caught.value, "R501", ["no C compiler", "rammer-compiler[cc]", "CC"])


def test_compiler_named_by_the_user_is_missing(nothing_compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "icc-2042 -fast")
    with pytest.raises(CompilerNotFoundError) as caught:
        rammer.compile(layer_model(), "cpu")
    check_text(caught.value, "R501", ["icc-2042 -fast"])


def test_compiler_that_fails(nothing_compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler_that(nothing_compiled, "echo internal error: out of luck; exit 4"))
    with pytest.raises(CompilerFailedError) as caught:
        rammer.compile(layer_model(), "cpu")
    check_text(caught.value, "R502", ["code 4", "out of luck", "CC"])
    assert caught.value.log == "internal error: out of luck"


def test_compiler_that_hangs(nothing_compiled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler_that(nothing_compiled, "exec sleep 60"))
    monkeypatch.setenv("RAMMER_COMPILE_TIMEOUT_S", "0.3")
    with pytest.raises(CompilerFailedError) as caught:
        rammer.compile(layer_model(), "cpu")
    check_text(caught.value, "R502", ["did not end within 0.3 s", "RAMMER_COMPILE_TIMEOUT_S"])


def test_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(CacheWarning, match="RAMMER_CACHE_DIR"):
        net = rammer.compile(layer_model(), "cpu")
    np.testing.assert_allclose(net(X), layer_result(X), rtol=1e-6)


def test_no_folder_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAMMER_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "file"))
    with pytest.warns(CacheWarning), pytest.raises(CacheError) as caught:
        rammer.compile(layer_model(), "cpu")
    check_text(caught.value, "R503", ["RAMMER_CACHE_DIR"])


# --- Values that look bad and are not ---------------------------------------------------------------------------------

# NaN and infinities at the start, in the middle of vectors and in what is left over.
SPECIAL = np.linspace(-3, 3, 2 * 3 * 7 * 11, dtype=np.float32).reshape(2, 3, 7, 11)
SPECIAL.reshape(-1)[[0, 17, 200, 461]] = np.nan
SPECIAL.reshape(-1)[[5, 64, 333]] = np.inf
SPECIAL.reshape(-1)[[9, 130, 334, 460]] = -np.inf
SPECIAL.reshape(-1)[[40, 41, 42]] = 0, -0.0, 1e-45

OPERATORS: dict[str, tuple[str, Sequence[Any], dict[str, Any]]] = {
    **{
        name: (name, (), {})
        for name in ("Relu", "Abs", "Neg", "Exp", "Sqrt", "Reciprocal", "Sigmoid", "Tanh", "Erf", "Sign", "Floor")
    },
    **{name: (name, [SPECIAL[..., ::-1].copy()], {}) for name in ("Add", "Mul", "Div", "Max", "Min", "Less", "Equal")},
    "Clip": ("Clip", [np.float32(-1), np.float32(2)], {}),
    "IsNaN": ("IsNaN", (), {}),
    "IsInf": ("IsInf", (), {"detect_negative": 0}),
    "ReduceMax": ("ReduceMax", [np.array([1, 3])], {"keepdims": 0}),
    "ReduceMin": ("ReduceMin", [np.array([2])], {"keepdims": 0}),
    "ReduceSum": ("ReduceSum", [np.array([0])], {"keepdims": 1}),
    "Softmax": ("Softmax", (), {"axis": -1}),
    "GlobalAveragePool": ("GlobalAveragePool", (), {}),
    "MatMul": ("MatMul", [np.eye(11, 5, dtype=np.float32)], {}),
    "Conv": ("Conv", [np.ones((4, 3, 3, 3), np.float32)], {"pads": [1, 1, 1, 1]}),
    "Transpose": ("Transpose", (), {"perm": [3, 1, 0, 2]}),
    "Pad": ("Pad", [np.array([0, 1, 0, 0, 0, 0, 2, 1]), np.float32(np.inf)], {}),
}


def evaluated(model: onnx.ModelProto, x: Array) -> Array:
    """The result by ONNX's own evaluator."""
    results: Any = ReferenceEvaluator(model).run(None, {"x": x})
    return np.asarray(results[0])


@by_device
@pytest.mark.parametrize(("op_type", "operands", "attributes"), OPERATORS.values(), ids=OPERATORS)
def test_nan_and_infinity_pass_as_in_onnx(device, op_type, operands, attributes):
    names = [f"c{number}" for number in range(len(operands))]
    node = helper.make_node(op_type, ["x", *names], ["y"], name="node", **attributes)
    graph = helper.make_graph(
        [node],
        "special",
        [helper.make_tensor_value_info("x", FLOAT, SPECIAL.shape)],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in zip(names, operands, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with np.errstate(all="ignore"):
        expected = evaluated(model, SPECIAL)
        actual = np.asarray(rammer.compile(model, device, veus=2)(SPECIAL))
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@by_device
@pytest.mark.parametrize(("op_type", "statistic"), [("MaxPool", np.max), ("AveragePool", np.mean)])
def test_windows_with_nan_give_nan(device, op_type, statistic):
    """ONNX's own evaluator takes NaN for padding."""
    node = helper.make_node(op_type, ["x"], ["y"], kernel_shape=[3, 2])
    model = small_model([node], {"x": (FLOAT, SPECIAL.shape)}, {"y": (FLOAT, (2, 3, 5, 10))})
    windows = np.lib.stride_tricks.sliding_window_view(SPECIAL, (3, 2), axis=(2, 3))
    with np.errstate(all="ignore"):
        actual = np.asarray(rammer.compile(model, device, veus=2)(SPECIAL))
        np.testing.assert_allclose(actual, statistic(windows, axis=(4, 5)), rtol=1e-5, atol=1e-6)


# Shapes of x, a node that reads it, and the result's shape; every tensor of no elements is legal.
EMPTY: dict[str, tuple[Sequence[int], onnx.NodeProto, dict[str, Array], Sequence[int]]] = {
    "MatMul over nothing": (
        (2, 0),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        {"w": np.zeros((0, 3), np.float32)},
        (2, 3),
    ),
    "MatMul of no rows": ((0, 3), helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": WEIGHT}, (0, 4)),
    "Conv of no images": (
        (0, 3, 4, 4),
        helper.make_node("Conv", ["x", "w"], ["y"]),
        {"w": np.ones((2, 3, 3, 3), np.float32)},
        (0, 2, 2, 2),
    ),
    "Concat with something": (
        (2, 0),
        helper.make_node("Concat", ["x", "w"], ["y"], axis=1),
        {"w": np.ones((2, 3), np.float32)},
        (2, 3),
    ),
    "Softmax": ((0, 5), helper.make_node("Softmax", ["x"], ["y"]), {}, (0, 5)),
    "Reshape": (
        (0, 6),
        helper.make_node("Reshape", ["x", "s"], ["y"], allowzero=1),
        {"s": np.array([3, 0])},
        (3, 0),
    ),
    "Transpose": ((0, 2, 3), helper.make_node("Transpose", ["x"], ["y"], perm=[2, 0, 1]), {}, (3, 0, 2)),
    "Pad": ((0, 2), helper.make_node("Pad", ["x", "p"], ["y"]), {"p": np.array([1, 0, 1, 0])}, (2, 2)),
    "ReduceMean over other axes": (
        (0, 4),
        helper.make_node("ReduceMean", ["x"], ["y"], axes=[1], keepdims=0),
        {},
        (0,),
    ),
    "Slice to nothing": (
        (4,),
        helper.make_node("Slice", ["x", "a", "b"], ["y"]),
        {"a": np.array([2]), "b": np.array([2])},
        (0,),
    ),
}


@by_device
@pytest.mark.parametrize(("shape", "node", "constants", "result"), EMPTY.values(), ids=EMPTY)
def test_tensors_of_no_elements(device, shape, node, constants, result):
    x = np.zeros(shape, np.float32)
    model = small_model([node], {"x": (FLOAT, shape)}, {"y": (FLOAT, result)}, constants)
    expected = evaluated(model, x)
    assert expected.shape == result
    np.testing.assert_array_equal(rammer.compile(model, device, veus=2)(x), expected)
