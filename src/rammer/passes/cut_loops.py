"""cut_loops: a model with loops as a chain of graphs: the loops' bodies, and what lies before, between and behind.

    a, loop, b  ->  a; some trips, again and again; the rest of the trips; b

Each graph is compiled as any model is. What depends on constants alone is part of every graph that reads it. Trips of
one run are as many as make a program of a few thousand operators; if possible, they divide the trips of the loop.

Before all passes, behind long_layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from rammer.ir.chain import Argument, Chain, Link
from rammer.ir.graph import Array, Graph, Operator, Repeat, Value
from rammer.ir.types import TensorType
from rammer.operators.registry import OperatorDef, definition_of

_MOST_TRIPS = 128
_MOST_NODES = 4096
"""A run is of up to so many trips and, in all of them, operators: beginning a run then takes some 5 % of its time."""

_ALIGNMENT_BYTES = 256
"""What buffers of the scratch memory are multiples of."""

_STEP_BYTES = 16
"""What the addresses of arrays in a GPU's memory are multiples of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A chain and the graph of each of its links."""

    chain: Chain
    graphs: tuple[Graph, ...]


def cut(graph: Graph) -> Cut:
    """The chain of a graph; one without loops is a chain of one graph."""
    return _Cutter(graph).cut()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """An `Argument` before buffers have places: of a value of the model, or -1, -2, ... for what is no value of it."""

    value: int
    first_bytes: int = 0
    step_bytes: int = 0
    backward: bool = False
    turns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Piece:
    """A `Link` before buffers have places, and its graph."""

    graph: Graph
    runs: int
    inputs: tuple[_Use, ...]
    outputs: tuple[_Use, ...]

    @property
    def uses(self) -> tuple[_Use, ...]:
        return (*self.inputs, *self.outputs)


