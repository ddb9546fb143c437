"""Builds a `Graph` operator by operator; frontends, passes and composite operators use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

from rammer.errors import ModelError
from rammer.ir.expr import TensorExpr
from rammer.ir.graph import Array, Attributes, Graph, Operator, Repeat, SourceLocation, State, Value
from rammer.ir.sizes import check_tensor
from rammer.ir.types import DType, TensorType
from rammer.operators.registry import CompositeDef, definition_of


class GraphBuilder:
    """A graph under construction. Values are ints; operators must be added in topological order."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._values: dict[int, Value] = {}
        self._operators: list[Operator] = []
        self._inputs: list[int] = []
        self._constants: dict[int, Array] = {}
        # Unrolled recurrent layers add thousands of equal operators; their expression is built once.
        self._built: dict[tuple[object, ...], TensorExpr] = {}

    def input(self, name: str, type_: TensorType) -> int:
        """A new graph input.

        Raises:
            TensorSizeError: no tensor can be as large.
        """
        check_tensor(type_, where=f"input '{name}' of {self._name}")
        value = self._value(name, type_)
        self._inputs.append(value)
        return value

    def constant(self, array: Array, name: str) -> int:
        """A new constant; the array must not change afterwards."""
        value = self._value(name, TensorType(DType.of(array), tuple(array.shape)))
        self._constants[value] = array
        return value

    def type(self, value: int) -> TensorType:
        """The type of a value."""
        return self._values[value].type

    def constant_array(self, value: int) -> Array | None:
        """The array of a constant, None for any other value."""
        return self._constants.get(value)

    def add(
        self,
        kind: str,
        inputs: Sequence[int],
        attributes: Attributes = MappingProxyType({}),
        *,
        name: str,
        sources: Sequence[SourceLocation] = (),
    ) -> tuple[int, ...]:
        """Add an operator of a registered kind and return its output values.

        Raises:
            ModelError: the inputs or attributes do not fit, or no tensor can be as large as a result; the error names
                the first source.
        """
        definition = definition_of(kind)
        types = [self._values[i].type for i in inputs]
        expr: TensorExpr | None = None
        try:
            if isinstance(definition, CompositeDef):
                output_types = definition.infer(types, attributes)
            else:
                # As text, because 0.0 == -0.0 and 1 == True.
                key = (kind, *types, *((option, repr(value)) for option, value in attributes.items()))
                expr = self._built[key] if key in self._built else definition.build(types, attributes)
                self._built[key] = expr
                output_types = tuple(output.type for output in expr.outputs)
            for type_ in output_types:
                check_tensor(type_)
        except ModelError as error:
            if error.where or not sources:
                raise
            raise type(error)(error.message, where=str(sources[0]), hint=error.hint) from error
        suffixes = [""] if len(output_types) == 1 else [f".{i}" for i in range(len(output_types))]
        outputs = tuple(self._value(name + s, t) for s, t in zip(suffixes, output_types, strict=True))
        self._operators.append(
            Operator(
                kind=kind,
                name=name,
                inputs=tuple(inputs),
                outputs=outputs,
                expr=expr,
                attributes=MappingProxyType(dict(attributes)),
                sources=tuple(sources),
            )
        )
        return outputs

    def add_repeat(
        self,
        repeat: Repeat,
        inputs: Sequence[int],
        types: Sequence[TensorType],
        *,
        name: str,
        sources: Sequence[SourceLocation] = (),
    ) -> tuple[int, ...]:
        """Add a loop and return its output values, which have these types."""
        for type_ in types:
            check_tensor(type_, where=str(sources[0]) if sources else "")
        outputs = tuple(self._value(f"{name}.{i}", type_) for i, type_ in enumerate(types))
        self._operators.append(
            Operator(
                kind="Repeat",
                name=name,
                inputs=tuple(inputs),
                outputs=outputs,
                expr=None,
                sources=tuple(sources),
                repeat=repeat,
            )
        )
        return outputs

    def rename(self, value: int, name: str) -> None:
        """Give a value the name it has in the model."""
        self._values[value] = replace(self._values[value], name=name)

    def build(self, outputs: Sequence[int], states: Sequence[State] = ()) -> Graph:
        """The finished graph; its last inputs and outputs are those of the states."""
        return Graph(
            name=self._name,
            values=MappingProxyType(dict(self._values)),
            operators=tuple(self._operators),
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
            constants=MappingProxyType(dict(self._constants)),
            states=tuple(states),
        )

    def _value(self, name: str, type_: TensorType) -> int:
        value = len(self._values)
        self._values[value] = Value(id=value, name=name, type=type_)
        return value
