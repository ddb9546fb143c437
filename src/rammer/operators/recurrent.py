"""Recurrent layers: LSTM, GRU and RNN, composites that unroll into one cell per direction and time step.

Slots, with D directions, G gates and n hidden units: x `[T, b, i]`, w `[D, G*n, i]`, r `[D, G*n, n]`, biases
`[D, 2*G*n]`, initial h `[D, b, n]`, for LSTM initial c `[D, b, n]` and optionally peepholes `[D, 3*n]`; last, where
the attribute lengths says so, the lengths of the sequences, int64 `[b]`.
Outputs: Y `[T, D, b, n]`, Y_h `[D, b, n]`, for LSTM Y_c `[D, b, n]`. With layout 1 the batch comes first: x
`[b, T, i]`, states `[b, D, n]`, Y `[b, T, D, n]`.

Attributes: direction: "forward", "reverse" or "bidirectional"; layout: 0 or 1; activations, activation_alpha,
activation_beta: tuples as ONNX has them, empty for the defaults; LSTM: input_forget: bool; GRU: linear_before_reset:
bool; clip: float, absent for none (see the cells); lengths: bool, false where absent. batched_inputs: bool, false where
absent: multiply the inputs of all steps by w in one product, rather than each step's in its cell.

A sequence that ends before the last step leaves its state as it is from there on, and one that runs backwards begins at
its own end. Behind the end Y is 0; a sequence without steps has last states of 0. ONNX Runtime does likewise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rammer.errors import UnsupportedFeatureError
from rammer.ir.graph import Attribute, Attributes, Operator
from rammer.ir.types import DType, TensorType
from rammer.operators import recurrent_lengths
from rammer.operators.attributes import flag, integer, number, numbers, text, texts
from rammer.operators.moved import joined, taken
from rammer.operators.recurrent_cells import RECURRENT_ACTIVATIONS
from rammer.operators.registry import Builder, CompositeDef, register, require
from rammer.operators.shapes import FLOATS, check_operands

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What tells the layers apart; `flag` is the boolean attribute that is handed to the cell."""

    name: str
    gates: int
    states: int
    activations: tuple[str, ...]
    peepholes: bool = False
    flag: str | None = None


_LSTM = _Kind(
    name="LSTM", gates=4, states=2, activations=("Sigmoid", "Tanh", "Tanh"), peepholes=True, flag="input_forget"
)
_GRU = _Kind(name="GRU", gates=3, states=1, activations=("Sigmoid", "Tanh"), flag="linear_before_reset")
_RNN = _Kind(name="RNN", gates=1, states=1, activations=("Tanh",))

_KINDS: Mapping[str, _Kind] = {kind.name: kind for kind in (_LSTM, _GRU, _RNN)}

LAYERS = tuple(_KINDS)
"""The kinds of layers."""

_DIRECTIONS: Mapping[str, tuple[bool, ...]] = {
    "forward": (False,),
    "reverse": (True,),
    "bidirectional": (False, True),
}
"""For each direction of a layer, whether it runs backwards in time."""

_ALPHA: Mapping[str, float] = {
    "Affine": 1.0,
    "Elu": 1.0,
    "HardSigmoid": 0.2,
    "LeakyRelu": 0.01,
    "ScaledTanh": 1.0,
    "ThresholdedRelu": 1.0,
}
_BETA: Mapping[str, float] = {"Affine": 0.0, "HardSigmoid": 0.5, "ScaledTanh": 1.0}
"""Defaults, those of the ONNX operators of the same name; ONNX gives none for ScaledTanh, 1 leaves it a tanh."""


def _infer(kind: _Kind, inputs: Sequence[TensorType], attributes: Attributes) -> tuple[TensorType, ...]:
    """Types of Y and the last states."""
    inputs, lengths = _lengths_apart(inputs, attributes)
    check_operands(kind.name, inputs, (4 + kind.states, 4 + kind.states + kind.peepholes), FLOATS)
    directions = len(_cell_attributes(kind, attributes))
    layout = integer(attributes, "layout")
    require(layout in (0, 1), f"{kind.name} has no layout {layout}")
    x, w, r = inputs[:3]
    require(x.rank == 3 and w.rank == 3 and r.rank == 3, f"{kind.name} of {x} with weights {w} and {r}")
    n, rows = r.shape[2], kind.gates * r.shape[2]
    steps, batch = (x.shape[1], x.shape[0]) if layout else x.shape[:2]
    state = (batch, directions, n) if layout else (directions, batch, n)
    expected = [(directions, rows, x.shape[2]), (directions, rows, n), (directions, 2 * rows)]
    expected += [state] * kind.states
    expected += [(directions, 3 * n)] * (len(inputs) - 4 - kind.states)
    for type_, shape in zip(inputs[1:], expected, strict=True):
        require(type_.shape == shape, f"{kind.name} of {x}, {directions} direction(s): {type_} should be {list(shape)}")
    for type_ in lengths:
        fits = type_ == TensorType(DType.INT64, (batch,))
        require(fits, f"{kind.name} of {x}: lengths {type_} should be int64{[batch]}")
    y = (batch, steps, directions, n) if layout else (steps, directions, batch, n)
    return tuple(TensorType(x.dtype, shape) for shape in (y, *([state] * kind.states)))


