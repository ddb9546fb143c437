"""fold_batch_norm: a normalisation by constants goes into the weights of the product before it.

    y = Conv(x, w, b), z = BatchNormalization(y, s, t, mean, var)
        ->  z = Conv(x, w * f, (b - mean) * f + t)  with f = s / sqrt(var + epsilon), per output channel

    z = BatchNormalization(x, s, t, mean, var) of anything else
        ->  z = Affine(x), which is x * f + (t - mean * f)

Likewise for ConvTranspose, Gemm and the MatMul of two matrices, which becomes a Gemm. Weights and parameters have to
be constants, and nobody else may read y. New weights are computed in float64 and rounded once; they have to be finite.

Ordering restriction: after `fold_constants`, and after `hoist_pointwise`, which leads normalisations to products
behind views; before passes that change operands or expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.ir.expr import load
from rammer.ir.graph import Array, Attributes, Graph, Operator
from rammer.ir.recipe import Recipe, Scaled, in_16_bits
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import flag, integer, number
from rammer.operators.shapes import plain_result, spatial_axes
from rammer.passes.helpers.rewrite import Rewriter

# NumPy's stubs give `generic` no arithmetic.
_Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Affine:
    """`y * factor + shift` per channel, in float64."""

    factor: _Numbers
    shift: _Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class _Folded:
    """The operator that takes a normalisation in, in float64: what its weights are multiplied by, and its bias."""

    kind: str
    factor: _Numbers
    bias: _Numbers
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """The same with its weights, rounded."""

    folded: _Folded
    weight: Array


def run(graph: Graph) -> Graph:
    """Fold batch normalisations; see the module."""
    consumers = graph.consumers()
    rewriter = Rewriter(graph)
    folded: set[int] = set()
    for operator in graph.operators:
        if operator.outputs[0] in folded:
            continue
        readers = consumers.get(operator.outputs[0], [])
        reader = readers[0] if len(readers) == 1 and operator.outputs[0] not in graph.outputs else None
        product = None if reader is None else _folded(graph, operator, reader)
        if reader is not None and product is not None:
            _replace(rewriter, operator, reader, product)
            folded.add(reader.outputs[0])
        elif not _simplified(graph, rewriter, operator):
            rewriter.insert(operator)
    return rewriter.finish()


def _folded(graph: Graph, operator: Operator, reader: Operator) -> _Product | None:
    """The product with its reader's normalisation, None where the reader is none or something is not constant."""
    if operator.kind not in _FOLDS or any(value not in graph.constants for value in operator.inputs[1:]):
        return None
    norm = _affine(graph, reader) if reader.inputs[0] == operator.outputs[0] else None
    if norm is None:
        return None
    with np.errstate(all="ignore"):
        folded = _FOLDS[operator.kind](operator, graph, norm)
        if folded is None:
            return None
        numbers = graph.constants[operator.inputs[1]].astype(np.float64) * folded.factor
    weight = _rounded(numbers, graph.values[operator.inputs[1]].type.dtype)
    # Sums of finite products are not what infinite products add up to.
    return _Product(folded=folded, weight=weight) if np.isfinite(weight).all() else None


def _affine(graph: Graph, operator: Operator) -> _Affine | None:
    """What a normalisation by constants does to each channel, None for anything else."""
    if operator.kind != "BatchNormalization" or any(value not in graph.constants for value in operator.inputs[1:]):
        return None
    scale, bias, mean, var = (graph.constants[value].astype(np.float64) for value in operator.inputs[1:])
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + number(operator.attributes, "epsilon"))
        return _Affine(factor=factor, shift=bias - mean * factor)


