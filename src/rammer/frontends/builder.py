"""Tensors during import, and the graph that grows under them. Small constants are computed as they appear.

Exporters write shapes as arithmetic: Shape, Gather, Concat, Reshape. Shapes being static, everything on that path is
a constant, and it has to be known before the Reshape can be read; so operators on small constants are evaluated at
once, and constants enter the graph only when an operator of the graph reads them.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from hashlib import sha256

import numpy as np

from rammer.frontends.alike import AlikeValues
from rammer.frontends.intervals import ANYTHING, Interval, closed, interval_of, settled
from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import Array, Attributes, Graph, Repeat, SourceLocation, State
from rammer.ir.types import DType, TensorType
from rammer.operators.attributes import flag, integers
from rammer.operators.builder import GraphBuilder
from rammer.operators.registry import CompositeDef, definition_of
from rammer.operators.repeat import output_types

_FOLDED_ELEMENTS = 4096
"""Operators are evaluated during import if operands and results have no more elements than this."""

_KEPT = frozenset({"Centre"})
"""Kinds that passes recognise patterns by, though their operands be constants."""

_FEW_ELEMENTS = 64
"""Of integers that are no more it is known which scalars they are, as exporters compute shapes from these."""

_MOVES = frozenset({"Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Transpose"})
"""Kinds whose results are made of elements of the first operand, or of all in `Concat`."""

_SINGLE = frozenset({"Add", "Div", "Equal", "Less", "Max", "Min", "Mul", "Sub", "Where"})
"""Kinds that compute shapes element by element."""

_CHAINS = {"ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Mul", "ReduceSum": "Add"}
"""Reductions, and what they are of two scalars."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Count:
    """How many elements of a tensor count along an axis, as an int64 that is computed as the model runs."""

    axis: int
    value: Operand


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operand:
    """A tensor during import: a constant with its `array`, or the graph's `value`.

    With a `count`, its size depends on the data, and the type's is as large as it can be.
    """

    name: str
    type: TensorType
    array: Array | None = None
    value: int | None = None
    count: Count | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents."""
        return self.type.shape

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return self.type.rank

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    def like(self, other: Operand) -> Operand:
        """Another operand, of which as much counts."""
        return replace(other, count=self.count)


@dataclass(frozen=True, slots=True)
class _Scalars:
    """The elements of a small tensor, one by one."""

    elements: tuple[Operand, ...]
    shape: tuple[int, ...]

    @property
    def are_known(self) -> bool:
        """Whether all are constants."""
        return all(element.array is not None for element in self.elements)


class FoldingBuilder:
    """Adds operators on operands to a graph, or evaluates them."""

    def __init__(self, name: str) -> None:
        self._builder = GraphBuilder(name)
        self._constants: dict[Operand, int] = {}
        self._named: dict[int, bool] = {}  # results of operators
        self._intervals: dict[int, Interval] = {}
        self._elements: dict[int, tuple[Operand, ...]] = {}
        self._alike = AlikeValues()

    def input(self, name: str, type_: TensorType) -> Operand:
        """A new graph input."""
        return Operand(name=name, type=type_, value=self._builder.input(name, type_))

    def constant(self, array: Array, name: str) -> Operand:
        """A constant; the array must not change afterwards."""
        return Operand(name=name, type=TensorType(DType.of(array), tuple(array.shape)), array=array)

    def add(
        self, kind: str, operands: Sequence[Operand], attributes: Attributes, *, name: str, source: SourceLocation
    ) -> tuple[Operand, ...]:
        """Results of an operator.

        Raises:
            ModelError: the operands or attributes do not fit; the error names the source.
        """
        same = self._settled(kind, operands, name)
        if same is not None:
            return (same,)
        folded = self._folded(kind, operands, attributes, source)
        if folded is not None:
            return tuple(self.constant(array, name) for array in folded)
        scalars = self._made_of(kind, operands, attributes, name, source)
        if scalars is not None and (kind not in _MOVES or not scalars.shape or scalars.are_known):
            return (self._together(scalars, name, source),)
        inputs = [self._value_of(operand) for operand in operands]
        outputs = self._builder.add(kind, inputs, attributes, name=name, sources=(source,))
        self._named.update(dict.fromkeys(outputs, False))
        self._alike.add(kind, [self._key(operand) for operand in operands], attributes, outputs)
        results = tuple(Operand(name=name, type=self._builder.type(output), value=output) for output in outputs)
        intervals = [self.interval(operand) for operand in operands]
        if kind == "Cast":
            intervals = [closed(intervals[0], operands[0].dtype)]
        self._lies_in(outputs[0], interval_of(kind, intervals, results[0].dtype))
        if scalars is not None:
            self._elements[outputs[0]] = scalars.elements
        return results

    def repeat(
        self, repeat: Repeat, operands: Sequence[Operand], *, name: str, source: SourceLocation
    ) -> list[Operand]:
        """Results of a loop, which is never evaluated here.

        Raises:
            TensorSizeError: no tensor can be as large as a result.
        """
        inputs = [self._value_of(operand) for operand in operands]
        outputs = self._builder.add_repeat(repeat, inputs, output_types(repeat), name=name, sources=(source,))
        self._named.update(dict.fromkeys(outputs, False))
        return [Operand(name=name, type=self._builder.type(output), value=output) for output in outputs]

    def interval(self, operand: Operand) -> Interval:
        """Where all elements lie, as far as that is known: integers only."""
        if operand.dtype.is_float or operand.dtype is DType.BOOL or not operand.type.size:
            return ANYTHING
        if operand.array is not None:
            return Interval(int(operand.array.min()), int(operand.array.max()))
        return ANYTHING if operand.value is None else self._intervals.get(self._alike.of(operand.value), ANYTHING)

    def bound(self, operand: Operand, least: float, most: float) -> None:
        """Say where all elements lie."""
        if operand.value is not None:
            self._lies_in(operand.value, Interval(least, most))

    def _lies_in(self, value: int, interval: Interval) -> None:
        """Take note of where a value lies, and all that are computed alike."""
        first = self._alike.of(value)
        self._intervals[first] = self._intervals.get(first, ANYTHING).within(interval)

    def most(self, operand: Operand) -> int | None:
        """What an integer is at most, of several elements the greatest; None where that is not known."""
        most = self.interval(operand).most
        return None if math.isinf(most) else int(most)

    def are_equal(self, a: Operand, b: Operand) -> bool:
        """Whether two operands are known to be equal: the same constants, or computed alike."""
        return self._key(a) == self._key(b)

    def elements(self, operand: Operand, *, name: str, source: SourceLocation) -> tuple[Operand, ...] | None:
        """The scalars that integers or truth values are, in order; None where there are many, or only all are known."""
        size = operand.type.size
        if operand.dtype.is_float or size > _FEW_ELEMENTS:
            return None
        if operand.array is not None:
            return tuple(self.constant(np.array(element), name) for element in operand.array.flat)
        if operand.value in self._elements:
            return self._elements[operand.value]
        if size != 1:
            return None
        return self.add("Reshape", [operand], {"shape": ()}, name=name, source=source) if operand.rank else (operand,)

    def _made_of(
        self, kind: str, operands: Sequence[Operand], attributes: Attributes, name: str, source: SourceLocation
    ) -> _Scalars | None:
        """The scalars that a result is; None where they are not known, or of no use."""
        if kind not in _MOVES and kind not in _SINGLE and kind not in _CHAINS:
            return None
        made = operands if kind in _SINGLE or kind == "Concat" else operands[:1]
        is_start = kind == "Reshape" and not made[0].rank
        if not is_start and not any(operand.value in self._elements for operand in made):
            return None
        every: list[Operand] = []
        numbers: list[Array] = []
        for operand in made:
            scalars = self.elements(operand, name=name, source=source)
            if scalars is None:
                return None
            numbers.append(np.arange(len(every), len(every) + len(scalars)).reshape(operand.shape))
            every += scalars

        def computed(kind: str, *scalars: Operand) -> Operand:
            return self.add(kind, scalars, {}, name=name, source=source)[0]

        if kind in _SINGLE:
            alike = np.broadcast_arrays(*numbers)
            rows = zip(*(one.ravel().tolist() for one in alike), strict=True)
            return _Scalars(tuple(computed(kind, *(every[each] for each in row)) for row in rows), alike[0].shape)
        if kind in _CHAINS:
            if not every or len(integers(attributes, "axes")) < made[0].rank:
                return None
            total = reduce(partial(computed, _CHAINS[kind]), every)
            return _Scalars((total,), (1,) * made[0].rank if flag(attributes, "keepdims") else ())
        moved = [self.constant(own, kind) for own in numbers]  # where these go, the scalars go
        folded = self._folded(kind, [*moved, *operands[len(made) :]], attributes, source)
        if folded is None or not 0 < folded[0].size <= _FEW_ELEMENTS:
            return None
        return _Scalars(tuple(every[each] for each in folded[0].ravel().tolist()), folded[0].shape)

    def _together(self, scalars: _Scalars, name: str, source: SourceLocation) -> Operand:
        """Scalars as one tensor."""
        elements, shape = scalars.elements, scalars.shape
        if not shape:
            return elements[0]
        arrays = [element.array for element in elements if element.array is not None]
        if len(arrays) == len(elements):
            return self.constant(np.stack(arrays).reshape(shape), name)
        add = partial(self.add, name=name, source=source)
        rows = [add("Reshape", [element], {"shape": (1,)})[0] for element in elements]
        line = add("Concat", rows, {"axis": 0})[0] if len(rows) > 1 else rows[0]
        return line if len(shape) == 1 else add("Reshape", [line], {"shape": shape})[0]

    def name(self, operand: Operand, name: str) -> None:
        """Call an operator's result as the model does. The first name stays."""
        if operand.value is not None and self._named.get(operand.value) is False:
            self._named[operand.value] = True
            self._builder.rename(operand.value, name)

    def finish(
        self, outputs: Sequence[tuple[str, Operand]], source: SourceLocation, states: Sequence[State] = ()
    ) -> Graph:
        """The graph. Its outputs are distinct results of operators and carry their names.

        Args:
            outputs: name and operand of each, in order; inputs, constants and repeated operands are copied.
            source: what the copies stand for.
            states: what the last inputs and outputs are.
        """
        values: dict[int, None] = {}
        for name, operand in outputs:
            value = operand.value
            if value is None or value not in self._named or value in values:
                (value,) = self._builder.add("Identity", [self._value_of(operand)], name=name, sources=(source,))
            self._builder.rename(value, name)
            values[value] = None
        return self._builder.build(tuple(values), states)

    def _settled(self, kind: str, operands: Sequence[Operand], name: str) -> Operand | None:
        """What is known to be the result of an operator on scalars, None where it has to be computed.

        So the condition of a loop is known to fail from some trip on, where that alone is what ends it at the latest,
        and sizes that are computed in two ways are known to be one.
        """
        if any(operand.rank or operand.type.size != 1 for operand in operands):
            return None
        if kind in ("And", "Or"):
            for known, other in (operands, reversed(operands)):
                if known.array is not None:
                    decides = bool(known.array) is (kind == "Or")
                    return known if decides else other
        if kind == "Where" and operands[0].array is not None:
            return operands[1] if operands[0].array.item() else operands[2]
        either = operands[1:] if kind == "Branch" else operands if kind in ("Max", "Min") else ()
        if len(either) == 2 and self.are_equal(*either):
            return either[0]
        result = settled(kind, [self.interval(operand) for operand in operands])
        if isinstance(result, bool):
            return self.constant(np.array(result), name)
        return None if result is None else operands[result]

    def _key(self, operand: Operand) -> Hashable:
        """What equal operands share."""
        if operand.value is not None:
            return self._alike.of(operand.value)
        array = operand.array
        if array is None or array.size > _FOLDED_ELEMENTS:
            return operand
        return (operand.type, sha256(array.tobytes()).digest())

    def _value_of(self, operand: Operand) -> int:
        if operand.value is not None:
            return operand.value
        if operand.array is None:
            raise ValueError(f"operand {operand.name} is neither a constant nor a value")
        if operand not in self._constants:
            self._constants[operand] = self._builder.constant(operand.array, operand.name)
        return self._constants[operand]

    def _folded(
        self, kind: str, operands: Sequence[Operand], attributes: Attributes, source: SourceLocation
    ) -> tuple[Array, ...] | None:
        """The results, if they follow from small constants and are small themselves."""
        if kind in _KEPT:
            return None
        arrays = [operand.array for operand in operands if operand.array is not None]
        if len(arrays) < len(operands) or sum(array.size for array in arrays) > _FOLDED_ELEMENTS:
            return None
        scratch, parts = GraphBuilder(kind), GraphBuilder(kind)
        inputs = [scratch.constant(array, kind) for array in arrays]
        graph = scratch.build(scratch.add(kind, inputs, attributes, name=kind, sources=(source,)))
        if sum(graph.values[output].type.size for output in graph.outputs) > _FOLDED_ELEMENTS:
            return None
        definition = definition_of(kind)
        if isinstance(definition, CompositeDef):
            inputs = [parts.constant(array, kind) for array in arrays]
            graph = parts.build(definition.expand(parts, inputs, attributes, kind))
        return evaluate_graph(graph, ())
