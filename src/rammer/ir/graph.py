"""The data-flow graph: immutable operators over typed values, each defined by a tensor expression."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rammer.ir.expr import TensorExpr
from rammer.ir.recipe import Recipe
from rammer.ir.types import DType, Layout, TensorType

Array = npt.NDArray[np.generic]
Attribute = bool | int | float | str | DType | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Attributes = Mapping[str, Attribute]


def fingerprint(array: Array) -> bytes:
    """Of an array's content, bit for bit: 0.0 and -0.0 differ."""
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data, digest_size=32).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A node of the user's model: what error messages and reports point at."""

    model: str
    node: str
    op_type: str

    def __str__(self) -> str:
        return f"{self.op_type} node '{self.node}' of {self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A tensor that flows along an edge. `layout` is None for the dense row-major order."""

    id: int
    name: str
    type: TensorType
    layout: Layout | None = None

    @property
    def storage(self) -> Layout:
        """The layout, row-major where none was chosen."""
        return Layout.row_major(self.type.shape) if self.layout is None else self.layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One node: `outputs = expr(inputs)`.

    `inputs[i]` is slot i of `expr`, `outputs[j]` its output j. A composite operator (a recurrent layer) has no
    expression; the pass `unroll` replaces it by operators that do. A loop that stays one has a `repeat` instead, and
    is cut out before passes run. After fusion `kind` joins the kinds ("Conv+Relu") and `attributes` are empty.
    `sources` are the model's nodes it stands for. With a `predicate`, a value of one bool, it need not run where that
    does not hold: nobody looks at its results then.
    """

    kind: str
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    expr: TensorExpr | None
    attributes: Attributes = field(default_factory=dict)
    sources: tuple[SourceLocation, ...] = ()
    repeat: Repeat | None = None
    predicate: int | None = None

    @property
    def needs(self) -> tuple[int, ...]:
        """The values that have to be there before it runs."""
        return self.inputs if self.predicate is None else (*self.inputs, self.predicate)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Repeat:
    """A loop: so many trips of one body.

    The operator's inputs are the first values of what is carried from trip to trip, then the scanned tensors, of which
    a trip takes one element along dimension 0, then what is the same in all trips. Its outputs are the last carried
    values, then the tensors that trips give an element each of, along dimension 0.

    Attributes:
        trips: how many, 1 or more.
        carried: how many of the values are carried.
        scanned: for each scanned input, whether trips take its elements from the last to the first.
        stacked: the same for each output that trips give elements of.
        body: the graph of so many trips, one after another; scanned and stacked tensors have as many elements.
        nodes: about how many operators a trip has.
    """

    trips: int
    carried: int
    scanned: tuple[bool, ...]
    stacked: tuple[bool, ...]
    body: Callable[[int], Graph]
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """A value that stays from run to run: `initial` before the first one, then what the run before wrote.

    In place, a run stores some elements of it; what the others hold, they hold in the next run, too.
    """

    name: str
    initial: Array
    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """A model: operators in topological order over values with dense ids.

    `inputs` and `outputs` are value ids in the model's order; `constants` maps value ids to row-major arrays. The last
    inputs are what the run reads of the `states`, one each in their order, and the last outputs what it leaves in them.
    `recipes` say how some constants follow from less.
    """

    name: str
    values: Mapping[int, Value]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, Array]
    states: tuple[State, ...] = ()
    recipes: Mapping[int, Recipe] = field(default_factory=dict)

    @property
    def updated(self) -> dict[int, int]:
        """The states in place: what a run reads of each, by the value that it leaves."""
        count = len(self.states)
        ends = zip(self.outputs[len(self.outputs) - count :], self.inputs[len(self.inputs) - count :], strict=True)
        return {new: old for state, (new, old) in zip(self.states, ends, strict=True) if state.in_place}

    def producers(self) -> dict[int, Operator]:
        """The operator that makes each value; inputs and constants have none."""
        return {output: operator for operator in self.operators for output in operator.outputs}

    def consumers(self) -> dict[int, list[Operator]]:
        """The operators that read each value, in order, once each; graph outputs are not counted."""
        found: dict[int, list[Operator]] = {}
        for operator in self.operators:
            for value in dict.fromkeys(operator.inputs):
                found.setdefault(value, []).append(operator)
        return found

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        def show(value: int) -> str:
            return f"%{value} {self.values[value].type}"

        yield f"graph {self.name}({', '.join(map(show, self.inputs))})"
        for operator in self.operators:
            left = ", ".join(map(show, operator.outputs))
            right = ", ".join(f"%{i}{'c' if i in self.constants else ''}" for i in operator.inputs)
            only = "" if operator.predicate is None else f" if %{operator.predicate}"
            yield f"  {left} = {operator.kind}({right}){only}  # {operator.name}"
        yield f"  return {', '.join(map(show, self.outputs))}"
