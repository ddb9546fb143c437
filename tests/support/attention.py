"""Models of attention, and what they compute by their definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper

from tests.support.model_maker import Array

NAMES = ("Q", "K", "V", "attn_mask", "past_key", "past_value")
OPSET = 23


def attention_model(
    shapes: Sequence[tuple[int, ...] | None],
    *,
    element_type: int = TensorProto.FLOAT,
    bool_mask: bool = False,
    **given: Any,
) -> onnx.ModelProto:
    """A model of ONNX's `Attention` on inputs of these shapes (None: left out), with attributes."""
    types = {name: TensorProto.BOOL if name == "attn_mask" and bool_mask else element_type for name in NAMES}
    present = [name if shape else "" for name, shape in zip(NAMES, shapes, strict=False)]
    inputs = [
        helper.make_tensor_value_info(name, types[name], shape)
        for name, shape in zip(NAMES, shapes, strict=False)
        if shape
    ]
    results = ["y", "keys", "values"] if "past_key" in present else ["y"]
    node = helper.make_node("Attention", present, results, name="attention", **given)
    outputs = [helper.make_tensor_value_info(name, element_type, None) for name in results]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def attention_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    """Normal numbers; a mask of truth values is mostly true."""
    rng = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        found[value.name] = rng.random(shape) > 0.3 if dtype == np.bool_ else rng.standard_normal(shape).astype(dtype)
    return found


def expected(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """What ONNX's own evaluator gives."""
    return [np.asarray(y) for y in onnx.reference.ReferenceEvaluator(model).run(None, inputs)]
