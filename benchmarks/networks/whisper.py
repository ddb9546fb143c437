"""The encoder of Whisper-tiny (Radford et al. 2022): two convolutions over time and a transformer."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks import transformer_layers as layers_of
from benchmarks.networks.builder import Float32, GraphBuilder, Value

EPSILON = 1e-5
BANDS = 80


def build(
    *, seed: int = 0, batch: int = 1, frames: int = 3000, layers: int = 4, hidden: int = 384, heads: int = 6
) -> onnx.ModelProto:
    """Half as many positions as `frames`, through `layers` layers that normalise first.

    Input `spectrogram` (batch, 80, frames), output (batch, frames / 2, hidden), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("whisper")
    x = graph.input("spectrogram", (batch, BANDS, frames))
    for index, stride in enumerate((1, 2), start=1):
        kernel = weights.scaled_normal(rng, (hidden, x.shape[1], 3))
        bias = weights.bias(rng, hidden)
        x = operators.conv(graph, f"conv{index}", x, kernel, bias=bias, stride=(stride,), pad=(1,))
        x = operators.gelu(graph, f"gelu{index}", x)
    x = operators.transpose(graph, "steps", x, (0, 2, 1))
    positions = graph.parameter("positions", _sinusoids(*x.shape[1:]))
    x = operators.add(graph, "embedded", x, positions)
    for layer in range(layers):
        name = f"layers.{layer}"
        y = layers_of.layer_norm(graph, rng, f"{name}.norm1", x, epsilon=EPSILON)
        x = operators.add(graph, f"{name}.add1", x, _attention(graph, rng, f"{name}.attention", y, heads))
        y = layers_of.layer_norm(graph, rng, f"{name}.norm2", x, epsilon=EPSILON)
        x = operators.add(graph, f"{name}.add2", x, layers_of.mlp(graph, rng, f"{name}.mlp", y, 4 * hidden))
    return graph.build(layers_of.layer_norm(graph, rng, "norm", x, epsilon=EPSILON))


def _sinusoids(steps: int, width: int) -> Float32:
    """Sines, then cosines, of wavelengths from 2 pi to 10,000 times that; (steps, width)."""
    rates = 10_000.0 ** -np.linspace(0.0, 1.0, width // 2)
    angles = np.arange(steps)[:, np.newaxis] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def _attention(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, heads: int) -> Value:
    scale = operators.scalar(graph, (x.shape[-1] // heads) ** -0.5)

    def scaled(name: str, queries: Value) -> Value:
        return operators.multiply(graph, f"{name}.scale", queries, scale)

    return layers_of.self_attention(graph, rng, name, x, heads, of_queries=scaled, biased_keys=False)