def _simplified(graph: Graph, rewriter: Rewriter, operator: Operator) -> bool:
    """Make a normalisation by constants one product and one sum an element; False for anything else."""
    norm = _affine(graph, operator)
    if norm is None:
        return False
    (output,) = operator.outputs
    x = rewriter.type(output)
    channels = TensorType(x.dtype.compute, x.shape[1:2])
    axes = spatial_axes(x.shape)
    factor, shift = (load(slot, channels, axes[1:2]) for slot in (1, 2))
    expr = plain_result((x, channels, channels), x.dtype, axes, load(0, x, axes) * factor + shift)
    operands = [
        rewriter.constant(_rounded(numbers, channels.dtype), f"{operator.name}.{part}")
        for part, numbers in (("factor", norm.factor), ("shift", norm.shift))
    ]
    made = rewriter.add_expression(
        expr, [operator.inputs[0], *operands], kind="Affine", name=operator.name, sources=operator.sources
    )
    rewriter.replace(output, made)
    return True


def _replace(rewriter: Rewriter, operator: Operator, norm: Operator, product: _Product) -> None:
    folded, old = product.folded, operator.inputs[1]
    weight = rewriter.constant(product.weight, rewriter.name(old), recipe=_recipe(rewriter, old, folded))
    dtype = rewriter.type(norm.outputs[0]).dtype
    bias = rewriter.constant(_rounded(folded.bias, dtype), f"{norm.name}.bias")
    made = rewriter.add(
        folded.kind,
        [operator.inputs[0], weight, bias],
        folded.attributes,
        name=norm.name,
        sources=(*operator.sources, *norm.sources),
    )
    rewriter.replace(norm.outputs[0], made)


def _recipe(rewriter: Rewriter, weight: int, folded: _Folded) -> Recipe | None:
    """How folded weights follow from those of a model of 16 bits, which are float32 by now."""
    own = rewriter.array(weight)
    narrow = None if own is None or own.dtype != np.float32 else in_16_bits(own)
    return None if narrow is None else Recipe(base=narrow, steps=(Scaled(folded.factor),))


def _rounded(numbers: _Numbers, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        return numbers.astype(dtype.numpy)


def _conv(operator: Operator, graph: Graph, norm: _Affine) -> _Folded:
    rank = graph.values[operator.inputs[1]].type.rank
    return _Folded(
        kind="Conv",
        factor=norm.factor.reshape(-1, *[1] * (rank - 1)),
        bias=_bias(operator, graph) * norm.factor + norm.shift,
        attributes=operator.attributes,
    )


def _conv_transpose(operator: Operator, graph: Graph, norm: _Affine) -> _Folded:
    channels, *rest = graph.values[operator.inputs[1]].type.shape
    group = integer(operator.attributes, "group")
    # Weights are [c, m / group, ...]; the channels of group i come i-th on both sides.
    factor = np.repeat(norm.factor.reshape(group, -1), channels // group, axis=0)
    return _Folded(
        kind="ConvTranspose",
        factor=factor.reshape(*factor.shape, *[1] * (len(rest) - 1)),
        bias=_bias(operator, graph) * norm.factor + norm.shift,
        attributes=operator.attributes,
    )


def _gemm(operator: Operator, graph: Graph, norm: _Affine) -> _Folded:
    beta = number(operator.attributes, "beta")
    return _Folded(
        kind="Gemm",
        factor=norm.factor.reshape((-1, 1) if flag(operator.attributes, "trans_b") else (1, -1)),
        bias=(_bias(operator, graph) * beta if beta else np.zeros(())) * norm.factor + norm.shift,
        attributes={**operator.attributes, "beta": 1.0},
    )


def _matmul(operator: Operator, graph: Graph, norm: _Affine) -> _Folded | None:
    x, weight = (graph.values[value].type for value in operator.inputs)
    if weight.rank != 2 or x.rank != 2:
        return None
    attributes: Attributes = {"alpha": 1.0, "beta": 1.0, "trans_a": False, "trans_b": False}
    return _Folded(kind="Gemm", factor=norm.factor.reshape(1, -1), bias=norm.shift, attributes=attributes)


def _bias(operator: Operator, graph: Graph) -> _Numbers:
    """The bias in float64, 0 where there is none."""
    return np.zeros(()) if len(operator.inputs) < 3 else graph.constants[operator.inputs[2]].astype(np.float64)


_FOLDS: Mapping[str, Callable[[Operator, Graph, _Affine], _Folded | None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "MatMul": _matmul,
}
