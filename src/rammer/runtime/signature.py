"""What a compiled model takes and gives, and the checks of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rammer.errors import InputNameError, InputShapeError, InputTypeError
from rammer.ir.graph import Array
from rammer.ir.types import DType, TensorType
from rammer.runtime.container import Json


@dataclass(frozen=True, slots=True)
class Port:
    """A named input or output."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Inputs and outputs of a compiled model, in the model's order."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))})"

    def arrange(self, positional: Sequence[npt.ArrayLike], named: Mapping[str, npt.ArrayLike]) -> list[Array]:
        """Inputs in order, checked, each C-contiguous and aligned. Nothing is cast or broadcast.

        Raises:
            InputNameError: an input is missing, unknown or given twice.
            InputTypeError: an input has another dtype or is no array.
            InputShapeError: an input has another rank or shape.
        """
        if len(positional) > len(self.inputs):
            raise InputNameError(
                f"{len(positional)} positional inputs for a model with {len(self.inputs)}", hint=self._usage()
            )
        by_name = dict(named)
        arranged = []
        for position, port in enumerate(self.inputs):
            if position < len(positional):
                if port.name in by_name:
                    raise InputNameError(f"input '{port.name}' is given twice", hint=self._usage())
                given = positional[position]
            elif port.name in by_name:
                given = by_name.pop(port.name)
            else:
                raise InputNameError(f"input '{port.name}' is missing", hint=self._usage())
            arranged.append(_checked(given, port))
        if by_name:
            raise InputNameError(f"unknown input(s): {', '.join(sorted(by_name))}", hint=self._usage())
        return arranged

    def _usage(self) -> str:
        return f"the model takes ({', '.join(map(str, self.inputs))})"

    def to_json(self) -> Json:
        """As JSON data."""
        return {
            side: [[port.name, port.type.dtype.value, list(port.type.shape)] for port in ports]
            for side, ports in (("inputs", self.inputs), ("outputs", self.outputs))
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Sequence[tuple[str, str, Sequence[int]]]]) -> Signature:
        """The signature that `to_json` wrote."""

        def ports(side: str) -> tuple[Port, ...]:
            return tuple(Port(name, TensorType(DType(dtype), tuple(shape))) for name, dtype, shape in data[side])

        return cls(inputs=ports("inputs"), outputs=ports("outputs"))


def _checked(given: npt.ArrayLike, port: Port) -> Array:
    expected = port.type
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InputTypeError(f"input '{port.name}' is no array: {error}", hint="give a NumPy array") from error
    if array.dtype != expected.dtype.numpy:
        raise InputTypeError(
            f"input '{port.name}' has dtype {array.dtype}, the model takes {expected.dtype.value}",
            hint=f"convert it: np.asarray(x, '{expected.dtype.value}')",
        )
    if array.shape != expected.shape:
        raise InputShapeError(
            f"input '{port.name}' has shape {list(array.shape)}, the model takes {list(expected.shape)}",
            hint="reshape it, or compile the model for this shape with input_shapes= / --shape",
        )
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")
