"""What a compiled model takes and gives, and the checks of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from rammer.errors import InputNameError, InputShapeError, InputTypeError, OutputError, PlacementError
from rammer.ir.schema import Schema, SchemaError, check_schema
from rammer.ir.types import STORED_DTYPES, TensorType
from rammer.printable import listing, printable
from rammer.runtime.container import Json

if TYPE_CHECKING:
    from rammer.ir.graph import Array

_OUTPUT_HINT = "give an array of the output's type that lies where the inputs do, row by row, or leave outputs= out"
_SCHEMA: Schema = {
    "inputs": [(str, str, [int])],
    "outputs": [(str, str, [int])],
    "states": [(str, str, [int])],
    "in_place": [int],
}
_DTYPES = {dtype.value: dtype for dtype in STORED_DTYPES}


@dataclass(frozen=True, slots=True)
class Port:
    """A named input or output."""

    name: str
    type: TensorType

    def __str__(self) -> str:
        return f"{printable(self.name)}: {self.type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Inputs, outputs and states of a compiled model, in the model's order; the states `in_place` by position."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    states: tuple[Port, ...] = ()
    in_place: tuple[int, ...] = ()

    def __str__(self) -> str:
        states = [f"{port}{' in place' * (i in self.in_place)}" for i, port in enumerate(self.states)]
        kept = f", keeps ({', '.join(states)})" if states else ""
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.outputs))}){kept}"

    def arrange(self, positional: Sequence[object], named: Mapping[str, object]) -> Sequence[Any]:
        """Inputs in order, as they were given.

        Raises:
            InputNameError: an input is missing, unknown or given twice.
        """
        if len(positional) + len(named) == len(self.inputs):
            if not named:
                return positional
            try:
                return [*positional, *[named[port.name] for port in self.inputs[len(positional) :]]]
            except KeyError:
                pass
        raise self._misnamed(positional, named)

    def _misnamed(self, positional: Sequence[object], named: Mapping[str, object]) -> InputNameError:
        """Why inputs that do not fit the signature do not."""
        names = [port.name for port in self.inputs]
        twice = [name for name in names[: len(positional)] if name in named]
        missing = [name for name in names[len(positional) :] if name not in named]
        if len(positional) > len(names):
            reason = f"{len(positional)} positional inputs for a model with {len(names)}"
        elif twice:
            reason = f"input '{twice[0]}' is given twice"
        elif missing:
            listed = listing([f"'{name}'" for name in missing])
            reason = f"inputs {listed} are missing" if len(missing) > 1 else f"input {listed} is missing"
        else:
            reason = f"unknown input(s): {listing(sorted(named.keys() - set(names)))}"
        return InputNameError(reason, hint=f"the model takes ({listing(list(map(str, self.inputs)))})")

    def arrange_outputs(self, named: Mapping[str, object]) -> list[Any]:
        """Arrays to write into in order, as they were given.

        Raises:
            OutputError: one is missing or unknown.
        """
        if len(named) == len(self.outputs):
            try:
                return [named[port.name] for port in self.outputs]
            except KeyError:
                pass
        raise OutputError(
            f"outputs= has {listing(sorted(named)) or 'nothing'}",
            hint=f"give an array for {listing([port.name for port in self.outputs])}",
        )

    def to_json(self) -> Json:
        """As JSON data."""
        sides: dict[str, Json] = {
            side: [[port.name, port.type.dtype.value, list(port.type.shape)] for port in ports]
            for side, ports in (("inputs", self.inputs), ("outputs", self.outputs), ("states", self.states))
        }
        return {**sides, "in_place": list(self.in_place)}

    @property
    def array_bytes(self) -> list[int]:
        """What each array of a run takes: inputs, states as they are read, outputs, states as they are written."""
        return [port.type.nbytes for port in (*self.inputs, *self.states, *self.outputs, *self.states)]

    @classmethod
    def from_json(cls, data: object) -> Signature:
        """The signature that `to_json` wrote.

        Raises:
            SchemaError: it has another form, names a port twice, or has an array that NumPy has not.
        """
        # Files of models without any may lack them.
        whole = {"states": [], "in_place": [], **data} if isinstance(data, dict) else data
        check_schema(whole, _SCHEMA, "its signature")
        sides = cast(Mapping[str, Sequence[tuple[str, str, Sequence[int]]]], whole)
        inputs, outputs, states = (_ports(sides[side]) for side in ("inputs", "outputs", "states"))
        in_place = tuple(cast(Mapping[str, Sequence[int]], whole)["in_place"])
        if list(in_place) != sorted({*in_place}.intersection(range(len(states)))):
            raise SchemaError(f"its signature updates the states {list(in_place)} of {len(states)} in place")
        return cls(inputs=inputs, outputs=outputs, states=states, in_place=in_place)


def _ports(rows: Sequence[tuple[str, str, Sequence[int]]]) -> tuple[Port, ...]:
    """The inputs or the outputs of a signature as JSON data."""
    if len({name for name, _, _ in rows}) != len(rows):
        raise SchemaError("its signature names an input or output twice")
    ports = []
    for name, dtype, shape in rows:
        if dtype not in _DTYPES:
            raise SchemaError(f"'{name}' in its signature has the dtype '{dtype}', which there is not")
        try:
            np.broadcast_to(np.empty((), _DTYPES[dtype].numpy), shape)
        except ValueError as error:
            raise SchemaError(f"'{name}' in its signature has a shape that no array has: {error}") from error
        ports.append(Port(name, TensorType(_DTYPES[dtype], tuple(shape))))
    return tuple(ports)


def host_input(given: npt.ArrayLike, port: Port) -> Array:
    """An input as a C-contiguous, aligned array. Nothing is cast or broadcast.

    Raises:
        InputTypeError: it has another dtype or is no array.
        InputShapeError: it has another rank or shape.
        PlacementError: it lies in the memory of another device.
    """
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise InputTypeError(f"input '{port.name}' is no array: {error}", hint="give a NumPy array") from error
    except TypeError as error:  # what libraries raise for arrays that NumPy cannot reach
        raise PlacementError(
            f"input '{port.name}' does not lie in the host's memory: {error}",
            hint="compile the model for the device that holds it, or copy it to the host",
        ) from error
    check_input(port, array.dtype, array.shape)
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.array(array, order="C")


def host_output(given: object, port: Port) -> Array:
    """An array to write an output into.

    Raises:
        OutputError: it is no NumPy array, does not fit, is not C-contiguous and aligned, or read-only.
    """
    if not isinstance(given, np.ndarray):
        raise OutputError(f"output '{port.name}' is to be written into {type(given).__name__}", hint=_OUTPUT_HINT)
    flags = given.flags
    check_output(
        port, given.dtype, given.shape, contiguous=flags.c_contiguous and flags.aligned, writable=flags.writeable
    )
    return given


def check_input(port: Port, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """An input's type.

    Raises:
        InputTypeError: it has another dtype.
        InputShapeError: it has another rank or shape.
    """
    expected = port.type
    if dtype != expected.dtype.numpy:
        raise InputTypeError(
            f"input '{port.name}' has dtype {dtype}, the model takes {expected.dtype.value}",
            hint=f"convert it: np.asarray(x, '{expected.dtype.value}')",
        )
    if shape != expected.shape:
        raise InputShapeError(
            f"input '{port.name}' has shape {list(shape)}, the model takes {list(expected.shape)}",
            hint="reshape it, or compile the model for this shape with input_shapes= / --shape",
        )


def check_output(port: Port, dtype: np.dtype[Any], shape: tuple[int, ...], *, contiguous: bool, writable: bool) -> None:
    """The type and place of an array to write into.

    Raises:
        OutputError: it does not fit.
    """
    if dtype != port.type.dtype.numpy or shape != port.type.shape:
        found = f"{dtype}{list(shape)}"
        raise OutputError(f"output '{port.name}' is {port.type}, it is to be written into {found}", hint=_OUTPUT_HINT)
    if not (contiguous and writable):
        reason = "read-only" if contiguous else "not C-contiguous"
        raise OutputError(f"output '{port.name}' is to be written into an array that is {reason}", hint=_OUTPUT_HINT)
