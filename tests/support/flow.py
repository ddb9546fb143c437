"""Models of values whose size depends on the data, and how they compare with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.parser
import onnxruntime

from rammer.frontends.onnx import load_graph
from tests.support.onnx_reference import compare, evaluate_model, model_of, without_counts

Arrays = Mapping[str, npt.NDArray[Any]]

RNG = np.random.default_rng(11)
X = RNG.normal(size=(5, 4)).astype(np.float32)
CHOICES = {
    "nowhere": np.zeros(5, np.bool_),
    "everywhere": np.ones(5, np.bool_),
    "somewhere": np.array([1, 0, 1, 1, 0], np.bool_),
}
ROWS = "w = Compress <axis = 0> (x, c)"
"""`[n, 4]`, of which any number up to 5 count."""
SIZE = ["s = Shape (w)", "n = Gather <axis = 0> (s, zero)", "n1 = Unsqueeze (n, i0)"]
PLACES = ["m = NonZero (c)", "p = Squeeze (m, i0)"]

CONSTANTS: dict[str, Any] = {
    "minus": np.array([-1], np.int64),
    "i0": np.array([0], np.int64),
    "i1": np.array([1], np.int64),
    "i2": np.array([2], np.int64),
    "i3": np.array([3], np.int64),
    "i4": np.array([4], np.int64),
    "far": np.array([2**63 - 1], np.int64),
    "back": np.array([-(2**63)], np.int64),
    "minus2": np.array([-2], np.int64),
    "half": np.array(0.5, np.float32),
    "zero": np.array(0, np.int64),
    "one": np.array(1, np.int64),
    "row": np.arange(4, dtype=np.float32),
    "column": np.arange(6, dtype=np.float32),
    "nothing": np.array([], np.float32),
    "scales": np.array([1, 1, 2, 1.5], np.float32),
    "grown": np.array([2, 1, 1], np.float32),
    "i12": np.array([1, 2], np.int64),
    "i13": np.array([1, 3], np.int64),
    "shape113": np.array([2, 1, 3], np.int64),
    "shape211": np.array([2, 1, 1], np.int64),
    "scales3": np.array([2, 1, 2], np.float32),
    "table": np.arange(24, dtype=np.float32).reshape(6, 4),
    "square": RNG.normal(size=(4, 4)).astype(np.float32),
    "shape2": np.array([-1, 2], np.int64),
    "shape22": np.array([-1, 2, 2], np.int64),
    "shape022": np.array([0, 2, 2], np.int64),
    "shape34": np.array([3, 4], np.int64),
    "twice": np.array([1, 2], np.int64),
    "pairs": np.array([[1, 0], [-1, 1]], np.int64),
    "last": np.array([-1, 0], np.int64),
    "pads": np.array([0, 1, 0, 2], np.int64),
    "values": np.array([0.0, 2.0], np.float32),
    "depth": np.array(6, np.int64),
    "two": np.array(2, np.int64),
    "none": np.array(0, np.int32),
    "two32": np.array(2, np.int32),
    "twotimes": np.array([2, 1], np.int64),
    "padded": np.array([1, 0, 0, 0], np.int64),
    "shape54": np.array([5, 4], np.int64),
    "shape01": np.array([0, 1], np.int64),
    "imageshape": np.array([1, 1, 6, 4], np.int64),
    "limit": np.array([0.3], np.float32),
}
"""Constants by the names that nodes read them by."""


def model(lines: Sequence[str], inputs: Arrays, output: str) -> onnx.ModelProto:
    """Nodes, one a line as ONNX's parser reads them, with the constants that they read."""
    nodes = [onnx.parser.parse_node(line) for line in lines]
    read = {name for node in nodes for name in node.input}
    constants = {name: array for name, array in CONSTANTS.items() if name in read}
    return model_of(nodes, inputs, [output], constants=constants)


def evaluated(proto: onnx.ModelProto, inputs: Arrays) -> Arrays:
    """The outputs of a model by name, with those that say how many elements count."""
    graph = load_graph(proto)
    names = [graph.values[output].name for output in graph.outputs]
    return dict(zip(names, evaluate_model(proto, list(inputs.values())), strict=True))


def check(
    proto: onnx.ModelProto,
    inputs: Arrays,
    run: Callable[[onnx.ModelProto, Arrays], Arrays] = evaluated,
    tolerance: float = 1e-5,
) -> None:
    """Compare what counts of all outputs with ONNX Runtime's, and see that 0 stands behind it."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, dict(inputs))
    compare(without_counts(run(proto, inputs), expected), expected, rtol=tolerance, atol=tolerance)