class _Cutter:
    """A graph as it is cut. Groups have numbers: loops the odd ones, in order, and what lies around them the even."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._makers = graph.producers()
        self._fixed = _of_constants(graph)
        self._made_in: dict[int, int] = {}
        self._groups: dict[int, list[Operator]] = {}
        self._sizes_bytes = {value.id: value.type.nbytes for value in graph.values.values()}
        self._between = 0

    def cut(self) -> Cut:
        """The chain and its graphs."""
        loops = self._find_groups()
        crossing = self._crossing()
        pieces: list[_Piece] = []
        for number in range(2 * loops + 1):
            operators = self._groups.get(number, [])
            made = [value for value in crossing if self._made_in[value] == number]
            if number % 2:
                pieces += self._loop(operators[0], made)
            elif made:
                pieces.append(self._plain(operators, made))
        return Cut(chain=self._chain(pieces), graphs=tuple(piece.graph for piece in pieces))

    def _find_groups(self) -> int:
        """Give each operator its group; returns the number of loops."""
        graph, loops = self._graph, 0
        self._made_in.update(dict.fromkeys(graph.inputs, -1))
        for operator in graph.operators:
            if self._fixed.issuperset(operator.outputs) and operator.repeat is None:
                continue
            known = [self._made_in[value] for value in operator.inputs if value in self._made_in]
            group = max([0, *(made + made % 2 for made in known)])
            if operator.repeat is not None:
                group = 2 * loops + 1
                loops += 1
            self._groups.setdefault(group, []).append(operator)
            self._made_in.update(dict.fromkeys(operator.outputs, group))
        return loops

    def _crossing(self) -> list[int]:
        """The values that one group makes and another reads, or the model gives, in order; inputs are none of them.

        Values of constants alone that have to be arrays are made right before they are read.
        """
        read: dict[int, int] = {}
        for group, operators in sorted(self._groups.items()):
            for operator in operators:
                count = 0 if operator.repeat is None else operator.repeat.carried + len(operator.repeat.scanned)
                for slot, value in enumerate(operator.inputs):
                    if value in self._fixed and slot < count:
                        self._made_in.setdefault(value, group - 1)
                    if value in self._made_in and self._made_in[value] not in (-1, group):
                        read.setdefault(value, group)
        for value in self._graph.outputs:
            self._made_in.setdefault(value, 0)
            read.setdefault(value, len(self._groups))
        return [value for value in self._graph.values if value in read]

    def _plain(self, operators: Sequence[Operator], made: Sequence[int]) -> _Piece:
        """The piece of operators that are no loop."""
        assembly = _Assembly(self._graph, self._makers)
        own = {output for operator in operators for output in operator.outputs}
        read = dict.fromkeys(
            value
            for operator in operators
            for value in operator.inputs
            if value in self._made_in and value not in own and value not in self._fixed
        )
        for value in read:
            assembly.input(value)
        for operator in operators:
            assembly.insert(operator)
        return _Piece(
            graph=assembly.finish([assembly.result(value) for value in made]),
            runs=1,
            inputs=tuple(_Use(value=value) for value in read),
            outputs=tuple(_Use(value=value) for value in made),
        )

    def _loop(self, operator: Operator, made: Sequence[int]) -> list[_Piece]:
        """The pieces of a loop: the main part, and what is left of it."""
        repeat = operator.repeat
        assert repeat is not None
        elements = [operator.inputs[repeat.carried + i] for i in range(len(repeat.scanned))]
        elements += [operator.outputs[repeat.carried + i] for i in range(len(repeat.stacked))]
        bytes_each = [self._sizes_bytes[value] // repeat.trips for value in elements]
        trips = _trips_of_run(repeat, bytes_each)
        runs, rest = divmod(repeat.trips, trips)
        flags = (*repeat.scanned, *repeat.stacked)
        # What is left comes last, unless that is in the front of all arrays: the others' parts stay aligned.
        rest_first = bool(rest) and bool(flags) and all(flags)
        parts = [(runs, trips, rest if rest_first else 0)]
        if rest:
            parts.insert(0 if rest_first else 1, (1, rest, 0 if rest_first else runs * trips))
        entering: tuple[int, ...] = operator.inputs[: repeat.carried]
        pieces: list[_Piece] = []
        for i, (part_runs, part_trips, done) in enumerate(parts):
            last = i + 1 == len(parts)
            leaving = tuple(value if last else self._fresh(value) for value in operator.outputs[: repeat.carried])
            pieces.append(self._part(operator, repeat, made, entering, leaving, (part_runs, part_trips, done)))
            entering = leaving
        return pieces

    def _part(
        self,
        operator: Operator,
        repeat: Repeat,
        made: Sequence[int],
        entering: Sequence[int],
        leaving: Sequence[int],
        part: tuple[int, int, int],
    ) -> _Piece:
        """So many runs of so many trips each, behind those that are done."""
        runs, trips, done = part
        body = repeat.body(trips)
        assembly = _Assembly(self._graph, self._makers)
        first_fixed = repeat.carried + len(repeat.scanned)
        turns = [(self._fresh(v), self._fresh(v)) if runs > 1 else () for v in entering]

        def moving(value: int, *, backward: bool) -> _Use:
            each = self._sizes_bytes[value] // repeat.trips
            first = repeat.trips - done - trips if backward else done
            step_bytes = trips * each if runs > 1 else 0
            return _Use(value=value, first_bytes=first * each, step_bytes=step_bytes, backward=backward)

        inputs: list[_Use] = []
        known: dict[int, int] = {}
        for slot, (own, value) in enumerate(zip(body.inputs, operator.inputs, strict=True)):
            if slot >= first_fixed and value in self._fixed:
                known[own] = assembly.read(value)
                continue
            known[own] = assembly.fresh_input(body.values[own])
            if slot < repeat.carried:
                inputs.append(_Use(value=entering[slot], turns=turns[slot]))
            elif slot < first_fixed:
                inputs.append(moving(value, backward=repeat.scanned[slot - repeat.carried]))
            else:
                inputs.append(_Use(value=value))
        assembly.splice(body, known, operator)
        outputs: list[_Use] = []
        results: list[int] = []
        for place, (own, value) in enumerate(zip(body.outputs, operator.outputs, strict=True)):
            if place < repeat.carried:
                outputs.append(_Use(value=leaving[place], turns=turns[place]))
            elif value in made:
                outputs.append(moving(value, backward=repeat.stacked[place - repeat.carried]))
            else:
                continue
            results.append(known[own])
        graph = replace(assembly.finish(results), name=operator.name)
        return _Piece(graph=graph, runs=runs, inputs=tuple(inputs), outputs=tuple(outputs))

    def _fresh(self, like: int) -> int:
        """A buffer that is no value of the graph, as large as a value."""
        self._between -= 1
        self._sizes_bytes[self._between] = self._sizes_bytes[like]
        return self._between

    def _chain(self, pieces: Sequence[_Piece]) -> Chain:
        """Buffers in the order of their first use, each where nothing lies that is still to be read."""
        graph = self._graph
        numbers = {value: number for number, value in enumerate((*graph.inputs, *graph.outputs))}
        spans: dict[int, tuple[int, int]] = {}
        for number, piece in enumerate(pieces):
            for value in (value for use in piece.uses for value in (use.value, *use.turns)):
                if value not in numbers:
                    spans[value] = (spans.get(value, (number, number))[0], number)
        offsets = _laid_out([(*spans[value], self._sizes_bytes[value]) for value in spans])
        scratch = [(offset, self._sizes_bytes[value]) for offset, value in zip(offsets, spans, strict=True)]
        numbers |= {value: len(numbers) + i for i, value in enumerate(spans)}

        def argument(use: _Use) -> Argument:
            turns = tuple(numbers[value] for value in use.turns)
            return Argument(numbers[use.value], use.first_bytes, use.step_bytes, use.backward, turns)

        links = [
            Link(
                runs=piece.runs,
                array_bytes=tuple(
                    piece.graph.values[port].type.nbytes for port in (*piece.graph.inputs, *piece.graph.outputs)
                ),
                inputs=tuple(map(argument, piece.inputs)),
                outputs=tuple(map(argument, piece.outputs)),
            )
            for piece in pieces
        ]
        return Chain(
            states=len(graph.states),
            input_bytes=tuple(self._sizes_bytes[value] for value in graph.inputs),
            output_bytes=tuple(self._sizes_bytes[value] for value in graph.outputs),
            scratch=tuple(scratch),
            links=tuple(links),
        )


def _trips_of_run(repeat: Repeat, bytes_each: Sequence[int]) -> int:
    """How many trips are one program."""
    grain = next(grain for grain in (1, 2, 4, 8, 16) if all(grain * size % _STEP_BYTES == 0 for size in bytes_each))
    most = min(repeat.trips, max(grain, min(_MOST_TRIPS, _MOST_NODES // repeat.nodes) // grain * grain))
    for trips in range(most, most // 2, -grain):
        if repeat.trips % trips == 0:
            return trips
    return most


def _of_constants(graph: Graph) -> frozenset[int]:
    """The values that follow from constants alone; loops are computed, whatever they read."""
    found = set(graph.constants)
    for operator in graph.operators:
        if operator.repeat is None and found.issuperset(operator.inputs):
            found.update(operator.outputs)
    return frozenset(found)


def _laid_out(spans: Sequence[tuple[int, int, int]]) -> list[int]:
    """Where buffers begin, by the first and last link that uses each, and its bytes."""
    offsets: list[int] = []
    for first, last, size in spans:
        taken = sorted(
            (offset, offset + other_size)
            for offset, (other_first, other_last, other_size) in zip(offsets, spans, strict=False)
            if other_first <= last and first <= other_last
        )
        place = 0
        for begin, end in taken:
            if begin - place >= size:
                break
            place = max(place, -(-end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES)
        offsets.append(place)
    return offsets


class _Assembly:
    """A graph that is put together from parts of another one."""

    def __init__(self, graph: Graph, makers: dict[int, Operator]) -> None:
        self._graph, self._makers = graph, makers
        self._known: dict[int, int] = {}
        self._values: dict[int, Value] = {}
        self._operators: list[Operator] = []
        self._inputs: list[int] = []
        self._constants: dict[int, Array] = {}

    def input(self, value: int) -> None:
        """A value of the other graph is an input of this one."""
        self._known[value] = self.fresh_input(self._graph.values[value])

    def fresh_input(self, like: Value) -> int:
        """A further input."""
        self._inputs.append(self._value(like.name, like.type))
        return self._inputs[-1]

    def insert(self, operator: Operator) -> None:
        """Add an operator of the other graph, whose operands are inputs, results or follow from constants."""
        inputs = tuple(map(self.read, operator.inputs))
        outputs = tuple(self._value(self._graph.values[o].name, self._graph.values[o].type) for o in operator.outputs)
        self._known.update(zip(operator.outputs, outputs, strict=True))
        self._operators.append(replace(operator, inputs=inputs, outputs=outputs))

    def splice(self, body: Graph, known: dict[int, int], operator: Operator) -> None:
        """Add the operators of a body; `known` has its inputs, and gets its other values."""
        for value, array in body.constants.items():
            known[value] = self._constant(array, body.values[value].name, body.values[value].type)
        for part in body.operators:
            for output in part.outputs:
                known[output] = self._value(body.values[output].name, body.values[output].type)
            inputs, outputs = (tuple(known[value] for value in side) for side in (part.inputs, part.outputs))
            self._operators.append(
                replace(part, inputs=inputs, outputs=outputs, sources=part.sources or operator.sources)
            )

    def result(self, value: int) -> int:
        """A value of the other graph as the result of an operator; see `finish`."""
        found = self.read(value)
        if found not in self._constants:
            return found
        definition = definition_of("Identity")
        assert isinstance(definition, OperatorDef)
        like = self._graph.values[value]
        output = self._value(like.name, like.type)
        self._operators.append(
            Operator(
                kind="Identity",
                name=like.name,
                inputs=(found,),
                outputs=(output,),
                expr=definition.build([like.type], {}),
            )
        )
        return output

    def finish(self, outputs: Sequence[int]) -> Graph:
        """The graph, whose outputs are distinct results of its operators."""
        return Graph(
            name=self._graph.name,
            values=MappingProxyType(self._values),
            operators=tuple(self._operators),
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
            constants=MappingProxyType(self._constants),
        )

    def read(self, value: int) -> int:
        """A value of the other graph in this one."""
        if value in self._known:
            return self._known[value]
        if value in self._graph.constants:
            like = self._graph.values[value]
            self._known[value] = self._constant(self._graph.constants[value], like.name, like.type)
        else:
            self.insert(self._makers[value])
        return self._known[value]

    def _constant(self, array: Array, name: str, type_: TensorType) -> int:
        value = self._value(name, type_)
        self._constants[value] = array
        return value

    def _value(self, name: str, type_: TensorType) -> int:
        value = len(self._values)
        self._values[value] = Value(id=value, name=name, type=type_)
        return value
