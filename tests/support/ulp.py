"""Errors of elementary functions in units in the last place, over all of their range."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

Floats = npt.NDArray[Any]


def _sigmoid(x: Floats) -> Floats:
    small = np.exp(-np.abs(x))
    ratio: Floats = np.where(x < 0, small, 1) / (1 + small)
    return ratio


FUNCTIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Sigmoid": _sigmoid,
    "Tanh": np.tanh,
    "Erf": np.vectorize(math.erf, otypes=[np.float64]),
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
}
"""ONNX's functions of one operand, in float64."""


def arguments(count: int) -> Floats:
    """Float32 numbers: every exponent of either sign, the usual range, and what is not finite."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, count // 2, dtype=np.uint32).view(np.float32)
    usual = rng.uniform(-12, 12, count - count // 2).astype(np.float32)
    special = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 88.72284, -103.9], np.float32)
    return np.concatenate([bits, usual, special])


def function_model(kind: str, count: int) -> onnx.ModelProto:
    """`y = kind(x)`, or `y = Pow(x, e)`."""
    names = ["x", "e"] if kind == "Pow" else ["x"]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [count]) for name in (*names, "y")]
    graph = helper.make_graph([helper.make_node(kind, names, ["y"])], kind, ports[:-1], ports[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def ulps(found: Floats, wanted: Floats) -> float:
    """The largest error of float32 numbers against float64 ones, in the spacing of float32 numbers at what is wanted.

    Numbers whose exponent is too great or too small for float32 count as the infinity or the multiple of 2^-149 that
    they round to.

    Raises:
        AssertionError: NaN or infinities are elsewhere.
    """
    rounded = wanted.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    spacing = np.spacing(np.abs(rounded[finite])).astype(np.float64)
    return float(np.max(np.abs(found[finite].astype(np.float64) - wanted[finite]) / spacing))


def erf_plus_one_model(count: int) -> onnx.ModelProto:
    """`y = Erf(x) + 1`."""
    nodes = [helper.make_node("Erf", ["x"], ["erf"]), helper.make_node("Add", ["erf", "one"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [count]) for name in "xy")
    one = helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])
    graph = helper.make_graph(nodes, "erf_plus_one", [x], [y], [one])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
