"""Seq2Seq, an LSTM encoder and a decoder that reads its own output; of the Rammer paper (OSDI 2020, section 5).

The encoder hands over one tensor: the cell state of its top layer after the last step is the decoder's first
input (the cell state and not the output, because it comes first in the state that TensorFlow returns, and the
released scripts take that). All decoder layers start from zero states. The feedback makes every step depend
on the one before in all layers, so the decoder is unrolled: one LSTM operator of a single step for each step
and layer.
"""

from __future__ import annotations

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder

STEPS = 100
HIDDEN = 128


def build(
    *,
    seed: int = 0,
    batch: int = 1,
    steps: int = STEPS,
    layers: int = 8,
    decoder_steps: int = 30,
    decoder_layers: int = 4,
    hidden: int = HIDDEN,
) -> onnx.ModelProto:
    """An encoder of `layers` layers over `steps` steps, a decoder of `decoder_layers` over `decoder_steps`.

    Input `sequence` (steps, batch, hidden), output (batch, hidden), the decoder's output at its last step;
    float32.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("seq2seq")
    x = graph.input("sequence", (steps, batch, hidden))
    encoder = weights.lstm_stack(rng, layers=layers, inputs=hidden, hidden=hidden)
    x = operators.lstm_stack(graph, "encoder", x, encoder).cell

    decoder = [
        operators.lstm_parameters(graph, f"decoder.l{layer}", layer_weights)
        for layer, layer_weights in enumerate(
            weights.lstm_stack(rng, layers=decoder_layers, inputs=hidden, hidden=hidden)
        )
    ]
    states: list[operators.LstmOutput | None] = [None] * decoder_layers
    for step in range(decoder_steps):
        for layer, parameters in enumerate(decoder):
            output = operators.lstm(graph, f"decoder.step{step}.l{layer}", x, parameters, initial=states[layer])
            states[layer] = output
            x = output.sequence
    return graph.build(operators.squeeze(graph, "last", x, 0))
