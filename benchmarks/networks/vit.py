"""ViT-B/16 (Dosovitskiy et al. 2021), a transformer over the patches of an image."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks import transformer_layers as layers_of
from benchmarks.networks.builder import GraphBuilder, Value

EPSILON = 1e-6


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    image: int = 224,
    patch: int = 16,
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    classes: int = 1000,
) -> onnx.ModelProto:
    """Patches of `patch` by `patch` pixels and a token for the class, through `layers` layers that normalise first.

    Input `image` (batch, 3, image, image), output (batch, classes), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("vit")
    x = _tokens(graph, rng, graph.input("image", (batch, 3, image, image)), patch=patch, hidden=hidden)
    for layer in range(layers):
        name = f"layers.{layer}"
        y = layers_of.layer_norm(graph, rng, f"{name}.norm1", x, epsilon=EPSILON)
        x = operators.add(graph, f"{name}.add1", _attention(graph, rng, f"{name}.attention", y, heads), x)
        y = layers_of.layer_norm(graph, rng, f"{name}.norm2", x, epsilon=EPSILON)
        x = operators.add(graph, f"{name}.add2", layers_of.mlp(graph, rng, f"{name}.mlp", y, 4 * hidden), x)
    x = layers_of.layer_norm(graph, rng, "norm", x, epsilon=EPSILON)
    first = graph.node("Gather", "first", [x, graph.constant(np.array(0))], (batch, hidden), axis=1)
    head = weights.scaled_normal(rng, (classes, hidden), gain=1.0)
    return graph.build(operators.linear(graph, "head", first, head, bias=weights.bias(rng, classes)))


def _tokens(graph: GraphBuilder, rng: np.random.Generator, image: Value, *, patch: int, hidden: int) -> Value:
    """(batch, 1 + patches, hidden): the class, and the patches, with their positions."""
    kernel = weights.scaled_normal(rng, (hidden, 3, patch, patch), gain=1.0)
    x = operators.conv(graph, "patches", image, kernel, bias=weights.bias(rng, hidden), stride=(patch, patch))
    batch, _, rows, columns = x.shape
    x = operators.reshape(graph, "patches.flat", x, (batch, hidden, rows * columns))
    x = operators.transpose(graph, "patches.rows", x, (0, 2, 1))
    label = graph.parameter("label", weights.bias(rng, hidden)[np.newaxis, np.newaxis])
    label = graph.node("Expand", "label.expand", [label, graph.integers(batch, 1, hidden)], (batch, 1, hidden))
    x = operators.concat(graph, "tokens", [label, x], 1)
    positions = rng.standard_normal((1, x.shape[1], hidden), dtype=np.float32)
    return operators.add(graph, "embedded", x, graph.parameter("positions", positions))


def _attention(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, heads: int) -> Value:
    scale = operators.scalar(graph, (x.shape[-1] // heads) ** -0.5)

    def scaled(name: str, scores: Value) -> Value:
        return operators.multiply(graph, f"{name}.scale", scores, scale)

    return layers_of.self_attention(graph, rng, name, x, heads, of_scores=scaled)