def _expand(kind: _Kind, builder: Builder, inputs: Sequence[int], attributes: Attributes, name: str) -> tuple[int, ...]:
    """Add the cells. Weights are cut once per direction: all steps share the same values."""
    y_type, *state_types = _infer(kind, [builder.type(value) for value in inputs], attributes)
    layout = integer(attributes, "layout")
    cells = _cell_attributes(kind, attributes)
    inputs, lengths = _lengths_apart(inputs, attributes)
    x, *weights = *inputs[:4], *inputs[4 + kind.states :]
    initial = inputs[4 : 4 + kind.states]
    batched = cells[0]["batched_inputs"]
    # Time in x and direction in the states are the dimension that the layout leaves to them: 0, or 1 after the batch.
    steps = range(builder.type(x).shape[layout])
    entering = [] if batched else [taken(builder, x, layout, t, f"{name}.x{t}") for t in steps]
    running = [recurrent_lengths.running(builder, length, len(steps), name) for length in lengths]
    hidden: list[list[int]] = [[] for _ in steps]
    last: list[tuple[int, ...]] = []
    for d, backward in enumerate(_backwards(kind, attributes)):
        here = f"{name}.d{d}"
        fixed = [taken(builder, v, 0, d, f"{here}.{letter}") for letter, v in zip("wrbp", weights, strict=False)]
        if batched:
            projected = _project(builder, x, fixed.pop(0), f"{here}.inputs")
            entering = [taken(builder, projected, layout, t, f"{here}.x{t}") for t in steps]
        state = tuple(
            taken(builder, v, layout, d, f"{here}.{letter}") for letter, v in zip("hc", initial, strict=False)
        )
        for t in reversed(steps) if backward else steps:
            new = _step(kind, builder, entering[t], state, fixed, cells[d], f"{here}.t{t}")
            for runs in running:
                now = taken(builder, runs, 0, t, f"{here}.t{t}.runs")
                new = recurrent_lengths.kept(builder, now, new, state, f"{here}.t{t}.kept")
            state = new
            hidden[t].append(state[0])
        last.append(state)
    y = joined(builder, [h for row in hidden for h in row], layout, y_type, f"{name}.y")
    finals = [
        joined(builder, [state[s] for state in last], layout, type_, f"{name}.last{s}")
        for s, type_ in enumerate(state_types)
    ]
    for length in lengths:
        y, *finals = recurrent_lengths.without_padding(builder, length, layout, y, finals, name)
    return (y, *finals)


def _lengths_apart(inputs: Sequence[_T], attributes: Attributes) -> tuple[Sequence[_T], Sequence[_T]]:
    """The other operands, and the lengths if there are any: a list of one or none."""
    count = len(inputs) - ("lengths" in attributes and flag(attributes, "lengths"))
    return inputs[:count], inputs[count:]


def _project(builder: Builder, x: int, w: int, name: str) -> int:
    """The inputs of all steps times w: `[T, b, G*n]` for x `[T, b, i]`, likewise with the batch first."""
    outer = builder.type(x).shape[:2]
    rows, width = builder.type(w).shape
    (flat,) = builder.add("Reshape", [x], {"shape": (math.prod(outer), width)}, name=f"{name}.flat")
    (turned,) = builder.add("Transpose", [w], {"perm": (1, 0)}, name=f"{name}.w")
    (product,) = builder.add("MatMul", [flat, turned], name=f"{name}.product")
    return builder.add("Reshape", [product], {"shape": (*outer, rows)}, name=name)[0]


