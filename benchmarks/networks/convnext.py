"""ConvNeXt-tiny for ImageNet (Liu et al. 2022): depthwise convolutions, and MLPs over channels that lie innermost."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks import transformer_layers as layers_of
from benchmarks.networks.builder import GraphBuilder, Value

EPSILON = 1e-6
_CHANNELS_LAST, _CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    image: int = 224,
    blocks: tuple[int, ...] = (3, 3, 9, 3),
    width: int = 96,
    classes: int = 1000,
) -> onnx.ModelProto:
    """Stages of `blocks` blocks, each twice as wide as the one before at half its resolution.

    Input `image` (batch, 3, image, image), output (batch, classes), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("convnext")
    x = _windows(graph, rng, "stem.conv", graph.input("image", (batch, 3, image, image)), width, 4)
    x = _layer_norm(graph, rng, "stem.norm", x)
    for stage, count in enumerate(blocks):
        if stage > 0:
            y = _layer_norm(graph, rng, f"shrink.{stage}.norm", x)
            x = _windows(graph, rng, f"shrink.{stage}.conv", y, width << stage, 2)
        for block in range(count):
            x = _block(graph, rng, f"stages.{stage}.{block}", x)
    batch, channels, *_ = x.shape
    x = graph.node("GlobalAveragePool", "pool", [x], (batch, channels, 1, 1))
    x = operators.flatten(graph, "flatten", _layer_norm(graph, rng, "norm", x))
    head = weights.scaled_normal(rng, (classes, channels))
    return graph.build(operators.linear(graph, "head", x, head, bias=weights.bias(rng, classes)))


def _windows(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, outputs: int, size: int) -> Value:
    """A convolution whose windows lie side by side."""
    weight = weights.scaled_normal(rng, (outputs, x.shape[1], size, size), gain=1.0)
    return operators.conv(graph, name, x, weight, bias=weights.bias(rng, outputs), stride=(size, size))


def _layer_norm(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value) -> Value:
    """Normalisation over the channels of each pixel."""
    y = operators.transpose(graph, f"{name}.last", x, _CHANNELS_LAST)
    y = layers_of.layer_norm(graph, rng, name, y, epsilon=EPSILON)
    return operators.transpose(graph, f"{name}.first", y, _CHANNELS_FIRST)


def _block(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value) -> Value:
    channels = x.shape[1]
    weight, bias = weights.scaled_normal(rng, (channels, 1, 7, 7), gain=1.0), weights.bias(rng, channels)
    y = operators.conv(graph, f"{name}.depthwise", x, weight, bias=bias, pad=(3, 3), groups=channels)
    y = operators.transpose(graph, f"{name}.last", y, _CHANNELS_LAST)
    y = layers_of.layer_norm(graph, rng, f"{name}.norm", y, epsilon=EPSILON)
    y = layers_of.mlp(graph, rng, f"{name}.mlp", y, 4 * channels)
    y = operators.transpose(graph, f"{name}.first", y, _CHANNELS_FIRST)
    scale = graph.parameter(f"{name}.scale", weights.bias(rng, channels).reshape(channels, 1, 1))
    return operators.add(graph, f"{name}.add", operators.multiply(graph, f"{name}.scaled", y, scale), x)
