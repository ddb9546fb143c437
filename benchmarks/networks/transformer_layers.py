"""The layers of transformers, each written as the ONNX nodes that PyTorch's exporters write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import Float32, GraphBuilder, Value


def linear(graph: GraphBuilder, name: str, x: Value, weight: Float32, *, bias: Float32 | None = None) -> Value:
    """x @ weight.T + bias for `x` (batch, rows, in) and `weight` (out, in)."""
    return product(graph, name, x, graph.parameter(f"{name}.weight", weight), bias=bias)


def product(graph: GraphBuilder, name: str, x: Value, weight: Value, *, bias: Float32 | None = None) -> Value:
    """`linear` by a weight that the graph has already."""
    transposed = operators.transpose(graph, f"{name}.transpose", weight, (1, 0))
    shape = (*x.shape[:-1], weight.shape[0])
    if bias is None:
        return graph.node("MatMul", name, [x, transposed], shape)
    y = graph.node("MatMul", f"{name}.matmul", [x, transposed], shape)
    return graph.node("Add", name, [graph.parameter(f"{name}.bias", bias), y], shape)


def random_linear(
    graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, outputs: int, *, biased: bool = True
) -> Value:
    """`linear` with random weights."""
    weight = weights.scaled_normal(rng, (outputs, x.shape[-1]), gain=1.0)
    return linear(graph, name, x, weight, bias=weights.bias(rng, outputs) if biased else None)


def layer_norm(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, *, epsilon: float) -> Value:
    """Normalisation of the last dimension with random scale and bias."""
    drawn = weights.layer_norm(rng, x.shape[-1])
    parameters = {"weight": drawn.scale, "bias": drawn.bias}
    inputs = [x, *(graph.parameter(f"{name}.{key}", array) for key, array in parameters.items())]
    return graph.node("LayerNormalization", name, inputs, x.shape, axis=-1, epsilon=epsilon)


def mlp(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, hidden: int) -> Value:
    """Two linear layers with a GELU between."""
    y = operators.gelu(graph, f"{name}.gelu", random_linear(graph, rng, f"{name}.fc1", x, hidden))
    return random_linear(graph, rng, f"{name}.fc2", y, x.shape[-1])


def split_heads(graph: GraphBuilder, name: str, x: Value, heads: int, *, transposed: bool = False) -> Value:
    """(batch, rows, heads * size) to (batch, heads, rows, size), or to (batch, heads, size, rows)."""
    batch, rows, width = x.shape
    split = operators.reshape(graph, f"{name}.heads", x, (batch, rows, heads, width // heads))
    permutation = (0, 2, 3, 1) if transposed else (0, 2, 1, 3)
    return operators.transpose(graph, f"{name}.transposed", split, permutation)


def join_heads(graph: GraphBuilder, name: str, x: Value) -> Value:
    """(batch, heads, rows, size) to (batch, rows, heads * size)."""
    batch, heads, rows, size = x.shape
    rows_first = operators.transpose(graph, f"{name}.rows", x, (0, 2, 1, 3))
    return operators.reshape(graph, f"{name}.joined", rows_first, (batch, rows, heads * size))


def scores(graph: GraphBuilder, name: str, query: Value, key: Value) -> Value:
    """The product of (batch, heads, rows, size) and (batch, heads, size, keys)."""
    return graph.node("MatMul", f"{name}.scores", [query, key], (*query.shape[:-1], key.shape[-1]))


def weighted_sum(graph: GraphBuilder, name: str, scored: Value, value: Value) -> Value:
    """The values (batch, heads, keys, size), weighted with the softmax of scores (batch, heads, rows, keys)."""
    probabilities = graph.node("Softmax", f"{name}.softmax", [scored], scored.shape, axis=-1)
    shape = (*scored.shape[:-1], value.shape[-1])
    return graph.node("MatMul", f"{name}.context", [probabilities, value], shape)


def self_attention(
    graph: GraphBuilder,
    rng: np.random.Generator,
    name: str,
    x: Value,
    heads: int,
    *,
    of_queries: Callable[[str, Value], Value] = lambda _, queries: queries,
    of_scores: Callable[[str, Value], Value] = lambda _, scores: scores,
    biased_keys: bool = True,
) -> Value:
    """Attention of `x` (batch, rows, width) to itself, between linear layers.

    What is done to the queries before they are split into heads, and to the scores before their softmax, is given as
    functions of a name and a value.
    """
    width = x.shape[-1]
    query = of_queries(name, random_linear(graph, rng, f"{name}.q", x, width))
    key = random_linear(graph, rng, f"{name}.k", x, width, biased=biased_keys)
    value = random_linear(graph, rng, f"{name}.v", x, width)
    query = split_heads(graph, f"{name}.q", query, heads)
    scored = of_scores(name, scores(graph, name, query, split_heads(graph, f"{name}.k", key, heads, transposed=True)))
    context = weighted_sum(graph, name, scored, split_heads(graph, f"{name}.v", value, heads))
    return random_linear(graph, rng, f"{name}.out", join_heads(graph, name, context), width)
