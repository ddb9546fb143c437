"""What ONNX Runtime makes of a single node: the reference of operator tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper

Array = npt.NDArray[Any]


def run_node(
    op_type: str, inputs: Sequence[Array | None], outputs: int, attributes: Mapping[str, Any], opset: int = 22
) -> list[Array]:
    """The node's outputs. An input that is None is left out; attributes that are None are not set."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    given = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    node = helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)])
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items() if v is not None)
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in node.output],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, given)]
