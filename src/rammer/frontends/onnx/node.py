"""What a converter sees: one node with its operands, typed reads of its attributes, and the means to add operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx
from onnx.defs import OpSchema

from rammer.errors import UnsupportedFeatureError
from rammer.frontends.builder import Count, FoldingBuilder, Operand
from rammer.frontends.node import ModelNode
from rammer.frontends.onnx.sequences import TensorSequence, Value, described, tensors_of
from rammer.frontends.onnx.tensors import array_of
from rammer.frontends.randomness import RandomStreams
from rammer.ir.graph import Array, Graph

_FLOWS = (
    "such values flow through operators that compute each element by itself, move, pick, write, sort, reduce or "
    "multiply them, in the forms that docs/operators.md lists"
)

Enter = Callable[[onnx.GraphProto, Sequence[Value], str], Sequence[Value]]
"""Converts a graph that an attribute holds, and returns its outputs: the graph, its inputs, a name for this part."""

Apart = Callable[[onnx.GraphProto], "Alone"]
"""Begins the conversion of such a graph as a graph of its own."""


class Alone(Protocol):
    """A graph in an attribute that becomes a graph of its own, as the body of a loop does."""

    @property
    def builder(self) -> FoldingBuilder:
        """What its operators are added to."""
        ...

    def convert(self, inputs: Sequence[Operand]) -> Sequence[Value]:
        """Add the graph's operators once its inputs are, and return its outputs."""
        ...

    def finish(self, outputs: Sequence[Operand]) -> tuple[Graph, Sequence[Operand]]:
        """The graph, and the values around the node that it reads, which are its last inputs."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Node(ModelNode):
    """A node of the model.

    Attributes:
        proto: as it stands in the model.
        schema: what ONNX says of its operator.
        opset: in force.
        inputs: None for an optional operand that is left out.
        folder: of the model's file.
        random: where random numbers come from; None in a loop that is a program of its own.
        rows: how many of the first output are read at most, from the first on; None where all may be.
        enter: converts a graph that an attribute holds.
        apart: begins the conversion of one as a graph of its own.
    """

    proto: onnx.NodeProto
    schema: OpSchema
    opset: int
    inputs: tuple[Value | None, ...]
    folder: Path | None
    random: RandomStreams | None
    rows: Callable[[], int | None]
    enter: Enter
    apart: Apart

    @property
    def op_type(self) -> str:
        """ONNX's name of the operator."""
        return self.proto.op_type

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands that are there, in order.

        Raises:
            InvalidModelError: one is no tensor.
        """
        return self.tensors([value for value in self.inputs if value is not None])

    def operand(self, position: int) -> Operand:
        """A required operand.

        Raises:
            InvalidModelError: it is left out, or no tensor.
        """
        return self.tensors([self.value(position)])[0]

    def value(self, position: int) -> Value:
        """A required operand that may be a sequence or an optional.

        Raises:
            InvalidModelError: it is left out.
        """
        value = self.inputs[position] if position < len(self.inputs) else None
        if value is None:
            raise self.invalid(f"its input '{self._formal(position)}' is missing")
        return value

    def sequence(self, position: int) -> TensorSequence:
        """A required operand that is a sequence.

        Raises:
            InvalidModelError: it is left out, or no sequence.
        """
        value = self.value(position)
        if not isinstance(value, TensorSequence):
            raise self.invalid(f"its input '{self._formal(position)}' is {described(value)}, not a sequence")
        return value

    def of_rank(self, position: int, *ranks: int) -> Operand:
        """A required operand that has one of these numbers of dimensions.

        Raises:
            InvalidModelError: it is left out, or has another number.
        """
        operand = self.operand(position)
        if operand.rank not in ranks:
            name, wanted = self.schema.inputs[position].name, " or ".join(map(str, ranks))
            raise self.invalid(f"its input '{name}' is {operand.type}, not of {wanted} dimensions")
        return operand

    def optional(self, position: int) -> Operand | None:
        """An operand that may be left out.

        Raises:
            InvalidModelError: it is no tensor.
        """
        return self.operand(position) if position < len(self.inputs) and self.inputs[position] is not None else None

    def operands_from(self, first: int) -> list[Operand]:
        """The operands from a position on, none of which may be left out.

        Raises:
            InvalidModelError: one is, or is no tensor.
        """
        return list(self.tensors(self.values_from(first)))

    def values_from(self, first: int) -> list[Value]:
        """The same where they may be sequences or optionals."""
        return [self.value(position) for position in range(first, len(self.inputs))]

    def tensors(self, values: Sequence[Value]) -> tuple[Operand, ...]:
        """Values that all have to be tensors: operands, or results of the node's graphs.

        Raises:
            InvalidModelError: one is not.
        """
        tensors = tuple(value for value in values if isinstance(value, Operand))
        if len(tensors) < len(values):
            other = next(value for value in values if not isinstance(value, Operand))
            raise self.invalid(f"{described(other)} where only a tensor can be")
        return tensors

    def wants(self, position: int) -> bool:
        """Whether the model gives the output a name."""
        return position < len(self.proto.output) and bool(self.proto.output[position])

    # Attributes: the node's own, else the default of ONNX's schema.

    def has(self, name: str) -> bool:
        """Whether an attribute has a value, its default included."""
        return self._attribute(name) is not None

    def integer(self, name: str) -> int:
        """An integer attribute."""
        return self._required(name).i

    def flag(self, name: str) -> bool:
        """An integer attribute that stands for yes or no."""
        return self.integer(name) != 0

    def number(self, name: str) -> float:
        """A float attribute."""
        return self._required(name).f

    def text(self, name: str) -> str:
        """A string attribute.

        Raises:
            InvalidModelError: it is not UTF-8.
        """
        return self._decoded(name, self._required(name).s)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, None where it is absent."""
        attribute = self._attribute(name)
        return None if attribute is None else tuple(attribute.ints)

    def numbers(self, name: str) -> tuple[float, ...]:
        """A list of floats, empty where it is absent."""
        attribute = self._attribute(name)
        return () if attribute is None else tuple(attribute.floats)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, empty where it is absent.

        Raises:
            InvalidModelError: one is not UTF-8.
        """
        attribute = self._attribute(name)
        return () if attribute is None else tuple(self._decoded(name, text) for text in attribute.strings)

    def tensor(self, name: str) -> Array:
        """A tensor attribute."""
        return array_of(self._required(name).t, self.folder, f"attribute '{name}' of {self.location}")

    def graph(self, name: str) -> onnx.GraphProto:
        """A graph attribute."""
        return self._required(name).g

    def type(self, name: str) -> onnx.TypeProto:
        """An attribute that is a type."""
        return self._required(name).tp

    # Operands that have to be known while the model is compiled.

    def known(self, position: int) -> Array:
        """The elements of a required operand.

        Raises:
            UnsupportedFeatureError: they are not known before the model runs.
        """
        operand = self.operand(position)
        if operand.array is None:
            raise self.unsupported(
                f"its input '{self.schema.inputs[position].name}' is computed as the model runs",
                "it decides a shape or a choice that Rammer makes at compile time: let it follow from constants "
                "and from shapes alone",
            )
        return operand.array

    def known_integers(self, position: int) -> tuple[int, ...]:
        """The elements of a required operand that is a scalar or a vector of integers.

        Raises:
            UnsupportedFeatureError: they are not known before the model runs.
            InvalidModelError: it is no scalar or vector.
        """
        array = self.known(position)
        if array.ndim > 1:
            raise self.invalid(f"its input '{self.schema.inputs[position].name}' has rank {array.ndim}, not 1")
        return tuple(int(element) for element in np.asarray(array, dtype=np.int64).reshape(-1))

    def known_integer(self, position: int) -> int:
        """A required operand of one integer; errors as for `known_integers`."""
        elements = self.known_integers(position)
        if len(elements) != 1:
            raise self.invalid(f"its input '{self.schema.inputs[position].name}' has {len(elements)} elements, not 1")
        return elements[0]

    # Operands whose size depends on the data.

    def counted_operands(self) -> list[tuple[str, Operand, Count]]:
        """The tensors among the operands whose size depends on the data: name, tensor, what counts."""
        given = [(name, value) for name, value in zip(self.proto.input, self.inputs, strict=False) if value is not None]
        tensors = [each for name, value in given for each in tensors_of(name, value)]
        return [(name, tensor, tensor.count) for name, tensor in tensors if tensor.count is not None]

    def refusal(self, reason: str = "") -> UnsupportedFeatureError:
        """As for `ModelNode`."""
        name = self.counted_operands()[0][0]
        message = f"its input '{name}' has a size that depends on the data"
        return self.unsupported(f"{message}: {reason}" if reason else message, _FLOWS)

    def _formal(self, position: int) -> str:
        """What the schema calls an input; the last one may be there several times."""
        formals = self.schema.inputs
        return formals[min(position, len(formals) - 1)].name

    def _attribute(self, name: str) -> onnx.AttributeProto | None:
        for attribute in self.proto.attribute:
            if attribute.name == name:
                return attribute
        declared = self.schema.attributes.get(name)
        default = None if declared is None else declared.default_value
        return default if default is not None and default.name else None

    def _required(self, name: str) -> onnx.AttributeProto:
        attribute = self._attribute(name)
        if attribute is None:
            raise self.invalid(f"its attribute '{name}' is missing")
        return attribute

    def _decoded(self, name: str, text: bytes) -> str:
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise self.invalid(f"its attribute '{name}' is {text!r}, which is not UTF-8") from error


Converter = Callable[[Node], Sequence[Value | None]]
"""Adds what a node stands for and returns its outputs in order; trailing outputs may be left out, others be None."""
