"""Where the arrays of a call lie: the views that a run reads and writes, checked against its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rammer.devices.base import View
from rammer.errors import LayoutError
from rammer.runtime.arrays import row_by_row, row_strides
from rammer.runtime.signature import Port, check_input, check_output

if TYPE_CHECKING:
    from rammer.ir.graph import Array


def expected_view(port: Port) -> tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]:
    """The NumPy dtype, shape and strides in bytes that a port takes without a word."""
    return port.type.dtype.numpy, port.type.shape, row_strides(port.type.shape)


def check_input_view(port: Port, view: View, alignment_bytes: int) -> None:
    """Check an input, whose address has to be a multiple of `alignment_bytes`.

    Raises:
        InputError: it is not what the signature says.
        LayoutError: it does not lie row by row, or begins elsewhere.
    """
    address, dtype, shape, strides, _ = view
    check_input(port, dtype, shape)
    if not row_by_row(shape, strides):
        raise LayoutError(f"input '{port.name}' does not lie row by row", hint="make it contiguous, in C order")
    _check_aligned(f"input '{port.name}'", address, alignment_bytes)


def check_output_view(port: Port, view: View, alignment_bytes: int) -> None:
    """Check room for an output, whose address has to be a multiple of `alignment_bytes`.

    Raises:
        OutputError: a run cannot write there.
        LayoutError: it begins elsewhere.
    """
    address, dtype, shape, strides, writable = view
    check_output(port, dtype, shape, contiguous=row_by_row(shape, strides), writable=writable)
    _check_aligned(f"output '{port.name}'", address, alignment_bytes)


def _check_aligned(name: str, address: int, alignment_bytes: int) -> None:
    if address % alignment_bytes:
        raise LayoutError(
            f"{name} begins at no multiple of {alignment_bytes} bytes",
            hint="give a copy of it; a part of another array may begin anywhere",
        )


def check_not_copied(ports: Sequence[Port], given: Sequence[Any], arrays: Sequence[Array]) -> None:
    """What the host's inputs were given as are arrays that lie where the run reads."""
    for port, array, read in zip(ports, given, arrays, strict=True):
        if read.nbytes and address(np.asarray(array)) != address(read):
            raise LayoutError(
                f"input '{port.name}' would be read from a copy, which later changes do not reach",
                hint="give an array that lies row by row",
            )


def address(array: Array) -> int:
    """Where an array begins."""
    place: int = array.__array_interface__["data"][0]
    return place


def on_the_host(arrays: Sequence[object]) -> bool:
    """Whether all are NumPy's."""
    # A loop: a generator takes three times as long.
    for array in arrays:  # noqa: SIM110
        if not isinstance(array, np.ndarray):
            return False
    return True
