"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, reshaped
from rammer.frontends.onnx.node import Converter, Node
from rammer.ir.types import DType

_FLOAT = 1
"""ONNX's number for float32, the one precision in which statistics are specified to be computed by default."""


def _along_axis(node: Node) -> Sequence[Operand]:
    """Softmax, LogSoftmax and Hardmax."""
    x = node.operand(0)
    return [node.add(node.op_type, x, axis=node.axis(node.integer("axis"), x.rank))]


def _lp_normalization(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    return [node.add(node.op_type, x, axis=node.axis(node.integer("axis"), x.rank), p=node.integer("p"))]


def _batch_normalization(node: Node) -> Sequence[Operand]:
    """In training mode by the statistics of the batch, with which the running ones move."""
    if node.has("training_mode") and node.flag("training_mode"):
        return _batch_normalization_in_training(node)
    if any(node.wants(output) for output in range(1, 5)):
        raise node.unsupported(
            "BatchNormalization whose statistics are results, outside of training mode",
            "export the model for inference, or with opset 14 or later for training",
        )
    return [node.add("BatchNormalization", *node.operands, epsilon=node.number("epsilon"))]


def _batch_normalization_in_training(node: Node) -> Sequence[Operand]:
    """The variance is that of all elements; statistics of 16-bit floats are float32 until they are results."""
    x, scale, bias, *running = node.operands
    wide = converted(node, x, DType.FLOAT32) if x.dtype.is_half else x
    axes = (0, *range(2, x.rank))
    center = node.add("ReduceMean", wide, axes=axes, keepdims=True)
    apart = node.add("Sub", wide, center)
    spread = node.add("ReduceMean", node.add("Mul", apart, apart), axes=axes, keepdims=True)
    current = [reshaped(node, one, (one.type.size,)) for one in (center, spread)]
    y = node.add("BatchNormalization", x, scale, bias, *current, epsilon=node.number("epsilon"))
    return [y, *(_moved(node, old, new) for old, new in zip(running, current, strict=True))]


def _moved(node: Node, old: Operand, new: Operand) -> Operand:
    """A running statistic that keeps a share of what it was."""
    share = node.number("momentum")
    kept, added = (node.constant(np.array(factor, new.dtype.numpy)) for factor in (share, 1 - share))
    was = node.add("Mul", converted(node, old, new.dtype), kept)
    return converted(node, node.add("Add", was, node.add("Mul", new, added)), old.dtype)


def _instance_normalization(node: Node) -> Sequence[Operand]:
    return [node.add("InstanceNormalization", *node.operands, epsilon=node.number("epsilon"))]


def _group_normalization(node: Node) -> Sequence[Operand]:
    _check_stash(node)
    groups, epsilon = node.integer("num_groups"), node.number("epsilon")
    return [node.add("GroupNormalization", *node.operands, groups=groups, epsilon=epsilon)]


def _layer_normalization(node: Node) -> Sequence[Operand]:
    """The mean and the inverse standard deviation are operators of their own."""
    _check_stash(node)
    x, epsilon = node.operand(0), node.number("epsilon")
    axis = node.axis(node.integer("axis"), x.rank)
    y = node.add("LayerNormalization", *node.operands, axis=axis, epsilon=epsilon)
    if not (node.wants(1) or node.wants(2)):
        return [y]
    axes = tuple(range(axis, x.rank))
    mean = node.add("ReduceMean", x, axes=axes, keepdims=True)
    return [y, mean, node.add("InverseStdDev", x, axes=axes, keepdims=True, epsilon=epsilon)]


def _rms_normalization(node: Node) -> Sequence[Operand]:
    _check_stash(node)
    axis = node.axis(node.integer("axis"), node.operand(0).rank)
    return [node.add("RMSNormalization", *node.operands, axis=axis, epsilon=node.number("epsilon"))]


def _mean_variance_normalization(node: Node) -> Sequence[Operand]:
    x = node.operand(0)
    axes = tuple(sorted(node.axes(node.integers("axes") or (), x.rank)))
    return [node.add("MeanVarianceNormalization", x, axes=axes)]


def _local_response_normalization(node: Node) -> Sequence[Operand]:
    size, alpha, beta, bias = node.integer("size"), node.number("alpha"), node.number("beta"), node.number("bias")
    return [node.add("LRN", node.operand(0), size=size, alpha=alpha, beta=beta, bias=bias)]


def _check_stash(node: Node) -> None:
    if node.has("stash_type") and node.integer("stash_type") != _FLOAT:
        raise node.unsupported(f"statistics computed as element type {node.integer('stash_type')}", "use stash_type 1")


CONVERTERS: Mapping[str, Converter] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "Hardmax": _along_axis,
    "InstanceNormalization": _instance_normalization,
    "LRN": _local_response_normalization,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _along_axis,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": _rms_normalization,
    "Softmax": _along_axis,
}
