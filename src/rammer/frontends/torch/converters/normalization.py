"""Normalisations with fixed or own statistics, and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, reshaped
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.frontends.torch.types import torch_dtype

_ALONG: Mapping[str, str] = {
    "_log_softmax": "LogSoftmax",
    "_softmax": "Softmax",
    "log_softmax": "LogSoftmax",
    "softmax": "Softmax",
}


def _along_dimension(node: Node) -> Result:
    """Softmax and its logarithm in the result's element type."""
    x = node.typed("self")
    if x.rank == 0:
        return reshaped(node, node.add(_ALONG[node.operator], reshaped(node, x, (1,)), axis=0), ())
    return node.add(_ALONG[node.operator], x, axis=node.dimension("dim", x.rank))


def _safe_softmax(node: Node) -> Result:
    """Zeros where all elements of a line are minus infinity."""
    x = node.typed("self")
    axis = node.dimension("dim", x.rank)
    none = node.add("Equal", node.add("ReduceMax", x, axes=(axis,), keepdims=True), node.scalar(-np.inf, x.dtype))
    return node.add("Where", none, node.scalar(0, x.dtype), node.add("Softmax", x, axis=axis))


def _batch_norm(node: Node) -> Result:
    """With the statistics that training kept; the further results are for the gradient."""
    return [_normalized(node), None, None]


def _normalized(node: Node) -> Operand:
    x = node.operand("input")
    channels = (x.shape[1],)
    parameters = [_or_filled(node, name, channels, x, value) for name, value in (("weight", 1), ("bias", 0))]
    statistics = [node.operand(name) for name in ("running_mean", "running_var")]
    return node.add("BatchNormalization", x, *parameters, *statistics, epsilon=node.number("eps"))


def _batch_norm_of_itself(node: Node) -> Result:
    """With the statistics of the batch, of which the mean and the inverse deviation are results.

    16-bit floats are normalised in float32.
    """
    x = node.operand("input")
    x = converted(node, x, x.dtype.compute)
    axes = (0, *range(2, x.rank))
    center = node.add("ReduceMean", x, axes=axes, keepdims=False)
    inverse = node.add("InverseStdDev", x, axes=axes, keepdims=False, epsilon=node.number("eps"))
    apart = node.add("Sub", x, _as_channels(node, x, center))
    y = _scaled(node, x, node.add("Mul", apart, _as_channels(node, x, inverse)))
    return _as_results(node, [y, center, inverse])


def _batch_norm_functional(node: Node) -> Result:
    """In training: with the statistics of the batch, which move the running ones.

    The running variance is that of a sample, which divides by one less than the number of elements. 16-bit floats are
    normalised in float32.
    """
    if not node.flag("training"):
        raise node.unsupported("a batch norm whose statistics are results, outside of training")
    x, momentum = node.operand("input"), node.number("momentum")
    x = converted(node, x, x.dtype.compute)
    axes, count = (0, *range(2, x.rank)), x.type.size // max(x.shape[1], 1)
    center = node.add("ReduceMean", x, axes=axes, keepdims=False)
    apart = node.add("Sub", x, _as_channels(node, x, center))
    spread = node.add("ReduceMean", node.add("Mul", apart, apart), axes=axes, keepdims=False)
    inverse = node.add(
        "Reciprocal", node.add("Sqrt", node.add("Add", spread, node.scalar(node.number("eps"), x.dtype)))
    )
    y = _scaled(node, x, node.add("Mul", apart, _as_channels(node, x, inverse)))
    moved = []
    for name, seen, factor in (("running_mean", center, 1.0), ("running_var", spread, count / max(count - 1, 1))):
        kept = node.add("Mul", node.typed(name, x.dtype), node.scalar(1 - momentum, x.dtype))
        moved.append(node.add("Add", kept, node.add("Mul", seen, node.scalar(momentum * factor, x.dtype))))
    return _as_results(node, [y, center, inverse, *moved])


