"""A float32 model's results in float64, by ONNX's own reference: what judges where two float32 results differ."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.support.model_maker import Array


def run_in_float64(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> list[Array]:
    """The model's outputs with every float32 tensor widened, constants and inputs included."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _turn_scans(wide.graph)
    _widen_graph(wide.graph)
    arrays = {name: x.astype(np.float64) if x.dtype == np.float32 else x for name, x in inputs.items()}
    return [np.asarray(output) for output in ReferenceEvaluator(wide).run(None, arrays)]


def _turn_scans(graph: onnx.GraphProto) -> None:
    """Scans of one value run forwards, which is all that the reference knows: the value is turned."""
    nodes = []
    for node in graph.node:
        directions = [attribute for attribute in node.attribute if attribute.name == "scan_input_directions"]
        if node.op_type == "Scan" and any(list(attribute.ints) == [1] for attribute in directions):
            name = f"{node.output[0]} turned"
            bounds = {"starts": -1, "ends": np.iinfo(np.int64).min, "axes": 0, "steps": -1}
            for part, number in bounds.items():
                graph.initializer.append(numpy_helper.from_array(np.array([number]), f"{name} {part}"))
            nodes.append(helper.make_node("Slice", [node.input[-1], *(f"{name} {part}" for part in bounds)], [name]))
            node.input[-1] = name
            for attribute in directions:
                node.attribute.remove(attribute)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            _widen(attribute.t)
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE


def _widen(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
