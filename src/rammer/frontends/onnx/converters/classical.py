"""Operators of `ai.onnx.ml` that compute with numbers: features, linear models, support vector regression.

They compute in float32, and in float64 where features have another type; what they give is float32, as ONNX has it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, converted, part, reshaped
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.trees.links import Link, add_link
from rammer.ir.types import DType

_LINKS = {"NONE": Link.IDENTITY, "SOFTMAX": Link.SOFTMAX, "LOGISTIC": Link.SIGMOID}
_NORMS = ("MAX", "L1", "L2")
_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
_LABEL_TYPES = (DType.INT16, DType.INT32, DType.INT64, DType.FLOAT32, DType.FLOAT64)


def link_of(node: Node) -> Link:
    """What `post_transform` makes of scores.

    Raises:
        UnsupportedFeatureError: it is one that Rammer does not have.
    """
    transform = node.text("post_transform")
    if transform not in _LINKS:
        raise node.unsupported(f"post_transform {transform}")
    return _LINKS[transform]


# Features.


def _array_feature_extractor(node: Node) -> Sequence[Operand]:
    x, chosen = node.operand(0), node.operand(1)
    found = node.add("Gather", x, reshaped(node, chosen, (math.prod(chosen.shape),)), axis=-1 + x.rank)
    return [reshaped(node, found, (1, *found.shape)) if x.rank == 1 else found]


def _binarizer(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    limit = np.array(node.number("threshold"), np.float32)
    if x.dtype.numpy.kind == "i":  # above a threshold are integers that are above the one below it
        limit = np.floor(limit)
    return [converted(node, node.add("Less", _constant(node, limit, x), x), x.dtype)]


def _feature_vectorizer(node: Node) -> Sequence[Operand]:
    parts = []
    widths = node.integers("inputdimensions") or ()
    inputs = node.operands_from(0)
    if len(widths) != len(inputs):
        raise node.invalid(f"{len(widths)} inputdimensions for {len(inputs)} inputs")
    for x, width in zip(inputs, widths, strict=True):
        rows = reshaped(node, x, _rows(x))
        if not 0 <= width <= rows.shape[1]:
            raise node.invalid(f"the first {width} of {rows.shape[1]} columns")
        parts.append(converted(node, part(node, rows, 1, 0, width), DType.FLOAT32))
    return [concatenated(node, parts, 1)]


def _imputer(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    is_real = x.dtype.numpy.kind == "f"
    given: Sequence[float] = (
        node.numbers("imputed_value_floats") if is_real else node.integers("imputed_value_int64s") or ()
    )
    replaced = node.number("replaced_value_float") if is_real else node.integer("replaced_value_int64")
    values = _constant(node, _each(node, "imputed values", given, x), x)
    if is_real and math.isnan(replaced):
        is_missing = node.add("IsNaN", x)
    else:
        is_missing = node.add("Equal", x, _constant(node, np.array(replaced), x))
    return [node.add("Where", is_missing, values, x)]


def _normalizer(node: Node) -> Sequence[Operand]:
    """Rows over their norm; those of norm 0 as they are."""
    x, norm = _real(node, node.operand(0)), node.text("norm")
    if norm not in _NORMS:
        raise node.invalid(f"norm '{norm}'")
    along: dict[str, Any] = {"axes": (x.rank - 1,), "keepdims": True}
    match norm:
        case "MAX":
            found = node.add("ReduceMax", x, **along)
        case "L1":
            found = node.add("ReduceSum", node.add("Abs", x), **along)
        case _:
            found = node.add("Sqrt", node.add("ReduceSum", node.add("Mul", x, x), **along))
    zero, one = (_constant(node, np.array(number), x) for number in (0, 1))
    divisor = node.add("Where", node.add("Equal", found, zero), one, found)
    return [converted(node, node.add("Div", x, divisor), DType.FLOAT32)]


def _one_hot_encoder(node: Node) -> Sequence[Operand]:
    x, categories = node.operand(0), node.integers("cats_int64s")
    if not categories:
        raise node.unsupported("categories that are texts", "number them before, or compile the estimator itself")
    if not node.flag("zeros"):
        hint = "set zeros=1 (scikit-learn: handle_unknown='ignore'), or compile the estimator itself"
        raise node.unsupported("an encoder that fails for unknown categories", hint)
    column = reshaped(node, converted(node, x, DType.INT64), (*x.shape, 1))
    same = node.add("Equal", column, node.constant(np.array(categories, np.int64)))
    return [converted(node, same, DType.FLOAT32)]


def _scaler(node: Node) -> Sequence[Operand]:
    x = _real(node, node.operand(0))
    offset, scale = (_each(node, name, node.numbers(name), x) for name in ("offset", "scale"))
    moved = node.add("Sub", x, _constant(node, offset, x))
    return [converted(node, node.add("Mul", moved, _constant(node, scale, x)), DType.FLOAT32)]


# Labels.


def _label_encoder(node: Node) -> Sequence[Operand]:
    """The number of a label's key, of equal ones the first, which chooses among the default and the values."""
    x, keys = node.operand(0), _labels(node, "keys")
    values = _labels(node, "values")
    if len(keys) != len(values):
        raise node.invalid(f"{len(keys)} keys for {len(values)} values")
    keys, first = np.unique(keys.astype(x.dtype.numpy), return_index=True)
    column = reshaped(node, x, (*x.shape, 1))
    same = node.add("Equal", column, node.constant(keys))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        is_key = node.constant(np.isnan(keys))
        same = node.add("Or", same, node.add("And", node.add("IsNaN", column), is_key))
    numbers = node.constant(1 + np.arange(len(keys)))
    place = node.add("Where", same, numbers, node.constant(np.array(0, np.int64)))
    place = node.add("ReduceMax", place, axes=(x.rank,), keepdims=False)
    table = np.concatenate([_default(node, values.dtype), values[first]])
    return [node.add("Gather", node.constant(table), place, axis=0)]


