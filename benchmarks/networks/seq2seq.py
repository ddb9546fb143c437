"""Seq2Seq, an LSTM encoder and a decoder that reads its own output; of the Rammer paper (OSDI 2020, section 5).

The encoder hands over one tensor: the cell state of its top layer after the last step is the decoder's first
input (the cell state and not the output, because it comes first in the state that TensorFlow returns, and the
released scripts take that). All decoder layers start from zero states. The feedback makes every step depend
on the one before in all layers, so the decoder is unrolled: one LSTM operator of a single step for each step
and layer, or the products and elementwise operators that exporters write for a cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from benchmarks.networks import operators, weights
from benchmarks.networks.builder import GraphBuilder, Value
from benchmarks.networks.weights import LstmWeights

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
    cells: bool = False,
) -> onnx.ModelProto:
    """An encoder of `layers` layers over `steps` steps, a decoder of `decoder_layers` over `decoder_steps`.

    Input `sequence` (steps, batch, hidden), output (batch, hidden), the decoder's output at its last step;
    float32. `cells` expresses the decoder's layers without LSTM operators, by the same weights.
    """
    rng = np.random.default_rng(seed)
    graph = GraphBuilder("seq2seq")
    x = graph.input("sequence", (steps, batch, hidden))
    encoder = weights.lstm_stack(rng, layers=layers, inputs=hidden, hidden=hidden)
    x = operators.lstm_stack(graph, "encoder", x, encoder).cell
    decoder = weights.lstm_stack(rng, layers=decoder_layers, inputs=hidden, hidden=hidden)
    decode = _decoded_by_cells if cells else _decoded
    return graph.build(decode(graph, x, decoder, decoder_steps))


def _decoded(graph: GraphBuilder, x: Value, layers: Sequence[LstmWeights], steps: int) -> Value:
    """The last output of the decoder from its first input (1, batch, hidden), by LSTM operators."""
    decoder = [
        operators.lstm_parameters(graph, f"decoder.l{layer}", layer_weights)
        for layer, layer_weights in enumerate(layers)
    ]
    states: list[operators.LstmOutput | None] = [None] * len(layers)
    for step in range(steps):
        for layer, parameters in enumerate(decoder):
            output = operators.lstm(graph, f"decoder.step{step}.l{layer}", x, parameters, initial=states[layer])
            states[layer] = output
            x = output.sequence
    return operators.squeeze(graph, "last", x, 0)


def _decoded_by_cells(graph: GraphBuilder, x: Value, layers: Sequence[LstmWeights], steps: int) -> Value:
    """As `_decoded`, by products and elementwise operators."""
    decoder = [
        operators.lstm_cell_parameters(graph, f"decoder.l{layer}", layer_weights)
        for layer, layer_weights in enumerate(layers)
    ]
    x = operators.squeeze(graph, "first", x, 0)
    zeros = graph.constant(np.zeros(x.shape, np.float32))
    states = [(zeros, zeros)] * len(layers)
    for step in range(steps):
        for layer, parameters in enumerate(decoder):
            states[layer] = operators.lstm_cell(graph, f"decoder.step{step}.l{layer}", x, parameters, *states[layer])
            x, _ = states[layer]
    return x
