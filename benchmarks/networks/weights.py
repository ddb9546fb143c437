"""Random float32 weights, scaled so that activations neither explode nor vanish through a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from benchmarks.networks.builder import Float32

RELU_GAIN = sqrt(2.0)
"""Makes up for the half of the second moment that a ReLU on the input takes away (He et al. 2015)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNormWeights:
    """Parameters and running statistics of one batch normalisation, each of shape (channels,)."""

    scale: Float32
    bias: Float32
    mean: Float32
    variance: Float32

    @classmethod
    def concatenate(cls, parts: Sequence[BatchNormWeights]) -> BatchNormWeights:
        """The normalisation of the parts' channels one after the other."""
        return cls(
            scale=np.concatenate([part.scale for part in parts]),
            bias=np.concatenate([part.bias for part in parts]),
            mean=np.concatenate([part.mean for part in parts]),
            variance=np.concatenate([part.variance for part in parts]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNormWeights:
    """Parameters of one layer normalisation, each of shape (size,)."""

    scale: Float32
    bias: Float32


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmWeights:
    """One LSTM layer in ONNX layout, gates in the order input, output, forget, cell.

    `w` is (1, 4 * hidden, inputs), `r` is (1, 4 * hidden, hidden), `b` is (1, 8 * hidden): input biases, then
    recurrent.
    """

    w: Float32
    r: Float32
    b: Float32


def scaled_normal(rng: np.random.Generator, shape: tuple[int, ...], *, gain: float = RELU_GAIN) -> Float32:
    """A weight of shape (out, in, *kernel) with standard deviation gain / sqrt(in * prod(kernel))."""
    values = rng.standard_normal(shape, dtype=np.float32)
    return values * np.float32(gain / sqrt(prod(shape[1:])))


def bias(rng: np.random.Generator, size: int) -> Float32:
    """A bias vector with standard deviation 0.1."""
    return rng.standard_normal(size, dtype=np.float32) * np.float32(0.1)


def batch_norm(rng: np.random.Generator, channels: int) -> BatchNormWeights:
    """Statistics near, but never at, those of an identity."""
    return BatchNormWeights(
        scale=rng.uniform(0.75, 1.25, channels).astype(np.float32),
        bias=bias(rng, channels),
        mean=bias(rng, channels),
        variance=rng.uniform(0.75, 1.25, channels).astype(np.float32),
    )


def layer_norm(rng: np.random.Generator, size: int) -> LayerNormWeights:
    """A scale and a bias near, but never at, those of an identity."""
    return LayerNormWeights(scale=rng.uniform(0.75, 1.25, size).astype(np.float32), bias=bias(rng, size))


def lstm(rng: np.random.Generator, *, inputs: int, hidden: int) -> LstmWeights:
    """One layer with weights of standard deviation 1 / sqrt(fan in) and the usual forget bias of one.

    At this scale the output of a deep stack still depends on its first steps, yet small differences do not
    grow. At twice the scale the recurrence is chaotic, and no two correct implementations would agree.
    """
    b = bias(rng, 8 * hidden)
    b[2 * hidden : 3 * hidden] += np.float32(1.0)
    return LstmWeights(
        w=scaled_normal(rng, (4 * hidden, inputs), gain=1.0)[np.newaxis],
        r=scaled_normal(rng, (4 * hidden, hidden), gain=1.0)[np.newaxis],
        b=b[np.newaxis],
    )


def lstm_stack(rng: np.random.Generator, *, layers: int, inputs: int, hidden: int) -> tuple[LstmWeights, ...]:
    """Layers of one hidden size, of which only the first reads `inputs` features."""
    return tuple(lstm(rng, inputs=inputs if layer == 0 else hidden, hidden=hidden) for layer in range(layers))
