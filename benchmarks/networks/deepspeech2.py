"""DeepSpeech2 with one-way LSTM layers, as the Rammer paper measured it (OSDI 2020, section 5).

Spectrograms come channels last, so the graph begins with the transpose that an exporter inserts. The clipped
ReLU stands between each convolution and its batch normalisation. A last batch normalisation precedes the
linear layer.
"""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder, Value

FRAMES = 300
FREQUENCIES = 171
CHANNELS = 32
EPSILON = 1e-5


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    frames: int = FRAMES,
    layers: int = 7,
    hidden: int = 256,
    classes: int = 29,
) -> onnx.ModelProto:
    """Two convolutions, `layers` LSTM layers of `hidden` units from zero states, a linear layer for each step.

    Input `spectrogram` (batch, frames, 171, 1), output (steps, batch, classes), float32. The strides take
    `frames` to a quarter as many steps: 300 to 75.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("deepspeech2")
    x = graph.input("spectrogram", (batch, frames, FREQUENCIES, 1))
    x = operators.transpose(graph, "channels_first", x, (0, 3, 1, 2))
    x = _convolution(graph, rng, 0, x, kernel=(41, 11), stride=(2, 2), pad=(20, 5))
    x = _convolution(graph, rng, 1, x, kernel=(21, 11), stride=(2, 1), pad=(10, 5))

    _, channels, steps, frequencies = x.shape
    x = operators.transpose(graph, "steps_first", x, (2, 0, 3, 1))
    x = operators.reshape(graph, "features", x, (steps, batch, frequencies * channels))
    stack = weights.lstm_stack(rng, layers=layers, inputs=x.shape[2], hidden=hidden)
    x = operators.lstm_stack(graph, "lstm", x, stack).sequence

    x = operators.reshape(graph, "rows", x, (steps * batch, hidden))
    x = operators.batch_norm(graph, "bn", x, weights.batch_norm(rng, hidden), epsilon=EPSILON)
    fc = weights.scaled_normal(rng, (classes, hidden), gain=1.0)
    x = operators.linear(graph, "fc", x, fc, bias=weights.bias(rng, classes))
    return graph.build(operators.reshape(graph, "logits", x, (steps, batch, classes)))


def _convolution(
    graph: GraphBuilder,
    rng: np.random.Generator,
    index: int,
    x: Value,
    *,
    kernel: operators.Pair,
    stride: operators.Pair,
    pad: operators.Pair,
) -> Value:
    weight = weights.scaled_normal(rng, (CHANNELS, x.shape[1], *kernel))
    x = operators.conv(graph, f"convs.{index}", x, weight, stride=stride, pad=pad)
    x = operators.clip(graph, f"relu6.{index}", x, low=0.0, high=6.0)
    return operators.batch_norm(graph, f"bns.{index}", x, weights.batch_norm(rng, CHANNELS), epsilon=EPSILON)
