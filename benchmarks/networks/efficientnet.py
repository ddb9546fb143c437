"""EfficientNet-B0 for ImageNet (Tan and Le 2019): inverted residual blocks with gates over their channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder, Value
from benchmarks.networks.convolution_layers import classifier, conv_norm

STEM_CHANNELS = 32
SQUEEZE = 4
SILU_GAIN = 1.7
"""Makes up for what a SiLU on the input takes away of the second moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`count` blocks of `channels` channels that are `expansion` times as wide inside; the first has the stride."""

    expansion: int
    kernel: int
    channels: int
    count: int
    stride: int


STAGES = tuple(
    Stage(expansion=expansion, kernel=kernel, channels=channels, count=count, stride=stride)
    for expansion, kernel, channels, count, stride in (
        (1, 3, 16, 1, 1),
        (6, 3, 24, 2, 2),
        (6, 5, 40, 2, 2),
        (6, 3, 80, 3, 2),
        (6, 5, 112, 3, 1),
        (6, 5, 192, 4, 2),
        (6, 3, 320, 1, 1),
    )
)


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    image: int = 224,
    stages: int = len(STAGES),
    last: int = 1280,
    classes: int = 1000,
) -> onnx.ModelProto:
    """The first `stages` of `STAGES`, a convolution to `last` channels, and a linear layer.

    Input `image` (batch, 3, image, image), output (batch, classes), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("efficientnet")
    x = graph.input("image", (batch, 3, image, image))
    x = operators.silu(graph, "stem.silu", conv_norm(graph, rng, "stem", x, STEM_CHANNELS, kernel=3, stride=2))
    for number, stage in enumerate(STAGES[:stages]):
        for block in range(stage.count):
            x = _block(graph, rng, f"stages.{number}.{block}", x, stage, stage.stride if block == 0 else 1)
    x = operators.silu(graph, "last.silu", conv_norm(graph, rng, "last", x, last))
    return graph.build(classifier(graph, rng, x, classes))


def _block(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, stage: Stage, stride: int) -> Value:
    inner = stage.expansion * x.shape[1]
    y = x
    if stage.expansion > 1:
        y = operators.silu(graph, f"{name}.expand.silu", conv_norm(graph, rng, f"{name}.expand", y, inner))
    y = conv_norm(
        graph,
        rng,
        f"{name}.depthwise",
        y,
        inner,
        kernel=stage.kernel,
        stride=stride,
        groups=inner,
        gain=SILU_GAIN,
    )
    y = operators.silu(graph, f"{name}.depthwise.silu", y)
    y = operators.multiply(graph, f"{name}.gated", y, _gate(graph, rng, f"{name}.gate", y, x.shape[1] // SQUEEZE))
    y = conv_norm(graph, rng, f"{name}.project", y, stage.channels, gain=SILU_GAIN)
    return operators.add(graph, f"{name}.add", x, y) if x.shape == y.shape else y


def _gate(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, squeezed: int) -> Value:
    """A factor for each channel, from the averages of all: (batch, channels, 1, 1)."""
    batch, channels, *_ = x.shape
    y = graph.node("GlobalAveragePool", f"{name}.pool", [x], (batch, channels, 1, 1))
    y = operators.silu(graph, f"{name}.silu", _pointwise(graph, rng, f"{name}.squeeze", y, squeezed))
    return operators.sigmoid(graph, f"{name}.sigmoid", _pointwise(graph, rng, f"{name}.excite", y, channels))


def _pointwise(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, outputs: int) -> Value:
    weight = weights.scaled_normal(rng, (outputs, x.shape[1], 1, 1))
    return operators.conv(graph, name, x, weight, bias=weights.bias(rng, outputs))
