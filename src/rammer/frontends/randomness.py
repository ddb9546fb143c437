"""Random numbers of a model: where they come from, which is state, and their distributions.

A distribution is a function of uniform numbers, each operator's from a stream of its own; see `operators.random`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from rammer.frontends.builder import FoldingBuilder, Operand
from rammer.frontends.moves import concatenated, converted, part, reshaped
from rammer.frontends.node import ModelNode
from rammer.ir.graph import Graph, SourceLocation, State
from rammer.ir.types import DType, TensorType

STREAM = "random:stream"
"""The state that random numbers follow from: a seed, and how many runs there were."""

_BITS = {DType.FLOAT16: 11, DType.BFLOAT16: 8}
"""Of the significands of narrow numbers: uniform ones are multiples of the step that they have below 1."""

_LEAST = 2.0**-25
"""What an exponentially distributed number of float32 is at least: 0 divides nothing."""


class RandomStreams:
    """Where a model's random numbers come from; its key is an input of the graph once somebody asks for some."""

    def __init__(self, builder: FoldingBuilder, model: str) -> None:
        self._builder = builder
        self._source = SourceLocation(model=model, node="random numbers", op_type="random")
        self._key: Operand | None = None
        self._streams = 0

    @property
    def key(self) -> Operand:
        """Seed and run, uint64 `[2]`."""
        if self._key is None:
            self._key = self._builder.input(STREAM, TensorType(DType.UINT64, (2,)))
        return self._key

    def next_stream(self) -> int:
        """The number of a stream that was not given before."""
        self._streams += 1
        return self._streams - 1

    def states(self) -> list[State]:
        """The state, where random numbers were asked for; its seed is 0."""
        return [] if self._key is None else [State(name=STREAM, initial=np.zeros(2, np.uint64))]

    def following(self) -> dict[str, Operand]:
        """The state's next value: a run more."""
        if self._key is None:
            return {}
        node = ModelNode(location=self._source, builder=self._builder)
        return {STREAM: node.add("Add", self._key, node.constant(np.array([0, 1], np.uint64)))}


def with_seed(graph: Graph, seed: int) -> Graph:
    """The graph whose random numbers, if it has any, follow from a seed in 0 to 2^64 - 1."""
    if all(state.name != STREAM for state in graph.states):
        return graph
    first = np.array([seed, 0], np.uint64)
    states = (replace(state, initial=first) if state.name == STREAM else state for state in graph.states)
    return replace(graph, states=tuple(states))


class Draws:
    """Draws random numbers for a node of the model; each draw is another.

    Args:
        node: whom operators are added for.
        streams: of the model.
        seed: of the node's own, which then has the same numbers as others of this seed; None takes the model's.
    """

    def __init__(self, node: ModelNode, streams: RandomStreams, seed: int | None = None) -> None:
        self._node = node
        self._key, self._next = streams.key, streams.next_stream
        if seed is not None:
            first = node.constant(np.array([seed], np.uint64))
            self._key, self._next = concatenated(node, [first, part(node, streams.key, 0, 1, 1)], 0), count().__next__

    def uniform(self, shape: Sequence[int], dtype: DType) -> Operand:
        """In [0, 1): multiples of 2^-24, in float64 of 2^-48, in 16 bits of what is exact in all of the range."""
        if dtype is DType.FLOAT64:
            upper, lower = (converted(self._node, self._uniform(shape), dtype) for _ in range(2))
            return self._node.add("Add", upper, self._times(lower, 2.0**-24))
        found = self._uniform(shape)
        if dtype is DType.FLOAT32:
            return found
        steps = float(2 ** _BITS[dtype])
        whole = self._node.add("Floor", self._times(found, steps))
        return converted(self._node, self._times(whole, 1 / steps), dtype)

    def normal(self, shape: Sequence[int], dtype: DType) -> Operand:
        """With mean 0 and variance 1, by the transform of Box and Muller."""
        node, wide = self._node, _wide(dtype)
        radius = node.add("Sqrt", self._times(node.add("Log", self._above_zero(shape, wide)), -2))
        angle = self._times(self.uniform(shape, wide), 2 * math.pi)
        return converted(node, node.add("Mul", radius, node.add("Cos", angle)), dtype)

    def exponential(self, shape: Sequence[int], dtype: DType) -> Operand:
        """With mean 1, and never 0."""
        node, wide = self._node, _wide(dtype)
        found = node.add("Neg", node.add("Log", self._above_zero(shape, wide)))
        return converted(node, node.add("Max", found, self._number(_LEAST, wide)), dtype)

    def integers(self, shape: Sequence[int], low: int, high: int, dtype: DType) -> Operand:
        """In `low` to `high` - 1, all alike but for 2^-48 of their number."""
        node = self._node
        scaled = node.add("Floor", self._times(self.uniform(shape, DType.FLOAT64), high - low))
        first = node.constant(np.array(low, np.int64))
        return converted(node, node.add("Add", converted(node, scaled, DType.INT64), first), dtype)

    def below(self, probabilities: Operand, shape: Sequence[int]) -> Operand:
        """Bools that hold with the probabilities, which broadcast to the shape."""
        node, wide = self._node, _wide(probabilities.dtype)
        return node.add("Less", self.uniform(shape, wide), converted(node, probabilities, wide))

    def chosen(self, weights: Operand, number: int, *, again: bool) -> Operand:
        """Positions along the last dimension, int64, with probabilities in proportion to weights.

        The first of independent exponential processes whose rates are the weights is each with its share; the next
        ones are what remains.

        Args:
            weights: `[..., n]`, not negative.
            number: how many positions for each line of weights.
            again: whether a position may be chosen several times.
        """
        node, wide, axis = self._node, _wide(weights.dtype), weights.rank - 1
        weights = converted(node, weights, wide)
        if not again and number > 1:
            early = node.add("Div", weights, self.exponential(weights.shape, wide))
            return node.add_all("TopK", early, axis=axis, k=number, largest=True)[1]
        *outer, extent = weights.shape
        lines = reshaped(node, weights, (*outer, 1, extent))
        early = node.add("Div", lines, self.exponential((*outer, number, extent), wide))
        return node.add("ArgMax", early, axis=axis + 1, keepdims=False, select_last_index=False)

    def _above_zero(self, shape: Sequence[int], dtype: DType) -> Operand:
        """Uniform in (0, 1]."""
        return self._node.add("Sub", self._number(1, dtype), self.uniform(shape, dtype))

    def _uniform(self, shape: Sequence[int]) -> Operand:
        return self._node.add("Uniform", self._key, shape=tuple(shape), stream=self._next())

    def _times(self, x: Operand, factor: float) -> Operand:
        return self._node.add("Mul", x, self._number(factor, x.dtype))

    def _number(self, value: float, dtype: DType) -> Operand:
        return self._node.constant(np.array(value, dtype.numpy))


def _wide(dtype: DType) -> DType:
    """What numbers of a type are computed in."""
    return DType.FLOAT64 if dtype is DType.FLOAT64 else DType.FLOAT32
