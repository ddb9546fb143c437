"""LSTM layers that stay whole in a training step: operators of Rammer's that PyTorch captures, with their gradients.

PyTorch would capture an LSTM that is trained step by step. `lstm_layer` is one layer in one direction,
`lstm_layer_backward` its backward pass through time; gradients by weights and biases are products over all steps. Both
exist while a step is captured, on tensors without data; `converters.recurrent` says what they become.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

NAMESPACE = "rammer"
"""Of the operators, among PyTorch's."""

_FORWARD = (
    "(Tensor x, Tensor h, Tensor c, Tensor w, Tensor r, Tensor[] biases, bool reverse) -> (Tensor, Tensor, Tensor)"
)
_BACKWARD = (
    "(Tensor? by_h, Tensor? by_c, Tensor gates, Tensor cells, Tensor c, Tensor w, Tensor r, bool reverse)"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)


def has_form(x: Any, states: Sequence[Any], weights: Sequence[Any]) -> bool:
    """Whether a layer is one of ours: in float32, without projections."""
    return len(weights) in (2, 4) and all(each.dtype is torch.float32 for each in (x, *states, *weights))


def layer(
    x: Any, states: Sequence[Any], weights: Sequence[Any], has_biases: bool, reverse: bool = False
) -> tuple[Any, tuple[Any, Any]]:
    """One layer in one direction: the outputs `[t, b, n]` and the last states `[b, n]`.

    Args:
        x: `[t, b, i]`.
        states: the first ones, `[b, n]`.
        weights: those of inputs and of states, with biases those of both.
        has_biases: whether there are biases.
        reverse: from the last step to the first one.
    """
    forward, _ = _operators()
    zero = x.new_zeros(weights[0].shape[0])
    y, cells, _ = forward(x, *states, *weights[:2], weights[2:] if has_biases else [zero, zero], reverse)
    last = 0 if reverse else -1
    return y, (y[last], cells[last])


@cache
def _operators() -> tuple[Any, Any]:
    """Both operators; a process has them once."""
    names = (f"{NAMESPACE}::lstm_layer", f"{NAMESPACE}::lstm_layer_backward")
    for name, schema, fake in zip(names, (_FORWARD, _BACKWARD), (_results, _gradients), strict=True):
        torch.library.define(name, schema)
        torch.library.register_fake(name, fake)
    torch.library.register_autograd(names[0], _backward, setup_context=_keep)
    ours = getattr(torch.ops, NAMESPACE)
    return ours.lstm_layer, ours.lstm_layer_backward


def _results(x: Any, h: Any, c: Any, w: Any, r: Any, biases: Any, reverse: bool) -> tuple[Any, ...]:
    """Outputs, cell states and gates of all steps."""
    steps, batch, _ = x.shape
    return tuple(x.new_empty(steps, batch, width) for width in (h.shape[1], c.shape[1], r.shape[0]))


def _gradients(by_h: Any, by_c: Any, gates: Any, cells: Any, c: Any, w: Any, r: Any, reverse: bool) -> tuple[Any, ...]:
    """By the gates of all steps, by the input, and by the first states."""
    shapes = (gates.shape, (*gates.shape[:2], w.shape[1]), c.shape, c.shape)
    return tuple(gates.new_empty(shape) for shape in shapes)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    x, h, c, w, r, biases, reverse = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, h, c, w, r, *output)
    ctx.reverse, ctx.biases = reverse, len(biases)


def _backward(ctx: Any, by_h: Any, by_c: Any, by_gates: Any) -> tuple[Any, ...]:
    """By each input of the forward pass. Nothing depends on the gates but this."""
    x, h, c, w, r, y, cells, gates = ctx.saved_tensors
    _, backward = _operators()
    by_gates, by_x, by_first_h, by_first_c = backward(by_h, by_c, gates, cells, c, w, r, ctx.reverse)
    before = torch.cat([y[1:], h[None]] if ctx.reverse else [h[None], y[:-1]])
    rows = by_gates.flatten(0, 1)
    by_w, by_r = (rows.T @ each.flatten(0, 1) for each in (x, before))
    by_biases = [rows.sum(0) for _ in range(ctx.biases)]  # one each: results of a capture are distinct
    return by_x, by_first_h, by_first_c, by_w, by_r, by_biases, None
