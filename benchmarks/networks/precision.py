"""A model in another floating-point type, as an exporter writes a module whose parameters were converted."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ELEMENT_TYPES = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
"""By precision, the types that models can be converted to."""


def converted(model: onnx.ModelProto, precision: str) -> onnx.ModelProto:
    """The model with all that is float32 (parameters, constants, inputs, outputs, casts) in a 16-bit type.

    The given model is used up: its parameters are converted one by one, for there may be gigabytes of them. Raises
    KeyError for a precision that has no type.
    """
    wanted = ELEMENT_TYPES[precision]
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = wanted
    for tensor in model.graph.initializer:
        _convert(tensor, wanted)
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant":
                _convert(attribute.t, wanted)
            elif node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                attribute.i = wanted
    return model


def _convert(tensor: onnx.TensorProto, wanted: int) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        array = numpy_helper.to_array(tensor)
        finite = np.clip(array, *_range(wanted))  # the least float32, of masks, becomes the least of the type
        tensor.CopyFrom(numpy_helper.from_array(finite.astype(helper.tensor_dtype_to_np_dtype(wanted)), tensor.name))


def _range(wanted: int) -> tuple[float, float]:
    largest = 65504.0 if wanted == TensorProto.FLOAT16 else 3.3895e38
    return -largest, largest
