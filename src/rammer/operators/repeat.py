"""Loops that stay loops: bodies of several trips, from the graph of one trip or from the steps of a recurrent layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from rammer.ir.graph import Attributes, Graph, Repeat
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import integers
from rammer.operators.builder import GraphBuilder
from rammer.operators.moved import taken

_LAYER_NODES = 8
"""What a step of a layer counts as: it takes longer to compile than other operators do."""


def repeat_of(body: Graph, trips: int, carried: int, scanned: Sequence[bool], stacked: Sequence[bool]) -> Repeat:
    """A loop of one trip's graph: carried values, an element of each scanned input, what stays the same.

    Args:
        body: gives the next carried values, of the same types, and an element of each stacked output.
        trips: how many.
        carried: how many values are carried.
        scanned: for each scanned input, whether elements are taken from the last to the first.
        stacked: the same for outputs.
    """
    return Repeat(
        trips=trips,
        carried=carried,
        scanned=tuple(scanned),
        stacked=tuple(stacked),
        body=partial(_trips, body, carried, tuple(scanned), tuple(stacked)),
        nodes=len(body.operators) + len(scanned) + len(stacked),
    )


def output_types(repeat: Repeat) -> tuple[TensorType, ...]:
    """The types of a loop's outputs."""
    body = repeat.body(1)
    types = [body.values[output].type for output in body.outputs]
    stacks = [replace(type_, shape=(repeat.trips, *type_.shape[1:])) for type_ in types[repeat.carried :]]
    return (*types[: repeat.carried], *stacks)


Move = tuple[str, Attributes]
"""An operator by its kind and attributes that moves elements within the trips that they belong to: see `moved_by`."""


def moved_by(kind: str, attributes: Attributes, before: TensorType, after: TensorType) -> bool:
    """Whether an operator leaves each element in its place along dimension 0."""
    if kind == "Transpose":
        return integers(attributes, "perm")[0] == 0
    return kind == "Identity" or (kind == "Reshape" and before.shape[:1] == after.shape[:1])


def fused(first: Repeat, second: Repeat, taken_from: Sequence[tuple[int, Sequence[Move]] | None]) -> Repeat:
    """Two loops of as many trips as one, in which the trips of the second follow those of the first.

    Its inputs are what both carry, scan (but what the second takes from the first) and keep, those of the first in
    front of the second's; likewise its outputs.

    Args:
        first: the one.
        second: the other.
        taken_from: for each scanned input of the second, which stacked output of the first it is and how it is moved
            on the way; None where it is neither.
    """
    outside = [flag for flag, source in zip(second.scanned, taken_from, strict=True) if source is None]
    return Repeat(
        trips=first.trips,
        carried=first.carried + second.carried,
        scanned=(*first.scanned, *outside),
        stacked=(*first.stacked, *second.stacked),
        body=partial(_both, first, second, taken_from),
        nodes=first.nodes + second.nodes,
    )


def _both(first: Repeat, second: Repeat, taken_from: Sequence[tuple[int, Sequence[Move]] | None], trips: int) -> Graph:
    """Some trips of two loops."""
    one, other = first.body(trips), second.body(trips)
    builder = GraphBuilder(one.name)

    def inputs_of(graph: Graph, slots: range) -> list[int]:
        return [builder.input(*_named(graph, graph.inputs[slot])) for slot in slots]

    ends = [loop.carried + len(loop.scanned) for loop in (first, second)]
    carried = inputs_of(one, range(first.carried)), inputs_of(other, range(second.carried))
    scanned = inputs_of(one, range(first.carried, ends[0]))
    outside = iter(
        [
            builder.input(*_named(other, other.inputs[second.carried + i]))
            for i, source in enumerate(taken_from)
            if source is None
        ]
    )
    kept = inputs_of(one, range(ends[0], len(one.inputs))), inputs_of(other, range(ends[1], len(other.inputs)))
    found = _inlined(builder, one, [*carried[0], *scanned, *kept[0]], _constants(builder, one), "")
    elements = [
        next(outside) if source is None else _moved(builder, found[first.carried + source[0]], source[1], trips)
        for source in taken_from
    ]
    last = _inlined(builder, other, [*carried[1], *elements, *kept[1]], _constants(builder, other), "")
    results = [*found[: first.carried], *last[: second.carried], *found[first.carried :], *last[second.carried :]]
    return builder.build(results)


def _moved(builder: GraphBuilder, value: int, moves: Sequence[Move], trips: int) -> int:
    """Elements of some trips as operators move those of all."""
    for kind, attributes in moves:
        here = {"shape": (trips, *integers(attributes, "shape")[1:])} if kind == "Reshape" else attributes
        (value,) = builder.add(kind, [value], here, name=f"{kind}.moved")
    return value


def _named(graph: Graph, value: int) -> tuple[str, TensorType]:
    return graph.values[value].name, graph.values[value].type


def _constants(builder: GraphBuilder, body: Graph) -> dict[int, int]:
    """The constants of a graph in another one."""
    return {value: builder.constant(array, body.values[value].name) for value, array in body.constants.items()}


