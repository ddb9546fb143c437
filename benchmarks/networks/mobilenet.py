"""MobileNetV2 for ImageNet (Sandler et al. 2018): inverted residual blocks around depthwise convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.networks import operators
from benchmarks.networks.builder import GraphBuilder, Value
from benchmarks.networks.convolution_layers import classifier, conv_norm


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`count` blocks of `channels` channels that are `expansion` times as wide inside; the first has the stride."""

    expansion: int
    channels: int
    count: int
    stride: int


STAGES = tuple(
    Stage(expansion=expansion, channels=channels, count=count, stride=stride)
    for expansion, channels, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
)
STEM_CHANNELS = 32


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
    graph = GraphBuilder("mobilenet")
    x = graph.input("image", (batch, 3, image, image))
    x = _relu6(graph, "stem.relu", conv_norm(graph, rng, "stem", x, STEM_CHANNELS, kernel=3, stride=2))
    for number, stage in enumerate(STAGES[:stages]):
        for block in range(stage.count):
            x = _block(graph, rng, f"stages.{number}.{block}", x, stage, stage.stride if block == 0 else 1)
    x = _relu6(graph, "last.relu", conv_norm(graph, rng, "last", x, last))
    return graph.build(classifier(graph, rng, x, classes))


def _block(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, stage: Stage, stride: int) -> Value:
    inner = stage.expansion * x.shape[1]
    y = x
    if stage.expansion > 1:
        y = _relu6(graph, f"{name}.expand.relu", conv_norm(graph, rng, f"{name}.expand", y, inner))
    y = conv_norm(graph, rng, f"{name}.depthwise", y, inner, kernel=3, stride=stride, groups=inner)
    y = _relu6(graph, f"{name}.depthwise.relu", y)
    y = conv_norm(graph, rng, f"{name}.project", y, stage.channels, gain=1.0)
    return operators.add(graph, f"{name}.add", x, y) if x.shape == y.shape else y


def _relu6(graph: GraphBuilder, name: str, x: Value) -> Value:
    return operators.clip(graph, name, x, low=0.0, high=6.0)
