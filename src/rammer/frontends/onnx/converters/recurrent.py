"""LSTM, GRU and RNN: optional operands become zeros, so that the layers have all but the peepholes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rammer.frontends.builder import Operand
from rammer.frontends.moves import converted, reshaped, transposed
from rammer.frontends.onnx.node import Converter, Node
from rammer.frontends.onnx.quantisation import centred
from rammer.ir.graph import Attribute
from rammer.ir.types import DType

_STATES: Mapping[str, int] = {"GRU": 1, "LSTM": 2, "RNN": 1}
_FLAGS: Mapping[str, str] = {"GRU": "linear_before_reset", "LSTM": "input_forget"}
_FIRST_STATE = 5
_PEEPHOLES = 7
_FIRST_SCALE = 8


def _recurrent(node: Node) -> Sequence[Operand]:
    return _layer(node, node.op_type, node.operand(1), node.operand(2))


def _dynamically_quantised(node: Node) -> Sequence[Operand]:
    """By the numbers that the weights stand for, each `[directions, inputs, rows]`; nothing else is quantised."""
    return _layer(node, "LSTM", *(_numbers(node, position, _FIRST_SCALE + 2 * (position - 1)) for position in (1, 2)))


def _numbers(node: Node, position: int, scale_position: int) -> Operand:
    """Weights with a scale and a zero point for each direction or row; the rows are dimension 1 of the result."""
    weights, scale, zero = (node.operand(place) for place in (position, scale_position, scale_position + 1))
    if weights.rank != 3 or scale.type.size not in (weights.shape[0], weights.shape[0] * weights.shape[2]):
        raise node.invalid(f"weights {weights.type} with scales {scale.type}")
    shape = (weights.shape[0], 1, scale.type.size // weights.shape[0])
    centre = centred(node, weights, reshaped(node, zero, shape))
    scaled = node.add("Mul", converted(node, centre, DType.FLOAT32), reshaped(node, scale, shape))
    return transposed(node, scaled, (0, 2, 1))


def _layer(node: Node, kind: str, w: Operand, r: Operand) -> Sequence[Operand]:
    """A recurrent layer by its weights, all other operands where ONNX's layers have them."""
    x = node.operand(0)
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise node.invalid(f"input {x.type}, weights {w.type} and {r.type} must have rank 3")
    layout = node.integer("layout") if node.has("layout") else 0
    batch, steps = (x.shape[0], x.shape[1]) if layout else (x.shape[1], x.shape[0])
    directions, rows, hidden = w.shape[0], w.shape[1], r.shape[2]
    if node.has("hidden_size") and node.integer("hidden_size") != hidden:
        raise node.invalid(f"hidden_size {node.integer('hidden_size')} is not that of the weights {r.type}")
    state = (batch, directions, hidden) if layout else (directions, batch, hidden)
    operands = [x, w, r, _or_zeros(node, 3, (directions, 2 * rows), x)]
    operands += [_or_zeros(node, _FIRST_STATE + s, state, x) for s in range(_STATES[kind])]
    peepholes = node.optional(_PEEPHOLES)
    if peepholes is not None:
        operands.append(peepholes)
    lengths = _lengths(node, batch, steps)
    operands += lengths
    # The schema's default for RNN lists one activation too many for a single direction.
    given = any(attribute.name == "activations" for attribute in node.proto.attribute)
    activations = node.texts("activations") if given else ()
    own: dict[str, Attribute] = {}
    if kind in _FLAGS:
        own[_FLAGS[kind]] = node.flag(_FLAGS[kind])
    if node.has("clip"):
        own["clip"] = node.number("clip")
    return node.add_all(
        kind,
        *operands,
        direction=node.text("direction"),
        layout=layout,
        activations=activations,
        activation_alpha=node.numbers("activation_alpha"),
        activation_beta=node.numbers("activation_beta"),
        lengths=bool(lengths),
        **own,
    )


def _lengths(node: Node, batch: int, steps: int) -> list[Operand]:
    """The lengths of the sequences, unless all are known to be as long as the input."""
    lengths = node.optional(4)
    if lengths is None:
        return []
    if lengths.shape != (batch,):
        raise node.invalid(f"sequence_lens {lengths.type} are not those of {batch} sequences")
    if lengths.array is not None:
        known = node.known_integers(4)
        if any(not 0 <= length <= steps for length in known):
            raise node.invalid(f"sequence_lens {list(known)} are not between 0 and {steps}")
        if known == (steps,) * batch:
            return []
    return [converted(node, lengths, DType.INT64)]


def _or_zeros(node: Node, position: int, shape: tuple[int, ...], like: Operand) -> Operand:
    operand = node.optional(position)
    if operand is not None:
        return operand
    return node.add("Expand", node.constant(np.zeros((), dtype=like.dtype.numpy)), shape=shape)


CONVERTERS: Mapping[str, Converter] = {
    **dict.fromkeys(_STATES, _recurrent),
    "com.microsoft.DynamicQuantizeLSTM": _dynamically_quantised,
}