def _labels(node: Node, name: str) -> npt.NDArray[Any]:
    """Keys or values, in the type that they are given in."""
    if node.has(f"{name}_int64s"):
        return np.array(node.integers(f"{name}_int64s"), np.int64)
    if node.has(f"{name}_floats"):
        return np.array(node.numbers(f"{name}_floats"), np.float32)
    if node.has(f"{name}_tensor"):
        found = node.tensor(f"{name}_tensor")
        if DType.__members__.get(found.dtype.name.upper()) in _LABEL_TYPES:
            return np.asarray(found).reshape(-1)
    raise node.unsupported(f"{name} that are texts", "number them before, or compile the estimator itself")


def _default(node: Node, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    if node.has("default_tensor"):
        return np.asarray(node.tensor("default_tensor"), dtype).reshape(1)
    is_real = np.dtype(dtype).kind == "f"
    return np.array([node.number("default_float") if is_real else node.integer("default_int64")], dtype)


# Models.


def _linear_regressor(node: Node) -> Sequence[Operand]:
    scores, link = _linear(node, node.integer("targets")), link_of(node)
    if (
        link is not Link.IDENTITY and scores.shape[1] == 1
    ):  # ONNX Runtime leaves it out, ONNX's own evaluator refuses it
        raise node.unsupported(f"post_transform {node.text('post_transform')} of one score")
    return [converted(node, add_link(node, scores, link), DType.FLOAT32)]


def _linear_classifier(node: Node) -> Sequence[Operand | None]:
    """Labels and scores. A single score is the second of two classes', which a row belongs to where it is above 0."""
    labels = node.integers("classlabels_ints")
    if labels is None and node.wants(0):
        raise node.unsupported("labels that are texts", "convert with integer labels, or leave the labels out")
    count = len(labels) if labels is not None else len(node.texts("classlabels_strings"))
    width = max(1, len(node.numbers("intercepts"))) if node.has("intercepts") else count
    if count < 2 or width not in (1, count) or (width == 1 and count != 2):
        raise node.unsupported(f"{width} scores for {count} classes")
    scores, link = _linear(node, width), link_of(node)
    if width == 1:
        zero = _constant(node, np.array(0), scores)
        chosen = reshaped(node, converted(node, node.add("Less", zero, scores), DType.INT64), scores.shape[:1])
        if link is Link.SOFTMAX:
            raise node.unsupported("post_transform SOFTMAX of one score")
        one = _constant(node, np.array(1), scores)
        other = node.add("Neg", scores) if link is Link.SIGMOID else node.add("Sub", one, scores)
        scores = concatenated(node, (other, scores), 1)
    else:
        chosen = node.add("ArgMax", scores, axis=1, keepdims=False, select_last_index=False)
    found = None if labels is None else node.add("Gather", node.constant(np.array(labels, np.int64)), chosen, axis=0)
    return [found, converted(node, add_link(node, scores, link), DType.FLOAT32)]


def _linear(node: Node, width: int) -> Operand:
    """Scores `[rows, width]`."""
    x = _real(node, node.operand(0))
    x = reshaped(node, x, _rows(x))
    weights, offsets = node.numbers("coefficients"), node.numbers("intercepts")
    if len(weights) != width * x.shape[1] or len(offsets) not in (0, width):
        raise node.invalid(f"{len(weights)} coefficients and {len(offsets)} intercepts for {width} x {x.shape[1]}")
    weight = np.array(weights, np.float32).reshape(width, -1).T
    scores = node.add("MatMul", x, _constant(node, weight, x))
    return node.add("Add", scores, _constant(node, np.array(offsets), x)) if offsets else scores


def _svm_regressor(node: Node) -> Sequence[Operand]:
    x = _real(node, node.operand(0))
    x = reshaped(node, x, _rows(x))
    count, weights, rho = node.integer("n_supports"), node.numbers("coefficients"), node.numbers("rho")
    points = np.array(node.numbers("support_vectors"), np.float32)
    size = count or x.shape[1]
    if len(rho) != 1 or len(weights) != size or points.size != count * x.shape[1]:
        raise node.invalid(f"{len(weights)} coefficients, {points.size} numbers of {count} vectors for {x.type}")
    weight = np.array(weights, np.float32).reshape(size, 1)
    if count:
        found = node.add("MatMul", _kernel(node, x, points.reshape(count, -1)), _constant(node, weight, x))
    else:
        found = _kernel(node, x, weight.T)
    found = node.add("Add", found, _constant(node, np.array(rho), x))
    if node.flag("one_class"):
        zero, one, other = (_constant(node, np.array(number), x) for number in (0, 1, -1))
        found = node.add("Where", node.add("Less", zero, found), one, other)
    if link_of(node) is not Link.IDENTITY:
        raise node.unsupported(f"post_transform {node.text('post_transform')} of one score")
    return [converted(node, found, DType.FLOAT32)]


def _kernel(node: Node, x: Operand, points: npt.NDArray[np.float32]) -> Operand:
    """The kernel `[rows, points]`."""
    kind = node.text("kernel_type")
    gamma, constant, degree = (*node.numbers("kernel_params"), 0.0, 0.0, 0.0)[:3]
    if kind not in _KERNELS:
        raise node.invalid(f"kernel_type '{kind}'")
    if kind == "RBF":
        apart = node.add("Sub", reshaped(node, x, (x.shape[0], 1, x.shape[1])), _constant(node, points, x))
        distance = node.add("ReduceSum", node.add("Mul", apart, apart), axes=(2,), keepdims=False)
        return node.add("Exp", node.add("Mul", distance, _constant(node, np.array(-gamma), x)))
    product = node.add("MatMul", x, _constant(node, points.T, x))
    if kind == "LINEAR":
        return product
    scaled = node.add("Mul", product, _constant(node, np.array(gamma), x))
    scaled = node.add("Add", scaled, _constant(node, np.array(constant), x))
    return (
        node.add("Tanh", scaled) if kind == "SIGMOID" else node.add("Pow", scaled, _constant(node, np.array(degree), x))
    )


# What they share.


def _real(node: Node, x: Operand) -> Operand:
    return x if x.dtype is DType.FLOAT32 else converted(node, x, DType.FLOAT64)


def _rows(x: Operand) -> tuple[int, int]:
    """The shape of rows; a vector is one."""
    return (1, x.shape[0]) if x.rank == 1 else (x.shape[0], math.prod(x.shape[1:]))


def _constant(node: Node, array: npt.NDArray[Any], like: Operand) -> Operand:
    return node.constant(np.ascontiguousarray(array.astype(like.dtype.numpy)))


def _each(node: Node, what: str, given: Sequence[float], x: Operand) -> npt.NDArray[Any]:
    """One number for all columns, or one for each."""
    if len(given) not in (1, x.shape[-1]):
        raise node.invalid(f"{len(given)} {what} for {x.shape[-1]} columns")
    return np.array(given)


_FAMILY: Mapping[str, Converter] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _feature_vectorizer,
    "Imputer": _imputer,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot_encoder,
    "SVMRegressor": _svm_regressor,
    "Scaler": _scaler,
}
CONVERTERS: Mapping[str, Converter] = {f"ai.onnx.ml.{name}": make for name, make in _FAMILY.items()}
