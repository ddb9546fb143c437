"""Loops of very many trips, which stay loops: all trips are one graph, and nothing but values tells them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx

from rammer.frontends.builder import Operand
from rammer.frontends.moves import reshaped, transposed
from rammer.frontends.onnx.checking import names_read
from rammer.frontends.onnx.node import Node
from rammer.operators.repeat import repeat_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Along:
    """The dimensions that a scan goes along, and for each input and output whether from the last element to the first.

    Dimensions of outputs may be counted from the end.
    """

    inputs: Sequence[int]
    outputs: Sequence[int]
    scanned: Sequence[int]
    stacked: Sequence[int]


def loop(
    node: Node, body: onnx.GraphProto, trips: int, going: Operand | None, values: Sequence[Operand]
) -> Sequence[Operand]:
    """The results of a `Loop`.

    Args:
        node: the loop.
        body: one trip.
        trips: how many there are, or may be at most.
        going: whether there is a first trip; a constant is true.
        values: the first ones.

    Raises:
        UnsupportedFeatureError: trips differ in more than their values.
        InvalidModelError: the body does not fit the node.
    """
    trip = _Trip(node, body, trips, values, _numbers(node, body, trips))
    again, *results = trip.convert([trip.number, trip.inside.constant(np.array(True)), *trip.carried])
    if (going is None or going.array is not None) and again.array is not None and again.array.all():
        return trip.repeated(results, (False,) * len(trip.elements), (False,) * (len(results) - len(values)))
    if len(results) > len(values):
        raise node.unsupported(
            "a loop whose number of trips the model computes",
            "give it a fixed number of trips, and no results that grow with them",
        )
    return _while(node, body, trips, going or node.constant(np.array(True)), values)


def _while(
    node: Node, body: onnx.GraphProto, trips: int, going: Operand, values: Sequence[Operand]
) -> Sequence[Operand]:
    """A loop that ends when the model says so: trips behind the end leave the values as they are.

    Whether it goes on is carried with the values.
    """
    trip = _Trip(node, body, trips, [reshaped(node, going, ()), *values], _numbers(node, body, trips))
    inside, (active, *before) = trip.inside, trip.carried
    again, *after = trip.convert([trip.number, inside.constant(np.array(True)), *before])
    trip.check(before, after)
    kept = [
        new if new is old else inside.add("Where", active, new, old) for new, old in zip(after, before, strict=True)
    ]
    goes_on = inside.add("And", active, reshaped(inside, again, ()))
    return trip.repeated([goes_on, *kept], (False,) * len(trip.elements), ())[1:]


def _numbers(node: Node, body: onnx.GraphProto, trips: int) -> list[Operand]:
    """The numbers of the trips, to be scanned, where the body reads its own."""
    return [node.constant(np.arange(trips))] if body.input[0].name in names_read(body) else []


def scan(
    node: Node, body: onnx.GraphProto, values: Sequence[Operand], inputs: Sequence[Operand], along: Along
) -> Sequence[Operand]:
    """The results of a `Scan`.

    Raises:
        UnsupportedFeatureError: trips differ in more than their values.
        InvalidModelError: the body does not fit the node.
    """
    scanned = [_front(node, x, axis) for x, axis in zip(inputs, along.inputs, strict=True)]
    trip = _Trip(node, body, scanned[0].shape[0], values, scanned)
    results = trip.convert([*trip.carried, *trip.elements])
    found = trip.repeated(results, tuple(map(bool, along.scanned)), tuple(map(bool, along.stacked)))
    stacks = [
        transposed(node, stack, _moved(0, node.axis(axis, stack.rank), stack.rank))
        for stack, axis in zip(found[len(values) :], along.outputs, strict=True)
    ]
    return [*found[: len(values)], *stacks]


def _front(node: Node, x: Operand, axis: int) -> Operand:
    """A tensor with a dimension in front of all others."""
    return transposed(node, x, _moved(axis, 0, x.rank))


def _moved(source: int, target: int, rank: int) -> tuple[int, ...]:
    """The order of dimensions that puts one of them elsewhere."""
    others = [dim for dim in range(rank) if dim != source]
    return (*others[:target], source, *others[target:])


class _Trip:
    """One trip of a loop, as a graph that is begun with its inputs.

    Attributes:
        inside: adds operators to that graph, as the loop's node.
        carried: what is carried, as the trip finds it.
        elements: of the scanned inputs, one each.
    """

    def __init__(
        self, node: Node, body: onnx.GraphProto, trips: int, values: Sequence[Operand], scanned: Sequence[Operand]
    ) -> None:
        self._node, self._body, self._trips = node, body, trips
        self._alone = node.apart(body)
        builder = self._alone.builder
        self.inside = replace(node, builder=builder)
        self._values, self._scanned = values, scanned
        self.carried = [builder.input(value.name, value.type) for value in values]
        self.elements = [builder.input(x.name, replace(x.type, shape=x.shape[1:])) for x in scanned]

    @property
    def number(self) -> Operand:
        """The trip's number, the one element of a `Loop`; some number where the trip does not read it."""
        return self.elements[0] if self.elements else self.inside.constant(np.array(0))

    def convert(self, inputs: Sequence[Operand]) -> Sequence[Operand]:
        """Add what the body does with its inputs, and return its outputs.

        Raises:
            InvalidModelError: one is no tensor.
        """
        return self._node.tensors(self._alone.convert(inputs))

    def check(self, before: Sequence[Operand], after: Sequence[Operand]) -> None:
        """See whether what is carried keeps its types.

        Raises:
            UnsupportedFeatureError: it does not.
        """
        for old, new in zip(before, after, strict=True):
            if old.type != new.type:
                raise self._node.unsupported(
                    f"a loop of very many trips whose value '{new.name}' is {old.type}, then {new.type}",
                    "let it keep its type and shape from trip to trip",
                )

    def repeated(
        self, results: Sequence[Operand], scanned: tuple[bool, ...], stacked: tuple[bool, ...]
    ) -> Sequence[Operand]:
        """What the loop gives, by what a trip gives: the next carried values and an element of each stacked output.

        Args:
            results: of the trip.
            scanned: for each scanned input whether it is taken from its end.
            stacked: the same for each stacked output.
        """
        kept = len(self.carried)
        self.check(self.carried, results[:kept])
        graph, around = self._alone.finish(results)
        if any(operator.repeat is not None for operator in graph.operators):
            raise self._node.unsupported(
                f"a loop of very many trips in another one ('{self._body.name}')",
                "let one of them have fewer trips, or put the two into one",
            )
        loop = repeat_of(graph, self._trips, kept, scanned, stacked)
        return self._node.repeat(loop, [*self._values, *self._scanned, *around])
