"""LSTM, GRU and RNN layers, kept whole: PyTorch's gates are put in the order of ours, layer after layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import concatenated, part, reshaped, transposed
from rammer.frontends.torch.converters.contraction import linear
from rammer.frontends.torch.node import Converter, Node, Result
from rammer.ir.graph import Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How a layer of PyTorch's is one of ours: `gates[i]` is the place of our gate i among PyTorch's.

    `activations` are those of one direction; none where they are our usual ones.
    """

    name: str
    gates: tuple[int, ...]
    activations: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


_MOST_CELLS = 1024
"""Steps of a layer that is added cell by cell."""

_KINDS: Mapping[str, _Kind] = {
    "lstm": _Kind(name="LSTM", gates=(0, 3, 1, 2), attributes={"input_forget": False}),
    "gru": _Kind(name="GRU", gates=(1, 0, 2), attributes={"linear_before_reset": True}),
    "rnn_tanh": _Kind(name="RNN", gates=(0,)),
    "rnn_relu": _Kind(name="RNN", gates=(0,), activations=("Relu",)),
}


def _recurrent(node: Node) -> Result:
    """The output of the last layer `[t, b, d * n]`, and the last states `[layers * d, b, n]`."""
    if "batch_sizes" in node.arguments:
        raise node.unsupported("packed sequences", "give padded sequences of one length")
    if node.flag("train") and node.number("dropout") > 0:
        raise node.unsupported("dropout in training mode", "call module.eval() first")
    kind = _KINDS[node.operator]
    x = node.operand("input")
    x = transposed(node, x, (1, 0, 2)) if node.flag("batch_first") else x
    states = node.operands("hx") if node.operator == "lstm" else [node.operand("hx")]
    directions = 2 if node.flag("bidirectional") else 1
    parameters, each = node.operands("params"), 4 if node.flag("has_biases") else 2
    is_projected = len(parameters) == node.integer("num_layers") * directions * (each + 1)
    each += is_projected
    finals: list[list[Operand]] = [[] for _ in states]
    for layer in range(node.integer("num_layers")):
        first = layer * directions
        own = [parameters[(first + d) * each : (first + d + 1) * each] for d in range(directions)]
        initial = [part(node, state, 0, first, directions) for state in states]
        x, last = _projected_layer(node, x, own, initial) if is_projected else _layer(node, kind, x, own, initial)
        for found, final in zip(finals, last, strict=True):
            found.append(final)
    y = transposed(node, x, (1, 0, 2)) if node.flag("batch_first") else x
    return [y, *(concatenated(node, found, 0) for found in finals)]


def _layer(
    node: Node, kind: _Kind, x: Operand, parameters: Sequence[Sequence[Operand]], initial: Sequence[Operand]
) -> tuple[Operand, Sequence[Operand]]:
    """One layer's output `[t, b, d * n]` and last states."""
    directions = len(parameters)
    ordered = [[_reordered(node, kind, matrix) for matrix in own] for own in parameters]
    weights = [concatenated(node, [_row(node, own[i]) for own in ordered], 0) for i in range(2)]
    if len(parameters[0]) == 4:
        joined = [concatenated(node, own[2:], 0) for own in ordered]
        bias = concatenated(node, [_row(node, both) for both in joined], 0)
    else:
        bias = node.constant(np.zeros((directions, 2 * weights[0].shape[1]), dtype=x.dtype.numpy))
    y, *last = node.add_all(
        kind.name,
        x,
        *weights,
        bias,
        *initial,
        direction="bidirectional" if directions == 2 else "forward",
        layout=0,
        activation_alpha=(),
        activation_beta=(),
        **{**kind.attributes, "activations": kind.activations * directions},
    )
    steps, _, batch, size = y.shape
    return reshaped(node, transposed(node, y, (0, 2, 1, 3)), (steps, batch, directions * size)), last


def _projected_layer(
    node: Node, x: Operand, parameters: Sequence[Sequence[Operand]], initial: Sequence[Operand]
) -> tuple[Operand, Sequence[Operand]]:
    """As `_layer`, of an LSTM whose outputs are products with a further matrix: cell by cell."""
    steps = x.shape[0]
    if steps > _MOST_CELLS:
        raise node.unsupported(
            f"an LSTM with projections of {steps} steps, which are more than {_MOST_CELLS}",
            "set proj_size=0 and add a linear layer",
        )
    found = [
        _cells(node, x, own, [reshaped(node, part(node, state, 0, d, 1), state.shape[1:]) for state in initial], d == 1)
        for d, own in enumerate(parameters)
    ]
    outputs = concatenated(node, [outputs for outputs, _, _ in found], 2)
    return outputs, [concatenated(node, [_row(node, each[i]) for each in found], 0) for i in (1, 2)]


def _cells(
    node: Node, x: Operand, parameters: Sequence[Operand], initial: Sequence[Operand], backwards: bool
) -> tuple[Operand, Operand, Operand]:
    """One direction's outputs `[t, b, p]`, and the last states."""
    *own, projection = parameters
    of_input, of_state = own[:2]
    of_input_bias, of_state_bias = own[2:] or (None, None)
    given = linear(node, x, of_input, of_input_bias)
    (h, c), size = initial, of_state.shape[0] // 4
    outputs: dict[int, Operand] = {}
    for step in reversed(range(x.shape[0])) if backwards else range(x.shape[0]):
        of_step = reshaped(node, part(node, given, 0, step, 1), given.shape[1:])
        gates = node.add("Add", of_step, linear(node, h, of_state, of_state_bias))
        i, f, g, o = (part(node, gates, 1, number * size, size) for number in range(4))
        kept = node.add("Mul", node.add("Sigmoid", f), c)
        c = node.add("Add", kept, node.add("Mul", node.add("Sigmoid", i), node.add("Tanh", g)))
        h = linear(node, node.add("Mul", node.add("Sigmoid", o), node.add("Tanh", c)), projection, None)
        outputs[step] = _row(node, h)
    return concatenated(node, [outputs[step] for step in range(x.shape[0])], 0), h, c


def _lstm_layer(node: Node) -> Result:
    """A layer that is trained, in one direction; its weights stay as they are."""
    x, *states = (node.operand(name) for name in ("x", "h", "c", "w", "r"))
    return node.add_all("LSTMWithGates", x, *states, *node.operands("biases"), reverse=node.flag("reverse"))


def _lstm_layer_backward(node: Node) -> Result:
    """The backward pass of such a layer through time."""
    operands = [node.operand(name) for name in ("gates", "cells", "c", "w", "r")]
    by_h, by_c = node.optional("by_h"), node.optional("by_c")
    if by_h is None:
        by_h = node.constant(np.zeros(operands[1].shape, operands[1].dtype.numpy))
    operands += [by_h, *([] if by_c is None else [by_c])]
    return node.add_all("LSTMGradient", *operands, reverse=node.flag("reverse"), has_cells=by_c is not None)


def _reordered(node: Node, kind: _Kind, parameter: Operand) -> Operand:
    """A weight or bias with its gates in our order."""
    if len(kind.gates) == 1:
        return parameter
    size = parameter.shape[0] // len(kind.gates)
    return concatenated(node, [part(node, parameter, 0, gate * size, size) for gate in kind.gates], 0)


def _row(node: Node, x: Operand) -> Operand:
    return reshaped(node, x, (1, *x.shape))


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_KINDS, _recurrent),
    "lstm_layer": _lstm_layer,
    "lstm_layer_backward": _lstm_layer_backward,
}
