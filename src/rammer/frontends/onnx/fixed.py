"""Inputs that the user gives one value for, the same in every call: the program has them as constants."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rammer.errors import OptionError
from rammer.frontends.onnx.binding import Declaration
from rammer.ir.types import DType
from rammer.printable import listing


def fixed_inputs(
    declared: Sequence[Declaration],
    given: Mapping[str, npt.NDArray[Any]],
    shapes: Collection[str],
    where: str,
) -> dict[str, npt.NDArray[Any]]:
    """The values by name, of the inputs' element types.

    Args:
        declared: the inputs.
        given: a value for each input that is to be none.
        shapes: names that shapes are given for.
        where: the model, for messages.

    Raises:
        OptionError: there is no such input, it has a shape, too, or does not hold such elements.
    """
    known = {declaration.name: declaration for declaration in declared}
    found = {}
    for name, value in given.items():
        if name not in known:
            raise OptionError(
                f"a constant is given for '{name}', which is no input",
                where=where,
                hint=f"inputs are {listing(list(known))}",
            )
        if name in shapes:
            raise OptionError(
                f"a shape and a constant are given for '{name}'", where=where, hint="the constant's shape is its own"
            )
        converted = _converted(value, known[name].dtype)
        if converted is None:
            raise OptionError(
                f"the constant for '{name}' holds elements of {value.dtype} that {known[name].dtype.value} does not",
                where=where,
                hint=f"the model declares {known[name]}",
            )
        found[name] = converted
    return found


def _converted(value: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any] | None:
    """The same elements of another type; None where these are of another kind, or too large."""
    if not np.can_cast(value.dtype, dtype.numpy, casting="same_kind"):
        return None
    converted = value.astype(dtype.numpy)
    return converted if value.dtype.kind == "f" or np.array_equal(converted, value) else None
