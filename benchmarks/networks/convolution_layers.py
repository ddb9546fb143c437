"""What image networks repeat: convolutions with random weights, each with its batch normalisation."""

from __future__ import annotations

import numpy as np

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder, Value

EPSILON = 1e-5


def conv_norm(
    graph: GraphBuilder,
    rng: np.random.Generator,
    name: str,
    x: Value,
    outputs: int,
    *,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    gain: float = weights.RELU_GAIN,
) -> Value:
    """A square convolution that keeps the extents at stride 1, and its batch normalisation."""
    weight = weights.scaled_normal(rng, (outputs, x.shape[1] // groups, kernel, kernel), gain=gain)
    pad = kernel // 2
    x = operators.conv(graph, f"{name}.conv", x, weight, stride=(stride, stride), pad=(pad, pad), groups=groups)
    return operators.batch_norm(graph, f"{name}.bn", x, weights.batch_norm(rng, outputs), epsilon=EPSILON)


def classifier(graph: GraphBuilder, rng: np.random.Generator, x: Value, classes: int) -> Value:
    """A linear layer over the average of (batch, channels, height, width): the scores of `classes` classes."""
    x = operators.global_average(graph, "pool", x)
    head = weights.scaled_normal(rng, (classes, x.shape[1]))
    return operators.linear(graph, "head", x, head, bias=weights.bias(rng, classes))