def _trips(body: Graph, carried: int, scanned: Sequence[bool], stacked: Sequence[bool], trips: int) -> Graph:
    """The graph of some trips."""
    builder = GraphBuilder(body.name)
    first = carried + len(scanned)
    inputs: list[int] = []
    for slot, value in enumerate(body.inputs):
        name, type_ = body.values[value].name, body.values[value].type
        whole = replace(type_, shape=(trips, *type_.shape)) if carried <= slot < first else type_
        inputs.append(builder.input(name, whole))
    constants = _constants(builder, body)
    values = inputs[:carried]
    stacks: list[list[int]] = [[] for _ in stacked]
    for trip in range(trips):
        here = f"{body.name}.{trip}"
        elements = [
            taken(builder, inputs[carried + i], 0, trips - 1 - trip if backward else trip, f"{here}.x{i}")
            for i, backward in enumerate(scanned)
        ]
        results = _inlined(builder, body, [*values, *elements, *inputs[first:]], constants, f"{here}/")
        values = results[:carried]
        for stack, result in zip(stacks, results[carried:], strict=True):
            stack.append(result)
    for i, (stack, backward) in enumerate(zip(stacks, stacked, strict=True)):
        values.append(_stacked(builder, stack[::-1] if backward else stack, f"{body.name}.y{i}"))
    return builder.build(_settled(builder, values, {*inputs, *constants.values()}, body.name))


def _inlined(
    builder: GraphBuilder, body: Graph, inputs: Sequence[int], constants: Mapping[int, int], prefix: str
) -> list[int]:
    """Add the operators of a graph, and return what its outputs are."""
    known = {**constants, **dict(zip(body.inputs, inputs, strict=True))}
    for operator in body.operators:
        added = builder.add(
            operator.kind,
            [known[value] for value in operator.inputs],
            operator.attributes,
            name=prefix + operator.name,
            sources=operator.sources,
        )
        known.update(zip(operator.outputs, added, strict=True))
    return [known[output] for output in body.outputs]


def _stacked(builder: GraphBuilder, parts: Sequence[int], name: str) -> int:
    """Values along a new first dimension."""
    type_ = builder.type(parts[0])
    rows = [builder.add("Reshape", [one], {"shape": (1, *type_.shape)}, name=f"{name}.row")[0] for one in parts]
    return rows[0] if len(rows) == 1 else builder.add("Concat", rows, {"axis": 0}, name=name)[0]


def _settled(builder: GraphBuilder, outputs: Sequence[int], others: set[int], name: str) -> list[int]:
    """Outputs that are distinct results of operators."""
    settled: dict[int, None] = {}
    for i, output in enumerate(outputs):
        if output in settled or output in others:
            (output,) = builder.add("Identity", [output], name=f"{name}.last{i}")
        settled[output] = None
    return list(settled)


def layer_of(
    kind: str, attributes: Attributes, types: Sequence[TensorType], states: int, *, backward: bool, lengths: bool
) -> Repeat:
    """The steps of a recurrent layer of one direction as a loop.

    Scanned are x `[T, b, i]` and, with lengths, whether each sequence still runs, int64 `[T, b]`.

    Args:
        kind: LSTM, GRU or RNN.
        attributes: the layer's: one direction, layout 0, no lengths.
        types: of the loop's inputs: states `[1, b, n]`, x, with lengths which sequences run, then w, r, biases and
            peepholes as the layer has them.
        states: how many there are.
        backward: the direction.
        lengths: whether sequences differ in length.
    """
    return Repeat(
        trips=types[states].shape[0],
        carried=states,
        scanned=(backward,) * (1 + lengths),
        stacked=(backward,),
        body=partial(_steps, kind, attributes, tuple(types), states, lengths),
        nodes=_LAYER_NODES,
    )


def _steps(
    kind: str, attributes: Attributes, types: Sequence[TensorType], states: int, lengths: bool, steps: int
) -> Graph:
    """The graph of some steps of a layer. A sequence that is over keeps its states."""
    builder = GraphBuilder(kind)
    scanned = range(states, states + 1 + lengths)
    inputs = [
        builder.input(f"{kind}.{i}", replace(type_, shape=(steps, *type_.shape[1:])) if i in scanned else type_)
        for i, type_ in enumerate(types)
    ]
    before, x = inputs[:states], inputs[states]
    w, r, b, *peepholes = inputs[scanned.stop :]
    operands = [x, w, r, b, *before, *peepholes]
    if not lengths:
        y, *after = builder.add(kind, operands, attributes, name=kind)
        return builder.build([*after, y])
    (own,) = builder.add("ReduceSum", [inputs[states + 1]], {"axes": (0,), "keepdims": False}, name=f"{kind}.lengths")
    y, *after = builder.add(kind, [*operands, own], {**attributes, "lengths": True}, name=kind)
    (column,) = builder.add("Reshape", [own], {"shape": (1, *builder.type(own).shape, 1)}, name=f"{kind}.column")
    zero = builder.constant(np.zeros((), DType.INT64.numpy), f"{kind}.zero")
    (runs,) = builder.add("Less", [zero, column], name=f"{kind}.runs")
    kept = [
        builder.add("Where", [runs, new, old], name=f"{kind}.kept{i}")[0]
        for i, (new, old) in enumerate(zip(after, before, strict=True))
    ]
    return builder.build([*kept, y])
