"""byte_cells: LSTM layers by weights of 8 bits sum products of bytes.

    y = LSTM(x, scale * (w - zero), scale' * (r - zero'))  ->  y = LSTMOfBytes(quantised(x) * w, r - zero')

The inputs of all steps are one product, of x in 127 steps on either side of 0 up to its greatest magnitude, which is
computed as the model runs; `byte_products` makes that one of integers. The layer's own products are as
`operators/recurrent_bytes` says. Layers keep what they are that begin with another state than 0, have other activations
than an LSTM's own, peepholes, limits or sequences of several lengths.

Ordering restriction: before `byte_products`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from rammer.ir.graph import Array, Attribute, Graph, Operator
from rammer.ir.types import DType
from rammer.ir.vdevice import ByteProducts, VDevice
from rammer.operators.attributes import flag, integer, text, texts
from rammer.operators.recurrent_bytes import HIGH, LOW, ZERO, infer
from rammer.passes.helpers.quads import cut
from rammer.passes.helpers.quantised import Integers, numbers_of, weights_of
from rammer.passes.helpers.rewrite import Rewriter
from rammer.tiling.pattern import QUAD

_OWN = ("Sigmoid", "Tanh", "Tanh")
_GATES = 4
_LEAST_UNITS = 16
_MOST_UNITS = 2**31 // (255 * 128)
_TINIEST = 1e-30
"""Greater than 0: what inputs that are all 0 are divided by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weights:
    """A matrix `[D, 4n, columns]` as integers, and the scale of each row `[D, 4n]`."""

    integers: Integers
    scales: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """A layer that is computed in integers."""

    operator: Operator
    inputs: _Weights
    states: _Weights
    biases: npt.NDArray[np.float32]


def run(graph: Graph, device: VDevice) -> Graph:
    """Compute LSTM layers by quantised weights in integers; see the module.

    Args:
        graph: as imported, recurrent layers still whole.
        device: says whether it has the instruction.
    """
    if device.byte_products is not ByteProducts.QUADS:
        return graph
    rewriter = Rewriter(graph)
    makers = graph.producers()
    for operator in graph.operators:
        layer = _layer(operator, graph, makers)
        if layer is None:
            rewriter.insert(operator)
        else:
            for old, new in zip(operator.outputs, _Steps(rewriter, operator).results(layer), strict=True):
                rewriter.replace(old, new)
    return rewriter.finish()


def _layer(operator: Operator, graph: Graph, makers: dict[int, Operator]) -> _Layer | None:
    """The operator as a layer whose weights are quantised constants, None for any other."""
    attributes = operator.attributes
    if operator.kind != "LSTM" or len(operator.inputs) != 6 or integer(attributes, "layout") != 0:
        return None
    names = texts(attributes, "activations")
    if any(name != _OWN[place % 3] for place, name in enumerate(names)) or "clip" in attributes:
        return None
    if any(name in attributes and flag(attributes, name) for name in ("lengths", "input_forget", "batched_inputs")):
        return None
    x, _, _, b, h, _ = operator.inputs
    if graph.values[x].type.dtype is not DType.FLOAT32 or graph.values[x].type.shape[0] < 2:
        return None
    inputs, states = (_weights(value, graph, makers) for value in operator.inputs[1:3])
    biases = _constant(b, graph, makers)
    first = _constant(h, graph, makers)
    if inputs is None or states is None or biases is None or first is None or first.any():
        return None
    n = states.integers.shape[2]
    if n % QUAD or not _LEAST_UNITS <= n <= _MOST_UNITS:
        return None
    wide = np.broadcast_to(biases, graph.values[b].type.shape).astype(np.float32)
    return _Layer(operator=operator, inputs=inputs, states=states, biases=wide)


def _weights(value: int, graph: Graph, makers: dict[int, Operator]) -> _Weights | None:
    """Weights of a layer, transposed perhaps, None where they are no integers of 8 bits with a scale for each row."""
    maker = makers.get(value)
    turned = maker is not None and maker.kind == "Transpose" and maker.attributes["perm"] == (0, 2, 1)
    numbers = numbers_of(maker.inputs[0] if maker is not None and turned else value, makers)
    integers = None if numbers is None else weights_of(numbers, graph)
    if numbers is None or integers is None or numbers.scale is None or numbers.scale not in graph.constants:
        return None
    scales = graph.constants[numbers.scale]
    shape = (*(1,) * (3 - scales.ndim), *scales.shape)
    if scales.dtype != np.float32 or shape[1 if turned else 2] != 1:
        return None
    rows = integers.shape[2 if turned else 1]
    by_row = np.broadcast_to(scales.reshape(shape[0], -1), (integers.shape[0], rows)).astype(np.float32)
    return _Weights(integers=integers.transpose(0, 2, 1) if turned else integers, scales=by_row)


