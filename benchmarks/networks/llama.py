"""One decode step of a Llama 3.2 (Grattafiori et al. 2024): one token, behind a cache of keys and values.

Attention is as PyTorch's `scaled_dot_product_attention` is exported: heads of keys and values are repeated for the
queries that share them, and queries and keys take the root of the scale each. The embeddings are also the last layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.networks import few_bits, operators, weights
from benchmarks.networks import transformer_layers as layers_of
from benchmarks.networks.builder import Float32, GraphBuilder, Value

EPSILON = 1e-5
THETA = 500_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """`heads` of queries in `groups` that share a head of keys and values; weights of so many `bits` (0: floats)."""

    hidden: int
    heads: int
    groups: int
    size: int
    inner: int
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """Cosines and sines of a position, (batch, 1, 1, size)."""

    cosines: Value
    sines: Value


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    cached: int = 512,
    layers: int = 16,
    hidden: int = 2048,
    heads: int = 32,
    groups: int = 8,
    size: int = 64,
    inner: int = 8192,
    words: int = 128_256,
    bits: int = 0,
) -> onnx.ModelProto:
    """The word scores behind a token, and the caches with its keys and values.

    Inputs `input_ids` and `position` int64 (batch, 1), and for each layer `keys.N` and `values.N` float32
    (batch, groups, cached, size). Outputs (batch, 1, words), then for each layer its keys and its values
    (batch, groups, cached + 1, size), float32. With 4 or 8 `bits`, products are by the same weights as integers, in
    blocks with a scale each; the embeddings that are looked up stay floats.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("llama")
    ids = graph.input("input_ids", (batch, 1), np.int64)
    rotation = _rotation(graph, graph.input("position", (batch, 1), np.int64), size)
    sizes = Sizes(hidden=hidden, heads=heads, groups=groups, size=size, inner=inner, bits=bits)
    table = weights.scaled_normal(rng, (words, hidden), gain=hidden**0.5)
    embeddings = graph.parameter("embeddings.weight", table)
    x = graph.node("Gather", "embedded", [embeddings, ids], (batch, 1, hidden), axis=0)
    caches: list[Value] = []
    for layer in range(layers):
        past = [graph.input(f"{part}.{layer}", (batch, groups, cached, size)) for part in ("keys", "values")]
        x, present = _layer(graph, rng, f"layers.{layer}", x, past, rotation, sizes)
        caches += present
    x = _rms_norm(graph, rng, "norm", x)
    scores = (
        few_bits.linear(graph, "words", x, table, bits) if bits else layers_of.product(graph, "words", x, embeddings)
    )
    return graph.build(scores, *caches)


def _layer(
    graph: GraphBuilder,
    rng: np.random.Generator,
    name: str,
    x: Value,
    past: list[Value],
    rotation: Rotation,
    sizes: Sizes,
) -> tuple[Value, list[Value]]:
    y = _rms_norm(graph, rng, f"{name}.norm1", x)
    y, present = _attention(graph, rng, f"{name}.attention", y, past, rotation, sizes)
    x = operators.add(graph, f"{name}.add1", x, y)
    y = _rms_norm(graph, rng, f"{name}.norm2", x)
    gate = operators.silu(graph, f"{name}.silu", _linear(graph, rng, f"{name}.gate", y, sizes.inner, sizes))
    y = operators.multiply(graph, f"{name}.mul", gate, _linear(graph, rng, f"{name}.up", y, sizes.inner, sizes))
    return operators.add(graph, f"{name}.add2", x, _linear(graph, rng, f"{name}.down", y, sizes.hidden, sizes)), present


