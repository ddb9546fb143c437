"""The layers that the networks are made of, each written as the ONNX nodes an exporter would write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Literal

import numpy as np

from benchmarks.networks.builder import Float32, GraphBuilder, Shape, Value
from benchmarks.networks.weights import BatchNormWeights, LstmWeights

Pair = tuple[int, int]
Window = Sequence[int]
"""Extents, strides or pads of a window, for each spatial dimension."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LstmOutput:
    """One LSTM layer's `sequence` (steps, batch, hidden), and its last `hidden` and `cell` (1, batch, hidden)."""

    sequence: Value
    hidden: Value
    cell: Value


def _window_shape(shape: Shape, channels: int, kernel: Window, stride: Window, pad: Window) -> Shape:
    batch, _, *extents = shape
    windows = zip(extents, kernel, stride, pad, strict=True)
    return (batch, channels, *((extent + 2 * p - k) // s + 1 for extent, k, s, p in windows))


def conv(
    graph: GraphBuilder,
    name: str,
    x: Value,
    weight: Float32,
    *,
    bias: Float32 | None = None,
    stride: Window = (1, 1),
    pad: Window = (0, 0),
    groups: int = 1,
) -> Value:
    """A convolution of `x` (batch, in, height, width) by `weight` (out, in / groups, kernel height, kernel width).

    With strides and pads of one dimension, `x` is (batch, in, length) and `weight` (out, in / groups, kernel length).
    """
    out_channels, _, *kernel = weight.shape
    inputs = [x, graph.parameter(f"{name}.weight", weight)]
    if bias is not None:
        inputs.append(graph.parameter(f"{name}.bias", bias))
    return graph.node(
        "Conv",
        name,
        inputs,
        _window_shape(x.shape, out_channels, kernel, stride, pad),
        kernel_shape=kernel,
        strides=stride,
        pads=(*pad, *pad),
        group=groups,
    )


def pool(
    graph: GraphBuilder,
    op_type: Literal["MaxPool", "AveragePool"],
    name: str,
    x: Value,
    *,
    kernel: int,
    stride: int,
    pad: int = 0,
) -> Value:
    """A square pooling window; an average leaves the padding out of its count, ONNX's default."""
    shape = _window_shape(x.shape, x.shape[1], (kernel, kernel), (stride, stride), (pad, pad))
    return graph.node(
        op_type, name, [x], shape, kernel_shape=(kernel, kernel), strides=(stride, stride), pads=(pad,) * 4
    )


def global_average(graph: GraphBuilder, name: str, x: Value) -> Value:
    """The mean over all positions: (batch, channels, height, width) to (batch, channels)."""
    batch, channels, *_ = x.shape
    pooled = graph.node("GlobalAveragePool", name, [x], (batch, channels, 1, 1))
    return flatten(graph, f"{name}.flatten", pooled)


def batch_norm(graph: GraphBuilder, name: str, x: Value, weights: BatchNormWeights, *, epsilon: float) -> Value:
    """Batch normalisation with running statistics over axis 1."""
    parameters = {
        "weight": weights.scale,
        "bias": weights.bias,
        "running_mean": weights.mean,
        "running_var": weights.variance,
    }
    inputs = [x, *(graph.parameter(f"{name}.{key}", array) for key, array in parameters.items())]
    return graph.node("BatchNormalization", name, inputs, x.shape, epsilon=epsilon)


def relu(graph: GraphBuilder, name: str, x: Value) -> Value:
    """max(x, 0)."""
    return graph.node("Relu", name, [x], x.shape)


def clip(graph: GraphBuilder, name: str, x: Value, *, low: float, high: float) -> Value:
    """min(max(x, low), high)."""
    bounds = (graph.constant(np.array(bound, dtype=np.float32)) for bound in (low, high))
    return graph.node("Clip", name, [x, *bounds], x.shape)


def add(graph: GraphBuilder, name: str, a: Value, b: Value) -> Value:
    """a + b, where `b` broadcasts to `a`."""
    return graph.node("Add", name, [a, b], a.shape)


def multiply(graph: GraphBuilder, name: str, a: Value, b: Value) -> Value:
    """a * b, where `b` broadcasts to `a`."""
    return graph.node("Mul", name, [a, b], a.shape)


def sigmoid(graph: GraphBuilder, name: str, x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return graph.node("Sigmoid", name, [x], x.shape)


def silu(graph: GraphBuilder, name: str, x: Value) -> Value:
    """x * sigmoid(x), as exporters write it."""
    return multiply(graph, name, x, sigmoid(graph, f"{name}.sigmoid", x))


def gelu(graph: GraphBuilder, name: str, x: Value) -> Value:
    """x / 2 * (1 + erf(x / sqrt(2))), as exporters write it."""
    scaled = graph.node("Div", f"{name}.div", [x, scalar(graph, sqrt(2.0))], x.shape)
    error = graph.node("Erf", f"{name}.erf", [scaled], x.shape)
    shifted = graph.node("Add", f"{name}.add", [error, scalar(graph, 1.0)], x.shape)
    return multiply(graph, name, multiply(graph, f"{name}.mul", x, shifted), scalar(graph, 0.5))


def scalar(graph: GraphBuilder, number: float) -> Value:
    """A float32 constant without dimensions."""
    return graph.constant(np.array(number, np.float32))


def concat(graph: GraphBuilder, name: str, values: Sequence[Value], axis: int) -> Value:
    """Values joined along an axis."""
    first = values[0].shape
    extent = sum(value.shape[axis] for value in values)
    return graph.node("Concat", name, values, (*first[:axis], extent, *first[axis + 1 :]), axis=axis)


def concat_channels(graph: GraphBuilder, name: str, values: Sequence[Value]) -> Value:
    """Values of (batch, channels_i, ...) joined along axis 1."""
    return concat(graph, name, values, 1)


def linear(graph: GraphBuilder, name: str, x: Value, weight: Float32, *, bias: Float32 | None = None) -> Value:
    """x @ weight.T + bias for `x` (rows, in) and `weight` (out, in)."""
    inputs = [x, graph.parameter(f"{name}.weight", weight)]
    if bias is not None:
        inputs.append(graph.parameter(f"{name}.bias", bias))
    return graph.node("Gemm", name, inputs, (x.shape[0], weight.shape[0]), transB=1)


def flatten(graph: GraphBuilder, name: str, x: Value) -> Value:
    """(batch, ...) to (batch, product of the rest)."""
    return graph.node("Flatten", name, [x], (x.shape[0], prod(x.shape[1:])), axis=1)


def reshape(graph: GraphBuilder, name: str, x: Value, shape: Shape) -> Value:
    """`x` with the static shape `shape`."""
    return graph.node("Reshape", name, [x, graph.integers(*shape)], shape)


def transpose(graph: GraphBuilder, name: str, x: Value, permutation: Sequence[int]) -> Value:
    """`x` with its axes in the order `permutation`."""
    shape = tuple(x.shape[axis] for axis in permutation)
    return graph.node("Transpose", name, [x], shape, perm=permutation)


def squeeze(graph: GraphBuilder, name: str, x: Value, axis: int) -> Value:
    """`x` without `axis`, whose extent is one."""
    return graph.node("Squeeze", name, [x, graph.integers(axis)], x.shape[:axis] + x.shape[axis + 1 :])


def lstm_parameters(graph: GraphBuilder, name: str, weights: LstmWeights) -> tuple[Value, Value, Value]:
    """The initialisers W, R and B of one layer, which several `lstm` nodes may share."""
    arrays = {"W": weights.w, "R": weights.r, "B": weights.b}
    w, r, b = (graph.parameter(f"{name}.{key}", array) for key, array in arrays.items())
    return w, r, b


def lstm(
    graph: GraphBuilder,
    name: str,
    x: Value,
    parameters: tuple[Value, Value, Value],
    *,
    initial: LstmOutput | None = None,
) -> LstmOutput:
    """A forward LSTM layer over `x` (steps, batch, inputs), from the last states of `initial` or from zeros."""
    steps, batch, _ = x.shape
    hidden = parameters[1].shape[-1]
    states = [] if initial is None else [None, initial.hidden, initial.cell]
    outputs = {
        f"{name}.Y": (steps, 1, batch, hidden),
        f"{name}.Y_h": (1, batch, hidden),
        f"{name}.Y_c": (1, batch, hidden),
    }
    y, y_h, y_c = graph.multi_output_node("LSTM", name, [x, *parameters, *states], outputs, hidden_size=hidden)
    return LstmOutput(sequence=squeeze(graph, f"{name}.squeeze", y, 1), hidden=y_h, cell=y_c)


def lstm_stack(graph: GraphBuilder, name: str, x: Value, weights: Sequence[LstmWeights]) -> LstmOutput:
    """The top one's results of a stack of LSTM layers over `x` (steps, batch, inputs), each from zero states."""
    first, *rest = (
        lstm_parameters(graph, f"{name}.l{layer}", layer_weights) for layer, layer_weights in enumerate(weights)
    )
    output = lstm(graph, f"{name}.l0", x, first)
    for layer, parameters in enumerate(rest, start=1):
        output = lstm(graph, f"{name}.l{layer}", output.sequence, parameters)
    return output


def lstm_cell_parameters(graph: GraphBuilder, name: str, weights: LstmWeights) -> tuple[Value, Value, Value, Value]:
    """The initialisers of a PyTorch LSTMCell, which several `lstm_cell` may share: products and biases of x, of h."""
    of_input, of_state = np.split(weights.b[0], 2)
    arrays = {"weight_ih": weights.w[0], "weight_hh": weights.r[0], "bias_ih": of_input, "bias_hh": of_state}
    w, r, b, c = (graph.parameter(f"{name}.{key}", _pytorch_gates(array)) for key, array in arrays.items())
    return w, r, b, c


def lstm_cell(
    graph: GraphBuilder, name: str, x: Value, parameters: tuple[Value, Value, Value, Value], h: Value, c: Value
) -> tuple[Value, Value]:
    """The next h and c (batch, hidden), in the operators that PyTorch's exporter writes for an LSTMCell."""
    w, r, of_input, of_state = parameters
    batch, hidden = h.shape
    given = graph.node("Gemm", f"{name}.x", [x, w, of_input], (batch, 4 * hidden), transB=1)
    kept = graph.node("Gemm", f"{name}.h", [h, r, of_state], (batch, 4 * hidden), transB=1)
    sums = add(graph, f"{name}.sums", given, kept)
    names = {f"{name}.sums.{gate}": h.shape for gate in ("i", "f", "g", "o")}
    gates = graph.multi_output_node("Split", f"{name}.split", [sums], names, axis=1, num_outputs=4)
    i, f, o = (sigmoid(graph, f"{name}.{gate}", gates[q]) for gate, q in (("i", 0), ("f", 1), ("o", 3)))
    g = graph.node("Tanh", f"{name}.g", [gates[2]], h.shape)
    next_c = add(graph, f"{name}.c", multiply(graph, f"{name}.fc", f, c), multiply(graph, f"{name}.ig", i, g))
    return multiply(graph, f"{name}.out", o, graph.node("Tanh", f"{name}.tanh", [next_c], h.shape)), next_c


def _pytorch_gates(rows: Float32) -> Float32:
    """Rows in ONNX's gate order (input, output, forget, cell) in PyTorch's (input, forget, cell, output)."""
    i, o, f, c = np.split(rows, 4)
    return np.concatenate([i, f, c, o])