def _constant(value: int, graph: Graph, makers: dict[int, Operator]) -> Array | None:
    """A constant, or one that is repeated."""
    maker = makers.get(value)
    return graph.constants.get(maker.inputs[0] if maker is not None and maker.kind == "Expand" else value)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Adds the operators that stand for a layer."""

    rewriter: Rewriter
    operator: Operator

    def add(self, kind: str, *inputs: int, **attributes: Attribute) -> int:
        """The result of an operator of a registered kind."""
        name, sources = self.operator.name, self.operator.sources
        return self.rewriter.add(kind, inputs, attributes, name=name, sources=sources)

    def constant(self, array: Array | np.generic) -> int:
        """A new constant."""
        return self.rewriter.constant(np.asarray(array), self.operator.name)

    def results(self, layer: _Layer) -> tuple[int, ...]:
        """What replaces the outputs Y `[T, D, b, n]`, h and c `[D, b, n]` of a layer."""
        x, *_, c = self.operator.inputs
        numbers = self.quantised(x)
        backwards = {"forward": (False,), "reverse": (True,)}.get(
            text(self.operator.attributes, "direction"), (False, True)
        )
        found = [self.direction(layer, numbers, c, d, backward) for d, backward in enumerate(backwards)]
        made = []
        for axis, parts in zip((1, 0, 0), zip(*found, strict=True), strict=True):
            shape = self.rewriter.type(parts[0]).shape
            apart = [self.add("Reshape", part, shape=(*shape[:axis], 1, *shape[axis:])) for part in parts]
            made.append(apart[0] if len(apart) == 1 else self.add("Concat", *apart, axis=axis))
        return tuple(made)

    def quantised(self, x: int) -> int:
        """The numbers `[T * b, i]` that the inputs are in steps of 1/127 of their greatest magnitude."""
        steps, batch, width = self.rewriter.type(x).shape
        flat = self.add("Reshape", x, shape=(steps * batch, width))
        most = self.add("ReduceMax", self.add("Abs", flat), axes=(0, 1), keepdims=False)
        most = self.add("Max", most, self.constant(np.float32(_TINIEST)))
        scale = self.add("Mul", most, self.constant(np.float32(1 / HIGH)))
        digits = self.add("Add", self.add("Round", self.add("Div", flat, scale)), self.constant(np.float32(ZERO)))
        bytes_ = self.add("Cast", digits, to=DType.UINT8)
        centred = self.add("Centre", bytes_, self.constant(np.uint8(ZERO)))
        return self.add("Mul", self.add("Cast", centred, to=DType.FLOAT32), scale)

    def direction(self, layer: _Layer, numbers: int, c: int, d: int, backward: bool) -> tuple[int, ...]:
        """Y `[T, b, n]` and the last states `[b, n]` of a direction."""
        x, r = self.operator.inputs[0], layer.states.integers[d]
        steps, batch, _ = self.rewriter.type(x).shape
        rows, n = r.shape
        weights = self.add("Centre", self.constant(layer.inputs.integers[d].T.astype(np.int8)))
        scaled = self.add("Cast", weights, to=DType.FLOAT32)
        scaled = self.add("Mul", scaled, self.constant(layer.inputs.scales[d]))
        a = self.add("Reshape", self.add("MatMul", numbers, scaled), shape=(steps, batch, rows))
        biases = layer.biases[d, :rows] + layer.biases[d, rows:]
        size, whole = (1, batch, n), self.rewriter.type(c).shape
        first = self.add("Slice", c, starts=(d, 0, 0), steps=(1, 1, 1), sizes=size) if whole != size else c
        operands = (
            a,
            self.constant(cut(r, 1)),
            self.constant(ZERO * r.sum(axis=1, dtype=np.int32)),
            self.constant(layer.states.scales[d] / np.float32(HIGH * LOW)),
            self.constant(biases),
            self.add("Reshape", first, shape=(batch, n)),
        )
        return self.layer(operands, backward)

    def layer(self, operands: tuple[int, ...], backward: bool) -> tuple[int, ...]:
        """The results of an LSTMOfBytes."""
        attributes = MappingProxyType({"backward": backward})
        types = infer([self.rewriter.type(value) for value in operands], attributes)
        outputs = tuple(self.rewriter.value(type_, self.operator.name) for type_ in types)
        made = replace(self.operator, kind="LSTMOfBytes", inputs=operands, outputs=outputs, attributes=attributes)
        self.rewriter.insert(made)
        return outputs
