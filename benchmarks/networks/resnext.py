"""ResNeXt-29 16x64d for CIFAR-10, as the Rammer paper measured it (OSDI 2020, section 5).

The branches stay separate, as in figure 3(b) of Xie et al. 2017. Branches are equally wide in all stages,
only the block outputs double. Where a stage halves the resolution, the shortcut is an average pool whose
channels are padded with zeros on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import Float32, GraphBuilder, Shape, Value
from benchmarks.networks.weights import BatchNormWeights

STAGE_CHANNELS = (64, 128, 256)
EPSILON = 1e-3


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    blocks: int = 3,
    cardinality: int = 16,
    width: int = 64,
    classes: int = 10,
    grouped: bool = False,
) -> onnx.ModelProto:
    """Three stages of `blocks` blocks, each of `cardinality` branches that are `width` channels wide.

    `grouped` expresses the same weights with one wide branch, whose 3x3 convolution has `cardinality` groups.
    Input `image` (batch, 3, 32, 32), output (batch, classes), float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("resnext")
    x = graph.input("image", (batch, 3, 32, 32))

    x = operators.conv(graph, "conv", x, weights.scaled_normal(rng, (STAGE_CHANNELS[0], 3, 3, 3)), pad=(1, 1))
    x = operators.batch_norm(graph, "bn", x, weights.batch_norm(rng, STAGE_CHANNELS[0]), epsilon=EPSILON)
    x = operators.relu(graph, "relu", x)
    for stage, channels in enumerate(STAGE_CHANNELS):
        for block in range(blocks):
            branches = [_Branch.random(rng, inputs=x.shape[1], width=width) for _ in range(cardinality)]
            if grouped:
                branches = [_Branch.merge(branches)]
            # The residual sum adds two second moments; a gain of one here keeps their growth slow.
            merge = weights.scaled_normal(rng, (channels, cardinality * width, 1, 1), gain=1.0)
            merge_bn = weights.batch_norm(rng, channels)
            x = _block(graph, f"stages.{stage}.{block}", x, branches, merge, merge_bn)
    x = operators.global_average(graph, "pool", x)
    fc = weights.scaled_normal(rng, (classes, STAGE_CHANNELS[-1]))
    return graph.build(operators.linear(graph, "fc", x, fc))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """A 1x1 and a 3x3 convolution, each with its batch normalisation; the 3x3 one in `groups` groups."""

    conv1: Float32
    bn1: BatchNormWeights
    conv2: Float32
    bn2: BatchNormWeights
    groups: int

    @classmethod
    def random(cls, rng: np.random.Generator, *, inputs: int, width: int) -> _Branch:
        return cls(
            conv1=weights.scaled_normal(rng, (width, inputs, 1, 1)),
            bn1=weights.batch_norm(rng, width),
            conv2=weights.scaled_normal(rng, (width, width, 3, 3)),
            bn2=weights.batch_norm(rng, width),
            groups=1,
        )

    @classmethod
    def merge(cls, branches: Sequence[_Branch]) -> _Branch:
        """The one branch that computes the concatenated outputs of `branches`."""
        return cls(
            conv1=np.concatenate([branch.conv1 for branch in branches]),
            bn1=BatchNormWeights.concatenate([branch.bn1 for branch in branches]),
            conv2=np.concatenate([branch.conv2 for branch in branches]),
            bn2=BatchNormWeights.concatenate([branch.bn2 for branch in branches]),
            groups=len(branches),
        )


def _block(
    graph: GraphBuilder,
    name: str,
    x: Value,
    branches: Sequence[_Branch],
    merge: Float32,
    merge_bn: BatchNormWeights,
) -> Value:
    shrinks = merge.shape[0] != x.shape[1]
    outputs = [
        _branch(graph, f"{name}.branches.{index}", x, branch, stride=2 if shrinks else 1)
        for index, branch in enumerate(branches)
    ]
    y = outputs[0] if len(outputs) == 1 else operators.concat_channels(graph, f"{name}.concat", outputs)
    y = operators.conv(graph, f"{name}.conv", y, merge)
    y = operators.batch_norm(graph, f"{name}.bn", y, merge_bn, epsilon=EPSILON)
    shortcut = _shrink(graph, f"{name}.shortcut", x, y.shape) if shrinks else x
    return operators.relu(graph, f"{name}.relu", operators.add(graph, f"{name}.add", y, shortcut))


def _branch(graph: GraphBuilder, name: str, x: Value, branch: _Branch, *, stride: int) -> Value:
    x = operators.conv(graph, f"{name}.conv1", x, branch.conv1, stride=(stride, stride))
    x = operators.batch_norm(graph, f"{name}.bn1", x, branch.bn1, epsilon=EPSILON)
    x = operators.relu(graph, f"{name}.relu1", x)
    x = operators.conv(graph, f"{name}.conv2", x, branch.conv2, pad=(1, 1), groups=branch.groups)
    x = operators.batch_norm(graph, f"{name}.bn2", x, branch.bn2, epsilon=EPSILON)
    return operators.relu(graph, f"{name}.relu2", x)


def _shrink(graph: GraphBuilder, name: str, x: Value, shape: Shape) -> Value:
    pooled = operators.pool(graph, "AveragePool", f"{name}.pool", x, kernel=2, stride=2)
    margin = (shape[1] - x.shape[1]) // 2
    pads = graph.integers(0, margin, 0, 0, 0, margin, 0, 0)
    return graph.node("Pad", f"{name}.pad", [pooled, pads], shape, mode="constant")
