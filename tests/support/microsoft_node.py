"""Nodes of `com.microsoft`, by Rammer and by ONNX Runtime."""

import numpy as np
import onnxruntime
from onnx import ValueInfoProto, helper, numpy_helper

from tests.support.onnx_reference import compare, evaluate_model

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def integers(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scales(*shape):
    return RNG.uniform(0.01, 0.1, shape).astype(np.float32)


def model(op_type, inputs, outputs, attributes, known=()):
    """The model of one node, and its inputs but for those at known positions, which are initialisers."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    results = [f"y{i}" if wanted else "" for i, wanted in enumerate(outputs)]
    node = helper.make_node(op_type, names, results, domain="com.microsoft", **attributes)
    fixed = [numpy_helper.from_array(inputs[position], names[position]) for position in known]
    given = {name: x for i, (name, x) in enumerate(zip(names, inputs, strict=True)) if x is not None and i not in known}
    graph = helper.make_graph(
        [node],
        "test",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in given.items()
        ],
        [ValueInfoProto(name=name) for name in results if name],
        fixed,
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10), given


def results(op_type, inputs, outputs=(True,), known=(), **attributes):
    """What Rammer makes of a node, and what ONNX Runtime does."""
    made, given = model(op_type, inputs, outputs, attributes, known)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = [np.asarray(result) for result in session.run(None, given)]
    return evaluate_model(made, list(given.values())), expected


def check(op_type, inputs, outputs=(True,), quantum=0, tolerance=1e-4, known=(), **attributes):
    found, expected = results(op_type, inputs, outputs, known, **attributes)
    if quantum:
        expected, found = ([array.astype(np.int64) for array in arrays] for arrays in (expected, found))
        tolerance = quantum
    compare(found, expected, rtol=tolerance if not quantum else 0, atol=tolerance)