def _step(
    kind: _Kind,
    builder: Builder,
    x: int,
    state: tuple[int, ...],
    weights: Sequence[int],
    attributes: Attributes,
    name: str,
) -> tuple[int, ...]:
    """Add one cell and return the new state."""
    operands = [x, *state]
    if kind is _GRU and not flag(attributes, "linear_before_reset"):
        operands += builder.add("GRUResetGate", [*operands, *weights], attributes, name=f"{name}.reset")
    return builder.add(f"{kind.name}Cell", [*operands, *weights], attributes, name=name)


def _backwards(kind: _Kind, attributes: Attributes) -> tuple[bool, ...]:
    direction = text(attributes, "direction")
    require(direction in _DIRECTIONS, f"{kind.name} has no direction '{direction}'")
    return _DIRECTIONS[direction]


def _cell_attributes(kind: _Kind, attributes: Attributes) -> tuple[Attributes, ...]:
    """The cell's attributes for each direction.

    ONNX lists alphas and betas for those activations alone that take one, over all directions.

    Raises:
        InvalidModelError: the number of activations or parameters does not fit.
        UnsupportedFeatureError: an activation that ONNX does not list.
    """
    directions = len(_backwards(kind, attributes))
    per_direction = len(kind.activations)
    names = texts(attributes, "activations") or kind.activations * directions
    require(
        len(names) == per_direction * directions,
        f"{kind.name} with {directions} direction(s) takes {per_direction * directions} activations, not {len(names)}",
    )
    for name in names:
        if name not in RECURRENT_ACTIVATIONS:
            known = ", ".join(sorted(RECURRENT_ACTIVATIONS))
            raise UnsupportedFeatureError(f"{kind.name} with the activation '{name}'", hint=f"use one of {known}")
    alphas = _parameters(names, numbers(attributes, "activation_alpha"), _ALPHA)
    betas = _parameters(names, numbers(attributes, "activation_beta"), _BETA)
    own: dict[str, Attribute] = {
        name: name in attributes and flag(attributes, name) for name in ("batched_inputs", kind.flag) if name
    }
    if "clip" in attributes:
        own["clip"] = clip = number(attributes, "clip")
        require(clip > 0, f"{kind.name} clipped to {clip}, which is not above 0")
    parts = [slice(d * per_direction, (d + 1) * per_direction) for d in range(directions)]
    return tuple(
        {"activations": names[part], "activation_alpha": alphas[part], "activation_beta": betas[part], **own}
        for part in parts
    )


def steps_of(operator: Operator, x: TensorType) -> int:
    """Time steps of a layer with such an input."""
    return x.shape[integer(operator.attributes, "layout")]


def layer_states(kind: str) -> int:
    """How many states a layer has: 2 for LSTM, which has a cell state, else 1."""
    return _KINDS[kind].states


def single_directions(kind: str, attributes: Attributes) -> tuple[tuple[bool, Attributes], ...]:
    """For each direction of a layer whether it runs backwards, and the attributes of a layer of it alone, layout 0.

    Raises:
        InvalidModelError: the attributes do not fit.
        UnsupportedFeatureError: an activation that ONNX does not list.
    """
    found: list[tuple[bool, Attributes]] = []
    layer = _KINDS[kind]
    names_kept = ("clip", "batched_inputs", *([layer.flag] if layer.flag else []))
    kept = {name: attributes[name] for name in names_kept if name in attributes}
    for backward, cell in zip(_backwards(layer, attributes), _cell_attributes(layer, attributes), strict=True):
        names = texts(cell, "activations")
        alphas, betas = numbers(cell, "activation_alpha"), numbers(cell, "activation_beta")
        own: dict[str, Attribute] = {
            **kept,
            "direction": "reverse" if backward else "forward",
            "layout": 0,
            "activations": names,
            "activation_alpha": tuple(a for name, a in zip(names, alphas, strict=True) if name in _ALPHA),
            "activation_beta": tuple(b for name, b in zip(names, betas, strict=True) if name in _BETA),
        }
        found.append((backward, own))
    return tuple(found)


def _parameters(names: Sequence[str], given: Sequence[float], defaults: Mapping[str, float]) -> tuple[float, ...]:
    """One parameter per activation: those that have it consume the given ones in order, then take the default."""
    remaining = iter(given)
    return tuple(next(remaining, defaults[name]) if name in defaults else 0.0 for name in names)


for _kind in _KINDS.values():
    register(CompositeDef(kind=_kind.name, infer=partial(_infer, _kind), expand=partial(_expand, _kind)))
