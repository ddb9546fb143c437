"""AlexNet for ImageNet in one tower (Krizhevsky 2014), a network of the Rammer paper (OSDI 2020, section 5).

The fourth convolution has 256 channels, as in the one-tower paper and in torchvision. The scripts released
with the Rammer paper give it 384, as TensorFlow's benchmark suite does: `channels=(64, 192, 384, 384, 256)`
builds that one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder, Value

CHANNELS = (64, 192, 384, 256, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A convolution's window and whether a 3x3 max pool of stride 2 follows its ReLU."""

    kernel: int
    stride: int
    pad: int
    pooled: bool


WINDOWS = (
    Window(kernel=11, stride=4, pad=2, pooled=True),
    Window(kernel=5, stride=1, pad=2, pooled=True),
    Window(kernel=3, stride=1, pad=1, pooled=False),
    Window(kernel=3, stride=1, pad=1, pooled=False),
    Window(kernel=3, stride=1, pad=1, pooled=True),
)


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    channels: tuple[int, int, int, int, int] = CHANNELS,
    hidden: int = 4096,
    classes: int = 1000,
) -> onnx.ModelProto:
    """Five convolutions and three linear layers, two of them `hidden` wide; without dropout.

    Input `image` (batch, 3, 224, 224), output (batch, classes), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("alexnet")
    x = graph.input("image", (batch, 3, 224, 224))
    for index, (outputs, window) in enumerate(zip(channels, WINDOWS, strict=True)):
        x = _convolution(graph, rng, f"features.{index}", x, outputs, window)
    x = operators.flatten(graph, "flatten", x)
    for index in range(2):
        x = _linear(graph, rng, f"classifier.{index}", x, hidden)
        x = operators.relu(graph, f"classifier.{index}.relu", x)
    return graph.build(_linear(graph, rng, "classifier.2", x, classes))


def _convolution(
    graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, outputs: int, window: Window
) -> Value:
    x = operators.conv(
        graph,
        name,
        x,
        weights.scaled_normal(rng, (outputs, x.shape[1], window.kernel, window.kernel)),
        bias=weights.bias(rng, outputs),
        stride=(window.stride, window.stride),
        pad=(window.pad, window.pad),
    )
    x = operators.relu(graph, f"{name}.relu", x)
    return operators.pool(graph, "MaxPool", f"{name}.pool", x, kernel=3, stride=2) if window.pooled else x


def _linear(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, outputs: int) -> Value:
    weight = weights.scaled_normal(rng, (outputs, x.shape[1]))
    return operators.linear(graph, name, x, weight, bias=weights.bias(rng, outputs))
