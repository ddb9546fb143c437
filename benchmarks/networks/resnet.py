"""ResNets and ResNeXts for ImageNet (He et al. 2016, Xie et al. 2017).

The stride is in a bottleneck's 3x3 convolution, as libraries have it.
"""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks import operators
from benchmarks.networks.builder import GraphBuilder, Value
from benchmarks.networks.convolution_layers import classifier, conv_norm

EXPANSION = 4


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    image: int = 224,
    blocks: tuple[int, ...] = (3, 4, 6, 3),
    width: int = 64,
    groups: int = 1,
    group_width: int = 64,
    classes: int = 1000,
    bottleneck: bool = True,
) -> onnx.ModelProto:
    """ResNet-50; ResNet-18 without bottlenecks and with blocks (2, 2, 2, 2).

    With `groups`, a bottleneck's 3x3 convolution of the first stage has so many, `group_width` channels wide where
    `width` is 64: ResNeXt-101 64x4d has blocks (3, 4, 23, 3), 64 groups and a width of 4.

    Input `image` (batch, 3, image, image), output (batch, classes), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("resnet")
    x = graph.input("image", (batch, 3, image, image))
    x = operators.relu(graph, "stem.relu", conv_norm(graph, rng, "stem", x, width, kernel=7, stride=2))
    x = operators.pool(graph, "MaxPool", "stem.pool", x, kernel=3, stride=2, pad=1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            name, outputs = f"stages.{stage}.{block}", width << stage
            if bottleneck:
                inner = outputs * group_width // 64 * groups
                x = _bottleneck(graph, rng, name, x, outputs, stride, inner, groups)
            else:
                x = _basic_block(graph, rng, name, x, outputs, stride)
    return graph.build(classifier(graph, rng, x, classes))


def _bottleneck(
    graph: GraphBuilder,
    rng: np.random.Generator,
    name: str,
    x: Value,
    width: int,
    stride: int,
    inner: int,
    groups: int,
) -> Value:
    """A block with `EXPANSION` times `width` results, whose 3x3 convolution has `inner` channels in `groups`."""
    y = operators.relu(graph, f"{name}.relu1", conv_norm(graph, rng, f"{name}.conv1", x, inner))
    y = conv_norm(graph, rng, f"{name}.conv2", y, inner, kernel=3, stride=stride, groups=groups)
    y = operators.relu(graph, f"{name}.relu2", y)
    outputs = EXPANSION * width
    y = conv_norm(graph, rng, f"{name}.conv3", y, outputs, gain=0.5)  # the sums of many blocks grow slowly
    if x.shape != y.shape:
        x = conv_norm(graph, rng, f"{name}.shortcut", x, outputs, stride=stride, gain=1.0)
    return operators.relu(graph, f"{name}.relu3", operators.add(graph, f"{name}.add", y, x))


def _basic_block(graph: GraphBuilder, rng: np.random.Generator, name: str, x: Value, width: int, stride: int) -> Value:
    y = conv_norm(graph, rng, f"{name}.conv1", x, width, kernel=3, stride=stride)
    y = operators.relu(graph, f"{name}.relu1", y)
    y = conv_norm(graph, rng, f"{name}.conv2", y, width, kernel=3, gain=0.5)  # the sums of many blocks grow slowly
    if x.shape != y.shape:
        x = conv_norm(graph, rng, f"{name}.shortcut", x, width, stride=stride, gain=1.0)
    return operators.relu(graph, f"{name}.relu2", operators.add(graph, f"{name}.add", y, x))