def _as_results(node: Node, operands: Sequence[Operand]) -> list[Operand]:
    """The operands in the element types that the call's results have."""
    types = [type_ or operand.type for operand, type_ in zip(operands, node.results, strict=True)]
    return [converted(node, operand, type_.dtype) for operand, type_ in zip(operands, types, strict=True)]


def _as_channels(node: Node, x: Operand, values: Operand) -> Operand:
    """A value for each channel, to be combined with `[n, c, *spatial]`."""
    return reshaped(node, values, (1, x.shape[1], *(1 for _ in x.shape[2:])))


def _scaled(node: Node, x: Operand, y: Operand) -> Operand:
    for kind, name in (("Mul", "weight"), ("Add", "bias")):
        if node.has(name):
            y = node.add(kind, y, _as_channels(node, x, node.typed(name, x.dtype)))
    return y


def _layer_norm(node: Node) -> Result:
    """Over the trailing dimensions; the native form also returns the mean and the inverse deviation."""
    x, shape = node.operand("input"), node.integers("normalized_shape")
    axis = x.rank - len(shape)
    scale = _or_filled(node, "weight", shape, x, 1)
    bias = node.optional("bias")
    operands = (x, scale) if bias is None else (x, scale, bias)
    epsilon = node.number("eps")
    y = node.add("LayerNormalization", *operands, axis=axis, epsilon=epsilon)
    if len(node.results) == 1:
        return y
    axes = tuple(range(axis, x.rank))
    center = node.add("ReduceMean", x, axes=axes, keepdims=True) if node.used[1] else None
    inverse = node.add("InverseStdDev", x, axes=axes, keepdims=True, epsilon=epsilon) if node.used[2] else None
    return [y, center, inverse]


def _rms_norm(node: Node) -> Result:
    x, shape = node.operand("input"), node.integers("normalized_shape")
    epsilon = node.number("eps") if node.has("eps") else torch.finfo(torch_dtype(x.dtype)).eps
    scale = _or_filled(node, "weight", shape, x, 1)
    y = node.add("RMSNormalization", x, scale, axis=x.rank - len(shape), epsilon=epsilon)
    return y if len(node.results) == 1 else [y, None]


def _group_norm(node: Node) -> Result:
    """group_norm and its native form, which also returns the mean and the inverse deviation of each group."""
    x = node.operand("input")
    groups = node.integer("num_groups" if "num_groups" in node.arguments else "group")
    scale, bias = (_or_filled(node, name, (x.shape[1],), x, value) for name, value in (("weight", 1), ("bias", 0)))
    epsilon = node.number("eps")
    y = node.add("GroupNormalization", x, scale, bias, groups=groups, epsilon=epsilon)
    if len(node.results) == 1:
        return y
    lines = reshaped(node, x, (x.shape[0], groups, x.type.size // max(x.shape[0] * groups, 1)))
    center = node.add("ReduceMean", lines, axes=(2,), keepdims=False) if node.used[1] else None
    inverse = node.add("InverseStdDev", lines, axes=(2,), keepdims=False, epsilon=epsilon) if node.used[2] else None
    return [y, center, inverse]


def _instance_norm(node: Node) -> Result:
    """Each channel of each sample by itself."""
    if not node.flag("use_input_stats"):
        return _normalized(node)
    x = node.operand("input")
    scale, bias = (_or_filled(node, name, (x.shape[1],), x, value) for name, value in (("weight", 1), ("bias", 0)))
    return node.add("InstanceNormalization", x, scale, bias, epsilon=node.number("eps"))


def _or_filled(node: Node, name: str, shape: Sequence[int], like: Operand, value: float) -> Operand:
    """A parameter, or a constant in place of one that is left out."""
    parameter = node.optional(name)
    if parameter is None:
        return node.constant(np.full(tuple(shape), value).astype(like.dtype.numpy))
    return parameter


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_ALONG, _along_dimension),
    "_native_batch_norm_legit": _batch_norm_of_itself,
    "_native_batch_norm_legit_functional": _batch_norm_functional,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "_safe_softmax": _safe_softmax,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
