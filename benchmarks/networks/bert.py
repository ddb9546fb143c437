"""BERT-base (Devlin et al. 2019) up to its last hidden state, with a padding mask, as eager code is exported."""

from __future__ import annotations

from math import sqrt

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks import transformer_layers as layers_of
from benchmarks.networks.builder import GraphBuilder, Value

EPSILON = 1e-12
POSITIONS = 512


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    tokens: int = 128,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    words: int = 30_522,
) -> onnx.ModelProto:
    """Embeddings and `layers` layers that normalise behind each sum.

    Inputs `input_ids` int64 and `attention_mask` bool, (batch, tokens); output (batch, tokens, hidden), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("bert")
    ids = graph.input("input_ids", (batch, tokens), np.int64)
    mask = _mask(graph, graph.input("attention_mask", (batch, tokens), np.bool_))
    x = _embeddings(graph, rng, ids, words=words, hidden=hidden)
    for layer in range(layers):
        name = f"layers.{layer}"
        y = _attention(graph, rng, f"{name}.attention", x, mask, heads)
        y = operators.add(graph, f"{name}.add1", y, x)
        x = layers_of.layer_norm(graph, rng, f"{name}.norm1", y, epsilon=EPSILON)
        y = layers_of.mlp(graph, rng, f"{name}.mlp", x, 4 * hidden)
        y = operators.add(graph, f"{name}.add2", y, x)
        x = layers_of.layer_norm(graph, rng, f"{name}.norm2", y, epsilon=EPSILON)
    return graph.build(x)


def _mask(graph: GraphBuilder, mask: Value) -> Value:
    """What is added to scores: 0 for tokens, the least float32 for padding; (batch, 1, 1, tokens)."""
    batch, tokens = mask.shape
    shape = (batch, 1, 1, tokens)
    wide = graph.node("Unsqueeze", "mask.unsqueeze", [mask, graph.integers(1, 2)], shape)
    floats = graph.node("Cast", "mask.cast", [wide], shape, to=onnx.TensorProto.FLOAT)
    padding = graph.node("Sub", "mask.sub", [operators.scalar(graph, 1.0), floats], shape)
    return operators.multiply(graph, "mask", padding, operators.scalar(graph, float(np.finfo(np.float32).min)))


def _embeddings(graph: GraphBuilder, rng: np.random.Generator, ids: Value, *, words: int, hidden: int) -> Value:
    """Words, positions and the sort of the sentence, added up and normalised."""
    batch, tokens = ids.shape
    shape = (batch, tokens, hidden)
    tables = {
        name: graph.parameter(f"embeddings.{name}.weight", weights.scaled_normal(rng, (rows, hidden), gain=hidden**0.5))
        for name, rows in (("words", words), ("positions", POSITIONS), ("sorts", 2))
    }
    places = graph.constant(np.arange(tokens, dtype=np.int64)[np.newaxis])
    sorts = graph.constant(np.zeros((batch, tokens), np.int64))
    word = graph.node("Gather", "embeddings.words", [tables["words"], ids], shape, axis=0)
    place = graph.node("Gather", "embeddings.positions", [tables["positions"], places], (1, tokens, hidden), axis=0)
    sort = graph.node("Gather", "embeddings.sorts", [tables["sorts"], sorts], shape, axis=0)
    x = operators.add(graph, "embeddings.add1", operators.add(graph, "embeddings.add0", word, sort), place)
    return layers_of.layer_norm(graph, rng, "embeddings.norm", x, epsilon=EPSILON)


def _attention(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, mask: Value, heads: int) -> Value:
    size = operators.scalar(graph, sqrt(x.shape[-1] // heads))

    def scaled_and_masked(name: str, scores: Value) -> Value:
        scaled = graph.node("Div", f"{name}.scale", [scores, size], scores.shape)
        return operators.add(graph, f"{name}.mask", scaled, mask)

    return layers_of.self_attention(graph, rng, name, x, heads, of_scores=scaled_and_masked)
