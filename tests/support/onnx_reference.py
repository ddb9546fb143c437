"""Runs whole ONNX models: through Rammer's graph in NumPy, and through ONNX Runtime, the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from rammer.frontends.onnx import load_graph
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import Graph
from rammer.passes import unroll
from rammer.verify import graph as verifier

Array = npt.NDArray[Any]
Run = Callable[[onnx.ModelProto, Sequence[Array]], Sequence[Array]]
"""Outputs of a model for one array per input, in order; initialisers are no inputs."""


def evaluate_model(model: onnx.ModelProto, inputs: Sequence[Array]) -> Sequence[Array]:
    """The outputs by the graph that the frontend makes, which is verified on the way."""
    return evaluate_verified(load_graph(model), inputs)


def evaluate_verified(graph: Graph, inputs: Sequence[Array]) -> Sequence[Array]:
    """The outputs of a graph that a frontend made, which is verified first."""
    verifier.verify(graph)
    return evaluate_graph(unroll.run(graph), inputs)


def check_model(
    model: onnx.ModelProto, inputs: Mapping[str, Array], *, run: Run = evaluate_model, tolerance: float = 1e-4
) -> None:
    """Compare all outputs with ONNX Runtime's: types and shapes exactly, values within the tolerance.

    Those that are sequences are compared tensor by tensor.
    """
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = session.run(None, dict(inputs))
    tensors = [each for output in outputs for each in (output if isinstance(output, list) else [output])]
    expected = [np.asarray(tensor) for tensor in tensors]
    constants = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    compare(run(model, [inputs[name] for name in names]), expected, rtol=tolerance, atol=tolerance)


def without_counts(outputs: Mapping[str, Array], expected: Sequence[Array]) -> list[Array]:
    """Outputs without what lies behind the elements that count, which further outputs say; that has to be 0.

    Along which axis they are counted, the expected shapes say.
    """
    counts = {name: int(outputs[f"{name}.count"]) for name in outputs if f"{name}.count" in outputs}
    arrays = [
        (name, array) for name, array in outputs.items() if name.removesuffix(".count") not in counts or name in counts
    ]
    exact = []
    for (name, array), wanted in zip(arrays, expected, strict=True):
        whole = array
        for axis in range(array.ndim if name in counts else 0):
            start, rest = np.split(array, [counts[name]], axis=axis)
            if start.shape == wanted.shape:
                assert not rest.any()
                whole = start
                break
        exact.append(whole)
    return exact


def compare(actual: Sequence[Array], expected: Sequence[Array], *, rtol: float, atol: float) -> None:
    """Compare lists of arrays; NaN equals NaN."""
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(_comparable(ours), _comparable(theirs), rtol=rtol, atol=atol)


def _comparable(array: Array) -> Array:
    """Bfloat16 is no number to NumPy's comparisons; float64 holds all of its values."""
    return array.astype(np.float64) if array.dtype.name == "bfloat16" else array


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    *,
    constants: Mapping[str, Array | np.generic] | None = None,
    opset: int = 21,
    **fields: Any,
) -> onnx.ModelProto:
    """A model with inputs like the given arrays and outputs of types that are left to shape inference."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, **fields)
    inferred = onnx.shape_inference.infer_shapes(model)
    del inferred.graph.value_info[:]
    return inferred
