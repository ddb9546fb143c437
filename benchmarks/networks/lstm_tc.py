"""LSTM-TC, a stack of LSTM layers that ends in its last output; of the Rammer paper (OSDI 2020, section 5)."""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder

STEPS = 100
HIDDEN = 256


def build(
    *, seed: int = 0, batch: int = 1, steps: int = STEPS, layers: int = 10, hidden: int = HIDDEN
) -> onnx.ModelProto:
    """`layers` LSTM layers of `hidden` units, from zero states.

    Input `sequence` (steps, batch, hidden), output (batch, hidden), the top layer's output at the last step;
    float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("lstm_tc")
    x = graph.input("sequence", (steps, batch, hidden))
    stack = weights.lstm_stack(rng, layers=layers, inputs=hidden, hidden=hidden)
    top = operators.lstm_stack(graph, "lstm", x, stack)
    return graph.build(operators.squeeze(graph, "last", top.hidden, 0))
