"""Quantised models taken apart: each layer alone between two quantised tensors, fed by ONNX Runtime's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from tests.support.model_maker import Array

FED = "fed."


def quantised_names(model: onnx.ModelProto) -> list[str]:
    """The tensors of bytes that nodes of a model make, but for those that only move or pass on other bytes."""
    moved = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "MaxPool", "Slice", "Gather")
    makers = [node for node in model.graph.node if node.op_type not in moved]
    makes = ("QuantizeLinear", "QGemm", "DynamicQuantizeLinear")
    return [node.output[0] for node in makers if node.op_type in makes or node.op_type.startswith("QLinear")]


def apart(model: onnx.ModelProto, tensors: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with each of the tensors as an output, and read from an input of its own: `FED` and its name."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    read = set()
    for node in cut.graph.node:
        for position, name in enumerate(node.input):
            if name in tensors:
                node.input[position] = FED + name
                read.add(name)
    del cut.graph.output[:]
    for name, array in tensors.items():
        dtype = helper.np_dtype_to_tensor_dtype(array.dtype)
        cut.graph.output.append(helper.make_tensor_value_info(name, dtype, array.shape))
        if name in read:
            cut.graph.input.append(helper.make_tensor_value_info(FED + name, dtype, array.shape))
    return cut


def by_onnx_runtime(
    model: onnx.ModelProto, inputs: Mapping[str, Array], names: Sequence[str], *, optimised: bool
) -> dict[str, Array]:
    """Tensors of a model, by name, from one run of it."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(exposed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = session.run(None, dict(inputs))
    return {name: np.asarray(array) for name, array in zip(names, found, strict=True)}


def feeds_of(cut: onnx.ModelProto, inputs: Mapping[str, Array], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """What a model that was taken apart reads: what the whole one does, and the tensors."""
    constants = {tensor.name for tensor in cut.graph.initializer}
    return {
        value.name: inputs[value.name] if value.name in inputs else tensors[value.name.removeprefix(FED)]
        for value in cut.graph.input
        if value.name not in constants
    }
