"""Tensors during import, and the graph that grows under them. Small constants are computed as they appear.

Exporters write shapes as arithmetic: Shape, Gather, Concat, Reshape. Shapes being static, everything on that path is
a constant, and it has to be known before the Reshape can be read; so operators on small constants are evaluated at
once, and constants enter the graph only when an operator of the graph reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rammer.ir.evaluate import evaluate_graph
from rammer.ir.graph import Array, Attributes, Graph, Repeat, SourceLocation, State
from rammer.ir.types import DType, TensorType
from rammer.operators.builder import GraphBuilder
from rammer.operators.registry import CompositeDef, definition_of
from rammer.operators.repeat import output_types

_FOLDED_ELEMENTS = 4096
"""Operators are evaluated during import if operands and results have no more elements than this."""

_KEPT = frozenset({"Centre"})
"""Kinds that passes recognise patterns by, though their operands be constants."""

_SAME_ELEMENTS = frozenset({"Identity", "Reshape"})


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


class FoldingBuilder:
    """Adds operators on operands to a graph, or evaluates them."""

    def __init__(self, name: str) -> None:
        self._builder = GraphBuilder(name)
        self._constants: dict[Operand, int] = {}
        self._named: dict[int, bool] = {}  # results of operators
        self._most: dict[int, int] = {}

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
        same = _settled(kind, operands)
        if same is not None:
            return (same,)
        folded = self._folded(kind, operands, attributes, source)
        if folded is not None:
            return tuple(self.constant(array, name) for array in folded)
        inputs = [self._value_of(operand) for operand in operands]
        outputs = self._builder.add(kind, inputs, attributes, name=name, sources=(source,))
        self._named.update(dict.fromkeys(outputs, False))
        if (most := self._most_of(kind, operands)) is not None:
            self._most[outputs[0]] = most
        return tuple(Operand(name=name, type=self._builder.type(output), value=output) for output in outputs)

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

    def most(self, operand: Operand) -> int | None:
        """What an integer is at most, of several elements the greatest; None where that is not known."""
        if operand.dtype.is_float or not operand.type.size:
            return None
        if operand.array is not None:
            return int(operand.array.max())
        return None if operand.value is None else self._most.get(operand.value)

    def _most_of(self, kind: str, operands: Sequence[Operand]) -> int | None:
        """What the result of an operator is at most."""
        if kind == "Min":
            return min((most for most in map(self.most, operands) if most is not None), default=None)
        return self.most(operands[0]) if kind in _SAME_ELEMENTS else None

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


def _settled(kind: str, operands: Sequence[Operand]) -> Operand | None:
    """The operand that is the result of an `And` or an `Or`, as one of two scalars is known; None where that is not so.

    So the condition of a loop is known to fail from some trip on, where that alone is what ends it at the latest.
    """
    if kind not in ("And", "Or") or any(operand.type.size != 1 or operand.rank for operand in operands):
        return None
    for known, other in (operands, reversed(operands)):
        if known.array is not None:
            decides = bool(known.array) is (kind == "Or")
            return known if decides else other
    return None
