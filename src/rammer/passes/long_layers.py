"""long_layers: recurrent layers of very many steps become loops, one for each direction, which stay loops.

    y, h = GRU(x, ...)  ->  for each direction: h, y = Repeat{steps}(h, x, ...)

Before all passes, and before loops are cut out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rammer.ir.graph import Attributes, Graph, Operator
from rammer.ir.types import DType
from rammer.operators.recurrent import LAYERS, layer_states, single_directions, steps_of
from rammer.operators.repeat import layer_of, output_types
from rammer.passes.helpers.rewrite import Rewriter

MOST_STEPS = 512
"""Layers of more steps are loops: as one program, which is quicker, each takes some 3 ms to compile."""


def run(graph: Graph) -> Graph:
    """The graph with its long layers as loops; see the module."""
    long = {
        operator.outputs
        for operator in graph.operators
        if operator.kind in LAYERS and steps_of(operator, graph.values[operator.inputs[0]].type) > MOST_STEPS
    }
    if not long:
        return graph
    rewriter = Rewriter(graph)
    for operator in graph.operators:
        if operator.outputs in long:
            _Layer(rewriter, operator).replace()
        else:
            rewriter.insert(operator)
    return rewriter.finish()


class _Layer:
    """One layer as it is rewritten; operands are those of `rammer.operators.recurrent`."""

    def __init__(self, rewriter: Rewriter, operator: Operator) -> None:
        self._rewriter, self._operator = rewriter, operator
        self._states = layer_states(operator.kind)
        self._added = 0
        self._batch_first = bool(operator.attributes["layout"])
        count = len(operator.inputs) - bool(operator.attributes.get("lengths"))
        self._lengths = operator.inputs[count:]
        x, *self._weights = *operator.inputs[:4], *operator.inputs[4 + self._states : count]
        self._x = self._turned(x)
        self._initial = [self._turned(value) for value in operator.inputs[4 : 4 + self._states]]
        self._running = [self._runs(length) for length in self._lengths]

    def replace(self) -> None:
        """Put the loops in the layer's place."""
        operator, rewriter = self._operator, self._rewriter
        lasts: list[list[int]] = [[] for _ in range(self._states)]
        ys: list[int] = []
        for d, (backward, attributes) in enumerate(single_directions(operator.kind, operator.attributes)):
            *states, y = self._loop(d, attributes, backward=backward)
            ys.append(y)
            for last, state in zip(lasts, states, strict=True):
                last.append(state)
        y, *finals = self._joined(ys, 1), *(self._joined(last, 0) for last in lasts)
        finals = [self._ended(state) for state in finals]
        for old, new in zip(operator.outputs, [self._turned(y, back=True), *map(self._turned, finals)], strict=True):
            rewriter.replace(old, new)

    def _loop(self, d: int, attributes: Attributes, *, backward: bool) -> tuple[int, ...]:
        """The loop of one direction: its last states and Y."""
        operator, rewriter = self._operator, self._rewriter
        initial = [self._direction(value, d) for value in self._initial]
        weights = [self._direction(value, d) for value in self._weights]
        inputs = [*initial, self._x, *self._running, *weights]
        repeat = layer_of(
            operator.kind,
            attributes,
            [rewriter.type(value) for value in inputs],
            self._states,
            backward=backward,
            lengths=bool(self._lengths),
        )
        name = f"{operator.name}.d{d}"
        outputs = tuple(rewriter.value(type_, f"{name}.{i}") for i, type_ in enumerate(output_types(repeat)))
        rewriter.insert(
            Operator(
                kind="Repeat",
                name=name,
                inputs=tuple(inputs),
                outputs=outputs,
                expr=None,
                sources=operator.sources,
                repeat=repeat,
            )
        )
        return outputs

    def _runs(self, lengths: int) -> int:
        """Whether each sequence still runs at each step, int64 `[T, b]`."""
        steps = np.arange(self._rewriter.type(self._x).shape[0], dtype=np.int64).reshape(-1, 1)
        row = self._add("Reshape", [lengths], {"shape": (1, *self._rewriter.type(lengths).shape)})
        below = self._add("Less", [self._rewriter.constant(steps, f"{self._operator.name}.steps"), row])
        return self._add("Cast", [below], {"to": DType.INT64})

    def _ended(self, state: int) -> int:
        """A last state `[D, b, n]`, 0 for sequences without steps."""
        for length in self._lengths:
            column = self._add("Reshape", [length], {"shape": (1, *self._rewriter.type(length).shape, 1)})
            none = self._rewriter.constant(np.zeros((), np.int64), f"{self._operator.name}.none")
            some = self._add("Less", [none, column])
            zero = np.zeros((), self._rewriter.type(state).dtype.numpy)
            state = self._add("Where", [some, state, self._rewriter.constant(zero, f"{self._operator.name}.zero")])
        return state

    def _direction(self, value: int, d: int) -> int:
        """The part of a value that is one direction's, in dimension 0."""
        shape = self._rewriter.type(value).shape
        if shape[0] == 1:
            return value
        starts, sizes = (d, *(0 for _ in shape[1:])), (1, *shape[1:])
        return self._add("Slice", [value], {"starts": starts, "steps": (1,) * len(shape), "sizes": sizes})

    def _joined(self, parts: Sequence[int], axis: int) -> int:
        return parts[0] if len(parts) == 1 else self._add("Concat", parts, {"axis": axis})

    def _turned(self, value: int, *, back: bool = False) -> int:
        """X or a state with time or the direction first, or Y `[T, D, b, n]` with the batch first again."""
        if not self._batch_first:
            return value
        return self._add("Transpose", [value], {"perm": (2, 0, 1, 3) if back else (1, 0, 2)})

    def _add(self, kind: str, inputs: Sequence[int], attributes: Attributes | None = None) -> int:
        self._added += 1
        operator = self._operator
        name = f"{operator.name}.around{self._added}"
        return self._rewriter.add(kind, inputs, attributes or {}, name=name, sources=operator.sources)
