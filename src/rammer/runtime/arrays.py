"""Arrays for a compiled model: from and to .npy files, random ones, and as JSON."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rammer.errors import InputNameError, OptionError
from rammer.ir.types import TensorType
from rammer.printable import printable
from rammer.runtime.signature import Signature

if TYPE_CHECKING:
    from rammer.ir.graph import Array

_LINE_BYTES = 64
# NumPy's arrays of this size begin 16 bytes into a line, so that vectors cross lines; finding a line takes 2 us.
_LARGE_BYTES = 256 << 10


def room_for(type_: TensorType) -> Callable[[], Array]:
    """What makes an array of a type, not initialised; a large one begins with a cache line."""
    make = aligned_empty if type_.nbytes >= _LARGE_BYTES else np.empty
    return functools.partial(make, type_.shape, type_.dtype.numpy)


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array that begins with a cache line, not initialised."""
    memory = np.empty(math.prod(shape) * dtype.itemsize + _LINE_BYTES, np.uint8)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % _LINE_BYTES)


def row_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of an array of this shape that lies row by row."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def row_by_row(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    """Whether an array of these strides, in elements, does; those of extents 1 and of nothing are free."""
    if strides is None or 0 in shape:
        return True
    return all(
        extent == 1 or stride == wanted
        for extent, stride, wanted in zip(shape, strides, row_strides(shape), strict=True)
    )


def read_arrays(files: Mapping[str, str], signature: Signature) -> dict[str, Array]:
    """Inputs from .npy files by name; whether they fit is for the call to say.

    Raises:
        InputNameError: a file cannot be read or holds no array of numbers.
    """
    dtypes = {port.name: port.type.dtype.numpy for port in signature.inputs}
    return {name: read_array(name, Path(file), dtypes.get(name)) for name, file in files.items()}


def write_arrays(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write each array as NAME.npy, with "_" for each "/" of the name.

    Raises:
        OptionError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(folder / f"{printable(name).replace('/', '_')}.npy", array, allow_pickle=False)
    except OSError as error:
        raise OptionError(f"cannot write into {folder}: {error.strerror}", hint="name another folder") from error


def random_inputs(signature: Signature) -> dict[str, Array]:
    """An array for each input, the same ones every time: normal numbers, or zeros and ones where they are integers."""
    rng = np.random.default_rng(0)
    inputs: dict[str, Array] = {}
    for port in signature.inputs:
        normal = np.asarray(rng.standard_normal(port.type.shape))
        numbers = normal if port.type.dtype.is_float else np.asarray(normal > 0)
        inputs[port.name] = numbers.astype(port.type.dtype.numpy)
    return inputs


def json_array(array: Array) -> dict[str, object]:
    """An array as JSON data; what JSON has no numbers for is written "nan", "inf" and "-inf"."""
    values = [_json_value(value) for value in array.reshape(-1).tolist()]
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": values}


def _json_value(value: float | str) -> float | str:
    return value if isinstance(value, str) or math.isfinite(value) else str(value)


def read_array(name: str, path: Path, dtype: np.dtype[Any] | None = None) -> Array:
    """An input from a .npy file; `dtype` is that of the input, where it is known.

    Raises:
        InputNameError: the file cannot be read or holds no array of numbers.
    """
    try:
        with path.open("rb") as file:
            array: Array = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        message = f"cannot read {path} for input '{name}': {error.strerror}"
        raise InputNameError(message, hint="check the path") from error
    except (ValueError, EOFError) as error:
        raise InputNameError(
            f"{path} for input '{name}' is not a .npy file of numbers, or is cut short", hint="write it with numpy.save"
        ) from error
    if dtype is not None and array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
        return array.view(dtype)  # a type that NumPy lacks (bfloat16): its files hold the bytes without the name
    return array
