"""Operators of `ai.onnx.ml` that compute with numbers, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import rammer
from rammer.errors import InvalidModelError, UnsupportedFeatureError

TYPES = ("float32", "float64", "int64", "int32")
LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "Binarizer": dict.fromkeys(TYPES[1:], "float32"),
    "Imputer": {"float64": "float32", "int32": "int64"},
    "LinearRegressor": dict.fromkeys(TYPES[1:], "float32"),
    "OneHotEncoder": {"int32": "int64"},
    "SVMRegressor": dict.fromkeys(TYPES[1:], "float32"),
}
"""Types of features that ONNX has and ONNX Runtime has no code for, and types that it is asked for instead."""


def numbers(dtype: str, shape: tuple[int, ...] = (7, 3), *, holes: bool = False) -> np.ndarray:
    """Numbers of which some are equal, a row is zero, and some may be missing."""
    rng = np.random.default_rng(0)
    found = (rng.integers(-3, 4, shape) if dtype.startswith("int") else rng.normal(size=shape).round(1)).astype(dtype)
    found[2] = 0
    if holes and found.dtype.kind == "f":
        found.flat[::4] = np.nan
    return found


def model_of(op: str, feeds: Mapping[str, np.ndarray], outputs: Mapping[str, int], version: int, attributes: Any):
    node = helper.make_node(op, list(feeds), list(outputs), domain="ai.onnx.ml", **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(helper.make_graph([node], "g", inputs, results), opset_imports=opsets, ir_version=10)


def agrees(op: str, *feeds: np.ndarray, kinds: Any = TensorProto.FLOAT, **attributes: Any) -> None:
    """The results of the only operator of a model are those of ONNX Runtime."""
    named = {f"x{number}": array for number, array in enumerate(feeds)}
    outputs = {f"y{number}": kind for number, kind in enumerate(kinds if isinstance(kinds, tuple) else (kinds,))}
    model = model_of(op, named, outputs, 3, attributes)
    found = rammer.compile(model, "reference").run(named)
    instead = LEFT_OUT.get(op, {}).get(feeds[0].dtype.name)
    if instead is not None:
        named = {name: array.astype(instead) for name, array in named.items()}
        outputs = {y: kind_of(instead) if kind == kind_of(feeds[0].dtype) else kind for y, kind in outputs.items()}
        model = model_of(op, named, outputs, 3, attributes)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for one, other in zip(found.values(), session.run(None, named), strict=True):
        assert one.shape == other.shape
        assert instead is not None or one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def kind_of(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(7, 3), (3,)])
def test_features(dtype, shape):
    x, holes = numbers(dtype, shape), numbers(dtype, shape, holes=True)
    agrees("ArrayFeatureExtractor", x, np.array([2, 0]), kinds=kind_of(dtype))
    for threshold in (0.5, -0.5, 0.0):
        agrees("Binarizer", x, kinds=kind_of(dtype), threshold=threshold)
    for norm in ("MAX", "L1", "L2"):
        agrees("Normalizer", x, norm=norm)
    agrees("OneHotEncoder", x, cats_int64s=[-1, 0, 2])
    agrees("Scaler", holes, offset=[1.0, 2.0, 3.0], scale=[0.5, 2.0, 3.0])
    agrees("Scaler", holes, offset=[1.0], scale=[0.5])
    if dtype.startswith("int"):
        agrees("Imputer", x, kinds=kind_of(dtype), replaced_value_int64=0, imputed_value_int64s=[5, 6, 7])
    else:
        nan = float("nan")
        agrees("Imputer", holes, kinds=kind_of(dtype), replaced_value_float=nan, imputed_value_floats=[1.0, 2.0, 3.0])
        agrees("Imputer", x, kinds=kind_of(dtype), replaced_value_float=0.0, imputed_value_floats=[5.0])


@pytest.mark.parametrize("dtype", TYPES)
def test_features_side_by_side(dtype):
    agrees("FeatureVectorizer", numbers(dtype), numbers(dtype, (7, 2)), inputdimensions=[3, 2])
    agrees("FeatureVectorizer", numbers(dtype), numbers(dtype, (7, 2)), inputdimensions=[2, 2])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("transform", "scores"), [("NONE", 1), ("LOGISTIC", 1), *((t, 3) for t in ("NONE", "LOGISTIC", "SOFTMAX"))]
)
def test_linear_models(dtype, transform, scores):
    rng = np.random.default_rng(scores)
    weights = {"coefficients": rng.normal(size=3 * scores).tolist(), "intercepts": rng.normal(size=scores).tolist()}
    labels = [4, 9, -2][: max(scores, 2)]
    kinds = (TensorProto.INT64, TensorProto.FLOAT)
    more = {"classlabels_ints": labels, "post_transform": transform, "multi_class": 1}
    agrees("LinearClassifier", numbers(dtype), kinds=kinds, **weights, **more)
    if scores > 1 or transform == "NONE":
        agrees("LinearRegressor", numbers(dtype), **weights, targets=scores, post_transform=transform)
        agrees("LinearRegressor", numbers(dtype), coefficients=weights["coefficients"], targets=scores)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(dtype, kernel):
    rng = np.random.default_rng(1)
    vectors = {"support_vectors": rng.normal(size=15).tolist(), "n_supports": 5, "rho": [0.3]}
    for one_class in (0, 1):
        agrees(
            "SVMRegressor",
            numbers(dtype),
            coefficients=rng.normal(size=5).tolist(),
            kernel_type=kernel,
            kernel_params=[0.5, 0.2, 3.0],
            one_class=one_class,
            **vectors,
        )


def test_support_vectors_of_linear_kernels_may_be_added_up():
    given = {"coefficients": [1.0, -2.0, 0.5], "rho": [0.3], "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    agrees("SVMRegressor", numbers("float32"), **given)


def tensor(values: Any, dtype: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), "t")


def test_labels():
    whole, real = np.array([[1, 2], [5, 1]]), np.array([1, 2, np.nan, 7], np.float32)
    agrees("LabelEncoder", whole, kinds=TensorProto.INT64, keys_int64s=[1, 5, 1], values_int64s=[7, 8, 9])
    agrees("LabelEncoder", whole, keys_int64s=[1, 5], values_floats=[0.1, 0.5], default_float=9.0)
    agrees("LabelEncoder", real, kinds=TensorProto.INT64, keys_floats=[1.0, 2.0], values_int64s=[1, 2], default_int64=3)


def test_labels_by_tensors():
    """Of other types, and NaN is a key: ONNX Runtime has no code for some of them, the tests of ONNX say so."""
    for keys, values in (("float64", "int64"), ("int16", "float64"), ("int32", "int16")):
        attributes = {"keys_tensor": tensor([1, 3], keys), "values_tensor": tensor([7, 8], values)}
        attributes["default_tensor"] = tensor([5], values)
        feeds = {"x": np.array([[1, 2, 3]], keys)}
        model = model_of("LabelEncoder", feeds, {"y": kind_of(values)}, 4, attributes)
        np.testing.assert_array_equal(rammer.compile(model, "reference")(feeds["x"]), np.array([[7, 5, 8]], values))
    given = np.array([1, np.nan, 2], np.float32)
    attributes = {"keys_tensor": tensor([np.nan, 2], "float32"), "values_tensor": tensor([7, 8], "int64")}
    model = model_of("LabelEncoder", {"x": given}, {"y": TensorProto.INT64}, 4, attributes)
    np.testing.assert_array_equal(rammer.compile(model, "reference")(given), [-1, 7, 8])


@pytest.mark.parametrize(
    ("op", "attributes", "says"),
    [
        ("LabelEncoder", {"keys_floats": [1.0], "values_strings": ["a"]}, "values that are texts"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "post_transform": "LOGISTIC"}, "LOGISTIC of one score"),
        ("LinearRegressor", {"coefficients": [1.0] * 6, "targets": 2, "post_transform": "PROBIT"}, "PROBIT"),
        ("OneHotEncoder", {"cats_int64s": [1], "zeros": 0}, "fails for unknown categories"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, "categories that are texts"),
    ],
)
def test_forms_that_are_refused(op, attributes, says):
    model = model_of(op, {"x": numbers("float32")}, {"y": TensorProto.FLOAT}, 3, attributes)
    with pytest.raises(UnsupportedFeatureError, match=says):
        rammer.compile(model)


@pytest.mark.parametrize(
    ("op", "attributes", "says"),
    [
        ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, "2 offset for 3 columns"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0]}, "2 coefficients"),
        ("FeatureVectorizer", {"inputdimensions": [4]}, "the first 4 of 3 columns"),
        ("Normalizer", {"norm": "L3"}, "norm 'L3'"),
        ("SVMRegressor", {"coefficients": [1.0], "rho": [0.0], "n_supports": 1}, "0 numbers of 1 vectors"),
    ],
)
def test_forms_that_are_invalid(op, attributes, says):
    model = model_of(op, {"x": numbers("float32")}, {"y": TensorProto.FLOAT}, 3, attributes)
    with pytest.raises(InvalidModelError, match=says):
        rammer.compile(model)
