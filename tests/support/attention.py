"""Models of attention, and what they compute by their definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper

from benchmarks.networks.builder import GraphBuilder
from tests.support.model_maker import Array

NAMES = ("Q", "K", "V", "attn_mask", "past_key", "past_value")
OPSET = 23
SIZES = (
    (16, 100, 64, 64),
    (33, 97, 32, 32),
    (65, 192, 40, 72),
    (70, 2, 64, 3),
    (128, 128, 128, 128),
    (128, 704, 16, 16),
    (200, 130, 256, 256),
    (200, 51, 80, 16),
)
"""Rows, keys, columns and depths that no vector, block or warp divides, or not all teams of warps have part of."""


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


def softmax_model(inputs: Sequence[Array]) -> onnx.ModelProto:
    """MatMul, Add, Softmax, MatMul: rows without keys are NaN, which ONNX's `Attention` makes 0."""
    (rows, size), keys = inputs[0].shape, inputs[2].shape[0]
    graph = GraphBuilder("softmax")
    q, k, v = graph.input("q", (rows, size)), graph.input("k", (size, keys)), graph.input("v", (keys, size))
    scores = graph.node("MatMul", "scores", [q, k], (rows, keys))
    scores = graph.node("Add", "masked", [scores, graph.input("mask", (rows, keys))], (rows, keys))
    weights = graph.node("Softmax", "weights", [scores], (rows, keys), axis=-1)
    return graph.build(graph.node("MatMul", "y", [weights, v], (rows, size)))


def peculiar_rows() -> tuple[list[Array], Array]:
    """What `softmax_model` reads, with rows without keys and scores that are not finite, and what it gives."""
    rows, keys, size = 64, 250, 64
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, size), (keys, size), (keys, size)))
    mask = np.zeros((rows, keys), np.float32)
    mask[3] = -np.inf  # no key at all
    mask[5, :200] = -np.inf  # none in the first blocks
    mask[6, 100:] = -np.inf
    mask[7, 11] = np.nan
    mask[8, 240] = np.inf
    mask[9] = -1e30
    scores = q.astype(np.float64) @ k.T.astype(np.float64) + mask
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        wanted = weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)
    wanted[9] = v.mean(axis=0)  # all scores round to the same
    return [q, k.T.copy(), v, mask], wanted


def expected(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """What ONNX's own evaluator gives."""
    return [np.asarray(y) for y in onnx.reference.ReferenceEvaluator(model).run(None, inputs)]