def _attention(
    graph: GraphBuilder,
    rng: np.random.Generator,
    name: str,
    x: Value,
    past: list[Value],
    rotation: Rotation,
    sizes: Sizes,
) -> tuple[Value, list[Value]]:
    widths = {"q": sizes.heads, "k": sizes.groups, "v": sizes.groups}
    query, key, value = (
        layers_of.split_heads(
            graph, f"{name}.{part}", _linear(graph, rng, f"{name}.{part}", x, n * sizes.size, sizes), n
        )
        for part, n in widths.items()
    )
    query, key = (_rotated(graph, f"{name}.{part}", given, rotation) for part, given in (("q", query), ("k", key)))
    present = [
        operators.concat(graph, f"{name}.{part}.cache", [old, new], 2)
        for part, old, new in zip(("keys", "values"), past, (key, value), strict=True)
    ]
    keys, values = (
        _repeated(graph, f"{name}.{part}", cache, sizes.heads // sizes.groups)
        for part, cache in zip(("keys", "values"), present, strict=True)
    )
    root = operators.scalar(graph, sizes.size**-0.25)
    columns = operators.transpose(graph, f"{name}.keys.columns", keys, (0, 1, 3, 2))
    scored = layers_of.scores(
        graph,
        name,
        operators.multiply(graph, f"{name}.q.scale", query, root),
        operators.multiply(graph, f"{name}.keys.scale", columns, root),
    )
    context = layers_of.join_heads(graph, name, layers_of.weighted_sum(graph, name, scored, values))
    return _linear(graph, rng, f"{name}.out", context, sizes.hidden, sizes), present


def _repeated(graph: GraphBuilder, name: str, x: Value, times: int) -> Value:
    """Each head of (batch, groups, rows, size) `times` in a row."""
    batch, groups, rows, size = x.shape
    wide = graph.node("Unsqueeze", f"{name}.unsqueeze", [x, graph.integers(2)], (batch, groups, 1, rows, size))
    shape = (batch, groups, times, rows, size)
    wide = graph.node("Expand", f"{name}.expand", [wide, graph.integers(*shape)], shape)
    return operators.reshape(graph, f"{name}.repeat", wide, (batch, groups * times, rows, size))


def _rotation(graph: GraphBuilder, position: Value, size: int) -> Rotation:
    batch, _ = position.shape
    half = (batch, size // 2, 1)
    rates = graph.constant(_rates(size).reshape(1, size // 2, 1))
    wide = graph.node("Unsqueeze", "rotary.unsqueeze", [position, graph.integers(1)], (batch, 1, 1))
    floats = graph.node("Cast", "rotary.cast", [wide], (batch, 1, 1), to=onnx.TensorProto.FLOAT)
    angles = operators.transpose(graph, "rotary.rows", graph.node("MatMul", "rotary", [rates, floats], half), (0, 2, 1))
    twice = operators.concat(graph, "rotary.twice", [angles, angles], 2)
    found = []
    for name, op_type in (("cosines", "Cos"), ("sines", "Sin")):
        wave = graph.node(op_type, f"rotary.{name}", [twice], twice.shape)
        found.append(graph.node("Unsqueeze", name, [wave, graph.integers(1)], (batch, 1, 1, size)))
    return Rotation(cosines=found[0], sines=found[1])


def _rates(size: int) -> Float32:
    return (THETA ** (-np.arange(0, size, 2) / size)).astype(np.float32)


def _rotated(graph: GraphBuilder, name: str, x: Value, rotation: Rotation) -> Value:
    """`x` turned by its position: pairs of elements lie half a head apart."""
    *outer, size = x.shape
    half = (*outer, size // 2)
    low, high = (
        graph.node(
            "Slice",
            f"{name}.{part}",
            [x, graph.integers(start), graph.integers(start + size // 2), graph.integers(3)],
            half,
        )
        for part, start in (("low", 0), ("high", size // 2))
    )
    turned = operators.concat(graph, f"{name}.turned", [graph.node("Neg", f"{name}.neg", [high], half), low], 3)
    straight = operators.multiply(graph, f"{name}.cosines", x, rotation.cosines)
    across = operators.multiply(graph, f"{name}.sines", turned, rotation.sines)
    return operators.add(graph, f"{name}.rotated", straight, across)


def _rms_norm(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value) -> Value:
    """x / sqrt(mean(x * x) + epsilon), times a random scale."""
    lines = (*x.shape[:-1], 1)
    squares = graph.node("Pow", f"{name}.square", [x, operators.scalar(graph, 2.0)], x.shape)
    mean = graph.node("ReduceMean", f"{name}.mean", [squares, graph.integers(-1)], lines, keepdims=1)
    root = graph.node(
        "Sqrt", f"{name}.root", [operators.add(graph, f"{name}.add", mean, operators.scalar(graph, EPSILON))], lines
    )
    inverse = graph.node("Reciprocal", f"{name}.inverse", [root], lines)
    normal = operators.multiply(graph, f"{name}.mul", x, inverse)
    scale = graph.parameter(f"{name}.weight", weights.layer_norm(rng, x.shape[-1]).scale)
    return operators.multiply(graph, name, normal, scale)


def _linear(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, outputs: int, sizes: Sizes) -> Value:
    if not sizes.bits:
        return layers_of.random_linear(graph, rng, name, x, outputs, biased=False)
    weight = weights.scaled_normal(rng, (outputs, x.shape[-1]), gain=1.0)
    return few_bits.linear(graph, name, x, weight, sizes.bits)
