"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, reshaped, transposed
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.types import DType


def _attention(node: Node) -> Result:
    """`softmax(query @ key' * scale + mask) @ value` over query `[..., l, e]`, key `[..., s, e]`, value `[..., s, v]`.

    A row whose positions are all masked gives zeros, as in PyTorch.
    """
    if node.number("dropout_p") > 0:
        raise node.unsupported(
            "attention with dropout", "call module.eval() first, or set dropout_p=0 outside of training"
        )
    query, key, value = _grouped(node) if node.flag("enable_gqa") else _operands(node)
    scale = node.number("scale") if node.has("scale") else 1 / math.sqrt(query.shape[-1])
    turned = transposed(node, key, [*range(key.rank - 2), key.rank - 1, key.rank - 2])
    scaled = node.add("Mul", query, node.scalar(scale, query.dtype))
    scores = node.add("MatMul", scaled, turned)
    mask = _mask(node, scores)
    if mask is None:
        weights = node.add("Softmax", scores, axis=scores.rank - 1)
    elif mask.dtype is DType.BOOL:
        hidden = node.scalar(-math.inf, scores.dtype)
        weights = _safe_softmax(node, node.add("Where", mask, scores, hidden), mask)
    else:
        shifted = node.add("Add", scores, converted(node, mask, scores.dtype))
        weights = _safe_softmax(node, shifted, node.add("Less", node.scalar(-math.inf, mask.dtype), mask))
    return reshaped(node, node.add("MatMul", weights, value), node.shape)


def _operands(node: Node) -> tuple[Operand, Operand, Operand]:
    return node.operand("query"), node.operand("key"), node.operand("value")


def _grouped(node: Node) -> tuple[Operand, Operand, Operand]:
    """Queries of several heads for each head of keys and values: `[..., groups, heads, l, e]` for all three."""
    query, key, value = _operands(node)
    heads = key.shape[-3]
    query = reshaped(node, query, (*query.shape[:-3], heads, query.shape[-3] // heads, *query.shape[-2:]))
    shared = [reshaped(node, x, (*x.shape[:-2], 1, *x.shape[-2:])) for x in (key, value)]
    return query, shared[0], shared[1]


def _mask(node: Node, scores: Operand) -> Operand | None:
    """What is added to the scores, or where they count; None where all do."""
    rows, columns = scores.shape[-2:]
    if node.flag("is_causal"):
        return node.constant(np.tri(rows, columns, dtype=np.bool_))
    mask = node.optional("attn_mask")
    if mask is not None and node.flag("enable_gqa") and mask.rank > 2 and mask.shape[-3] > 1:
        return reshaped(node, mask, (*mask.shape[:-3], *scores.shape[-4:-2], *mask.shape[-2:]))
    if mask is not None and node.flag("enable_gqa") and mask.rank > 2:
        return reshaped(node, mask, (*mask.shape[:-3], 1, *mask.shape[-3:]))
    return mask


def _safe_softmax(node: Node, scores: Operand, counted: Operand) -> Operand:
    """The softmax along the last dimension, zeros in rows where nothing is counted."""
    weights = node.add("Softmax", scores, axis=scores.rank - 1)
    if counted.array is not None and counted.array.any(axis=-1).all():
        return weights
    some = node.add("ReduceMax", counted, axes=(counted.rank - 1,), keepdims=True)
    return node.add("Where", some, weights, node.scalar(0, weights.dtype))


CONVERTERS: Mapping[str, Converter] = {"scaled_dot_product_attention": _attention}
